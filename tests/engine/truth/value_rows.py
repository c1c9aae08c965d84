"""Rows V-001 to V-031 of the truth table: values, keys, ids."""

from __future__ import annotations

from typing import Any

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
    edge,
    node,
    put,
    refused,
    run,
)

NAN, INFINITY = float("nan"), float("inf")


def person(name: str, age: int | None = None) -> Record:
    """Return a Person."""
    return node("Person", name=name) if age is None else node("Person", name=name, age=age)


def member(name: str, **data: Any) -> Record:
    """Return a Member."""
    return node("Member", name=name, **{"role": "admin", **data})


ALICE, ALICE_30 = person("Alice"), person("Alice", 30)
M1 = member("m1")
RATED = (person("p"), node("Company", name="c"))

VALUES = [
    Case("V-001", "a role outside the set", "R", put(member("m1", role="root")), refused("enum"), LOADS),
    Case(
        "V-002",
        "a role outside the set",
        "R",
        put(member("m2", role="root")),
        refused("enum", entity=("Member", "m2")),
        (STATEMENTS,),
        committed=(M1,),
    ),
    Case(
        "V-003",
        "an update to a role outside the set",
        "R",
        run('update Member set { role: $r } where name = "m1"', r=("String", "root")),
        refused("enum", entity=("Member", "m1")),
        (STATEMENTS,),
        committed=(M1,),
    ),
    Case(
        "V-005",
        "a list that is null",
        "R",
        put(member("m1", tags=None)),
        Ok({"Member": [{"name": "m1", "role": "admin"}]}),
        (MERGE, STATEMENTS),
        committed=(member("m1", tags=["x"]),),
    ),
    Case(
        "V-007",
        "an edge with a mood outside the set",
        "P C X",
        put(edge("Rates", "p", "c", mood="sideways")),
        refused("enum", saying="Rates.mood"),
        committed=RATED,
    ),
    Case("V-009", "an age of 121", "P", put(person("Alice", 121)), refused("range", saying="121 > max 120")),
    Case(
        "V-009",
        "an update to 121",
        "P",
        run('update Person set { age: 121 } where name = "Alice"'),
        refused("range", entity=("Person", "Alice")),
        (STATEMENTS,),
        committed=(ALICE_30,),
    ),
    Case(
        "V-010",
        "both bounds and null",
        "P",
        put(person("a", 0), person("b", 120), node("Person", name="c", age=None)),
        Ok({"Person": [{"name": "a", "age": 0}, {"name": "b", "age": 120}, {"name": "c"}]}),
    ),
    Case("V-011", "NaN in a range", "F", put(node("Gauge", name="g", v=NAN)), refused("range"), LOADS),
    Case(
        "V-011",
        "the upper bound itself",
        "F",
        put(node("Gauge", name="g", v=1.0)),
        Ok({"Gauge": [{"name": "g", "v": 1.0}]}),
    ),
    Case("V-011", "above the bound", "F", put(node("Gauge", name="g", v=1.1)), refused("range")),
    Case("V-012", "a code in lower case", "R", put(member("m1", code="ab")), refused("check")),
    Case(
        "V-012",
        "a code in upper case, and none",
        "R",
        put(member("m1", code="AB"), member("m2", code=None)),
        Ok({"Member": [{"name": "m1", "role": "admin", "code": "AB"}, {"name": "m2", "role": "admin"}]}),
    ),
    Case("V-013", "no name", "P", put(node("Person", age=1)), refused("required"), LOADS),
    Case("V-013", "a null name", "P", put(node("Person", name=None)), refused("required")),
    Case(
        "V-013", "an age in words", "P", put(node("Person", name="a", age="thirty")), refused("type"), LOADS
    ),
    Case("V-013", "an age too large", "P", put(person("a", 3_000_000_000)), refused("type"), LOADS),
    Case(
        "V-013",
        "a field nobody declared",
        "P",
        put(node("Person", name="a", ag=1)),
        refused("unknown_property"),
        LOADS,
    ),
    Case(
        "V-015", "a null element", "V", put(node("Point", name="a", at=[1, None, 2])), refused("type"), LOADS
    ),
    Case(
        "V-015", "a string element", "V", put(node("Point", name="a", at=[1, "x", 2])), refused("type"), LOADS
    ),
    Case("V-015", "two elements", "V", put(node("Point", name="a", at=[1, 2])), refused("type"), LOADS),
    Case(
        "V-015",
        "three floats",
        "V",
        put(node("Point", name="a", at=[1.0, 0.5, -2.0])),
        Ok({"Point": [{"name": "a", "at": [1.0, 0.5, -2.0]}]}),
    ),
]

