"""Rows V-032 to V-058, and V-090: unique groups, within a write and against what is committed."""

from __future__ import annotations

from typing import Any

from tests.engine.truth.value_rows import ALICE, NAN, person
from tests.engine.truth.vocabulary import (
    APPEND,
    EVERY,
    LOADS,
    MERGE,
    OVERWRITE,
    STATEMENTS,
    Case,
    Ok,
    Record,
    Shape,
    edge,
    node,
    put,
    refused,
    run,
)

ADDING = (STATEMENTS, APPEND, MERGE)
QUOTES = "o'b\"\\"


def user(name: str, email: str | None = None) -> Record:
    """Return a User."""
    return node("User", name=name, email=email)


def users(**emails: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return all users as rows."""
    return {"User": [{"name": name, "email": email} for name, email in sorted(emails.items())]}


def ext(slug: str, a: str | None, b: str | None) -> Record:
    """Return an Ext."""
    return node("Ext", slug=slug, a=a, b=b)


def task(name: str, due: str) -> Record:
    """Return a Task."""
    return node("Task", name=name, due=due)


def meter(name: str, **data: Any) -> Record:
    """Return a Meter."""
    return node("Meter", name=name, **data)


def clock(name: str, **data: Any) -> Record:
    """Return a Clock."""
    return node("Clock", name=name, **data)


BOB_D = user("Bob", "d")
TAKEN = Case(
    "V-032",
    "a value that another holds",
    "U",
    put(user("Carl", "d"), user("Dan", "q")),
    refused("unique", saying="User.email: value 'd' held by 'Carl' and 'Bob'", entity=("User", "Carl")),
    ADDING,
    committed=(BOB_D,),
)

UNIQUE = [
    TAKEN,
    Case(
        "V-033",
        "an insert of a value that another holds",
        "U",
        put(user("Carl", "d")),
        refused("unique"),
        (STATEMENTS,),
        committed=(BOB_D,),
    ),
    Case(
        "V-034",
        "an update to a value that another holds",
        "U",
        run('update User set { email: "d" } where name = "Carl"'),
        refused("unique", entity=("User", "Carl")),
        (STATEMENTS,),
        committed=(BOB_D, user("Carl", "c")),
    ),
    Case(
        "V-035",
        "the holder again",
        "U",
        put(BOB_D),
        Ok(users(Bob="d")),
        (MERGE, STATEMENTS),
        committed=(BOB_D,),
    ),
    Case(
        "V-036",
        "two in one write",
        "U",
        put(user("Alice", "d"), user("Bob", "d")),
        refused("unique", entity=("User", "Alice")),
        EVERY,
    ),
    Case("V-037", "nulls", "U", put(user("Alice"), user("Bob")), Ok(users(Alice=None, Bob=None))),
    Case(
        "V-038",
        "freed, then used again",
        "U",
        run(
            'update User set { email: "t" } where name = "Alice"'
            ' update User set { email: "f" } where name = "Alice"'
            ' insert User { name: "Carl", email: "t" }'
        ),
        Ok(users(Alice="f", Carl="t")),
        (STATEMENTS,),
        committed=(user("Alice", "o"),),
    ),
    Case(
        "V-039",
        "a swap",
        "U",
        put(user("Alice", "y"), user("Bob", "x")),
        Ok(users(Alice="y", Bob="x")),
        (MERGE, STATEMENTS),
        committed=(user("Alice", "x"), user("Bob", "y")),
    ),
    Case(
        "V-040",
        "handed on",
        "U",
        put(user("Alice", "y"), user("Bob", "x")),
        Ok(users(Alice="y", Bob="x")),
        (MERGE, STATEMENTS),
        committed=(user("Alice", "x"),),
    ),
    Case(
        "V-041",
        "taken without being handed on",
        "U",
        put(user("Bob", "x")),
        refused("unique"),
        ADDING,
        committed=(user("Alice", "x"),),
    ),
    Case(
        "V-042",
        "the holder is deleted first",
        "U",
        (run('delete User where name = "Alice"'), put(user("Bob", "x"))),
        Ok(users(Bob="x")),
        (STATEMENTS,),
        committed=(user("Alice", "x"),),
    ),
    Case(
        "V-043",
        "the holder is replaced",
        "U",
        put(user("Bob", "x")),
        Ok(users(Bob="x")),
        (OVERWRITE,),
        committed=(user("Alice", "x"),),
    ),
    Case(
        "V-044",
        "set to null, then used by another",
        "U",
        run('update User set { email: null } where name = "Alice" insert User { name: "Bob", email: "x" }'),
        Ok(users(Alice=None, Bob="x")),
        (STATEMENTS,),
        committed=(user("Alice", "x"),),
    ),
    Case(
        "V-045",
        "one statement gives two rows one value",
        "U",
        run('update User set { email: "z" } where name != "nobody"'),
        refused("unique"),
        (STATEMENTS,),
        committed=(user("Alice", "a"), user("Bob", "b")),
    ),
]

W_1 = (ext("one", "w", "1"), ext("none", "w", None))
COMPOSITE = [
    Case(
        "V-046",
        "one column alike",
        "E",
        put(ext("new", "w", "2")),
        Ok(
            {
                "Ext": [
                    {"slug": "new", "a": "w", "b": "2"},
                    {"slug": "none", "a": "w"},
                    {"slug": "one", "a": "w", "b": "1"},
                ]
            }
        ),
        ADDING,
        committed=W_1,
    ),
    Case(
        "V-046",
        "both columns alike",
        "E",
        put(ext("new", "w", "1")),
        refused("unique", saying="Ext.(a, b): value ('w', '1') held by 'new' and 'one'"),
        ADDING,
        committed=W_1,
    ),
    Case(
        "V-046",
        "a null member",
        "E",
        put(ext("new", "w", None)),
        Ok(
            {
                "Ext": [
                    {"slug": "new", "a": "w"},
                    {"slug": "none", "a": "w"},
                    {"slug": "one", "a": "w", "b": "1"},
                ]
            }
        ),
        ADDING,
        committed=W_1,
    ),
    Case(
        "V-049",
        "tuples that would meet if they were joined by a bar",
        "E",
        put(ext("1", "x|y", "z"), ext("2", "x", "y|z")),
        Ok({"Ext": [{"slug": "1", "a": "x|y", "b": "z"}, {"slug": "2", "a": "x", "b": "y|z"}]}),
    ),
    Case(
        "V-049",
        "a tuple that would meet a committed one if they were joined by a bar",
        "E",
        put(ext("2", "x", "y|z")),
        Ok({"Ext": [{"slug": "1", "a": "x|y", "b": "z"}, {"slug": "2", "a": "x", "b": "y|z"}]}),
        ADDING,
        committed=(ext("1", "x|y", "z"),),
    ),
]

TYPED = [
    Case(
        "V-050",
        "a day that is taken",
        "T",
        put(task("T2", "2026-06-29")),
        refused("unique", saying="2026-06-29"),
        ADDING,
        committed=(task("T1", "2026-06-29"),),
    ),
    Case(
        "V-050",
        "a day that is free",
        "T",
        put(task("T3", "2026-07-01")),
        Ok({"Task": [{"name": "T1", "due": "2026-06-29"}, {"name": "T3", "due": "2026-07-01"}]}),
        ADDING,
        committed=(task("T1", "2026-06-29"),),
    ),
    *(
        Case(
            "V-052",
            f"v = {v}",
            "M",
            put(meter("c", v=v)),
            refused("unique", entity=("Meter", "c")),
            ADDING,
            committed=(meter("a", v=1.5), meter("b", v=0.0)),
        )
        for v in (1.5, -0.0, 0.0)
    ),
    Case(
        "V-052",
        "0.0 where -0.0 is",
        "M",
        put(meter("c", v=0.0)),
        refused("unique", entity=("Meter", "c")),
        ADDING,
        committed=(meter("b", v=-0.0),),
    ),
    Case(
        "V-052",
        "both zeros in one write",
        "M",
        put(meter("a", v=0.0), meter("b", v=-0.0)),
        refused("unique", entity=("Meter", "a")),
        EVERY,
    ),
    Case(
        "V-052",
        "v = 2.5",
        "M",
        put(meter("c", v=2.5)),
        Ok({"Meter": [{"name": "a", "v": 1.5}, {"name": "b", "v": 0.0}, {"name": "c", "v": 2.5}]}),
        ADDING,
        committed=(meter("a", v=1.5), meter("b", v=0.0)),
    ),
    Case("V-052", "v = NaN", "M", put(meter("c", v=NAN)), refused("type"), LOADS),
]

HELD = clock("a", n=2**63 + 1, flag=True, at="2026-01-01T00:00:00.000Z", small=0.1)
HELD_ROW = {"name": "a", "n": 2**63 + 1, "flag": True, "at": "2026-01-01T00:00:00.000Z", "small": 0.1}
OTHERS = {"n": 2**63, "flag": False, "at": "2026-01-01T00:00:00.001Z", "small": 0.2}
SAME = {name: HELD_ROW[name] for name in OTHERS}
MORE_TYPED = [
    *(
        Case(
            "V-053",
            f"the same {name}",
            "D",
            put(clock("b", **{name: value})),
            refused("unique", saying=f"Clock.{name}"),
            ADDING,
            committed=(HELD,),
        )
        for name, value in SAME.items()
    ),
    Case(
        "V-053",
        "other values, near by",
        "D",
        put(clock("b", **OTHERS)),
        Ok({"Clock": [HELD_ROW, {"name": "b", **OTHERS}]}),
        ADDING,
        committed=(HELD,),
    ),
    Case(
        "V-053",
        "values near by in one write",
        "D",
        put(HELD, clock("b", **OTHERS)),
        Ok({"Clock": [HELD_ROW, {"name": "b", **OTHERS}]}),
        EVERY,
    ),
    Case(
        "V-056",
        "quotes, the same",
        "U",
        put(user("b", QUOTES)),
        refused("unique"),
        ADDING,
        committed=(user("a", QUOTES),),
    ),
    Case(
        "V-056",
        "quotes that would end a text",
        "U",
        put(user("b", "x' or 'a'='a")),
        Ok(users(a=QUOTES, b="x' or 'a'='a")),
        ADDING,
        committed=(user("a", QUOTES),),
    ),
]

A, B, C = ALICE, person("Bob"), person("Carl")
KNOWN = (A, B, C, edge("Knows", "Alice", "Bob", id="e1"))
EDGES = [
    Case(
        "V-057",
        "a pair that is joined",
        "P KU",
        put(edge("Knows", "Alice", "Bob")),
        refused("unique", saying="Knows.(dst, src)"),
        ADDING,
        committed=KNOWN,
    ),
    Case(
        "V-057",
        "another pair",
        "P KU",
        put(edge("Knows", "Alice", "Carl")),
        Ok({"Knows": [{"src": "Alice", "dst": "Bob"}, {"src": "Alice", "dst": "Carl"}]}),
        ADDING,
        committed=KNOWN,
    ),
    *(
        Case(
            "V-058",
            TAKEN.title,
            TAKEN.schema,
            TAKEN.does,
            TAKEN.expect,
            TAKEN.on,
            TAKEN.committed,
            shape=shape,
        )
        for shape in Shape
    ),
    Case(
        "V-090",
        "a value that another took after this one was staged",
        "U",
        put(user("Bob", "d")),
        refused("unique"),
        ADDING,
        during=(user("Alice", "d"),),
    ),
]