KEYS = [
    Case(
        "V-017",
        "an id that exists",
        "P",
        put(person("Alice", 31)),
        refused("key_conflict", entity=("Person", "Alice")),
        (APPEND,),
        committed=(ALICE_30,),
    ),
    Case(
        "V-018",
        "one that exists and one that does not",
        "P",
        put(person("Alice", 31), person("Carl", 35)),
        Ok({"Person": [{"name": "Alice", "age": 31}, {"name": "Carl", "age": 35}]}),
        (MERGE,),
        committed=(ALICE_30,),
    ),
    Case(
        "V-019",
        "an insert of a key that exists",
        "P",
        put(person("Alice", 31)),
        Ok({"Person": [{"name": "Alice", "age": 31}]}, affected=(1, 0)),
        (STATEMENTS,),
        committed=(ALICE_30,),
    ),
    Case(
        "V-020",
        "what is left out becomes null",
        "P",
        put(ALICE),
        Ok({"Person": [{"name": "Alice"}]}),
        (MERGE, STATEMENTS),
        committed=(ALICE_30,),
    ),
    Case(
        "V-021",
        "one key twice",
        "P",
        put(person("Alice", 1), person("Alice", 2)),
        refused("unique", saying="Person.name", entity=("Person", "Alice")),
        LOADS,
    ),
    Case(
        "V-023",
        "one key in two loads",
        "P",
        (put(person("Alice", 1)), put(person("Alice", 2))),
        Ok({"Person": [{"name": "Alice", "age": 2}]}),
        (MERGE,),
    ),
    Case(
        "V-024",
        "insert, then update",
        "P",
        run('insert Person { name: "Alice", age: 1 } update Person set { age: 2 } where name = "Alice"'),
        Ok({"Person": [{"name": "Alice", "age": 2}]}, affected=(2, 0)),
        (STATEMENTS,),
    ),
    Case(
        "V-025",
        "insert twice",
        "P",
        put(person("Alice", 1), person("Alice", 2)),
        Ok({"Person": [{"name": "Alice", "age": 2}]}, affected=(2, 0)),
        (STATEMENTS,),
    ),
    Case(
        "V-026",
        "one id twice without a key",
        "N",
        put(node("Thing", id="d", value="1"), node("Thing", id="d", value="2")),
        refused("key_conflict", entity=("Thing", "d")),
        (APPEND, OVERWRITE),
    ),
    Case(
        "V-026",
        "one id twice without a key",
        "N",
        put(node("Thing", id="d", value="1"), node("Thing", id="d", value="2")),
        Ok({"Thing": [{"id": "d", "value": "2"}]}),
        (MERGE,),
    ),
    Case(
        "V-029",
        "an update of the key",
        "P",
        run('update Person set { name: "Bob" } where name = "Alice"'),
        refused("key_update"),
        (STATEMENTS,),
        committed=(ALICE,),
    ),
    Case("V-030", "NaN as key", "KF", put(node("Level", height=NAN)), refused("key"), LOADS),
    Case("V-030", "infinity as key", "KF", put(node("Level", height=INFINITY)), refused("key"), LOADS),
    Case(
        "V-030",
        "both zeros as key",
        "KF",
        put(node("Level", height=0.0), node("Level", height=-0.0)),
        refused("unique", entity=("Level", "0")),
        LOADS,
    ),
    Case(
        "V-030",
        "zero as key where minus zero is",
        "KF",
        put(node("Level", height=0.0)),
        refused("key_conflict", entity=("Level", "0")),
        (APPEND,),
        committed=(node("Level", height=-0.0),),
    ),
    Case(
        "V-031",
        "keys that would meet if they were joined by a bar",
        "KK",
        put(node("Pair", a="x|y", b="z"), node("Pair", a="x", b="y|z")),
        Ok(
            {
                "Pair": [
                    {"id": '["x","y|z"]', "a": "x", "b": "y|z"},
                    {"id": '["x|y","z"]', "a": "x|y", "b": "z"},
                ]
            }
        ),
        EVERY,
    ),
]
