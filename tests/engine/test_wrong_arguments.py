"""Every public callable, called wrongly: the answer is a value or a typed error, whatever the argument.

Room    tests. The callables are found by inspection: from the names that `omnigraph` exports, through the
        attributes of objects and through what calls return. One that is new needs a row in `CALLS` if it has
        required parameters, and the test says so.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import omnigraph as og
from omnigraph.base.arguments import BadArgument, Positive, checked, expected_of
from omnigraph.base.errors import GraphClosed, GraphError
from omnigraph.engine.history.feed import Changes
from omnigraph.engine.merge.conflicts import Take
from omnigraph.storage.store import GraphStore

SCHEMA = """
node P { k: String @key
  n: I64?
  tags: [String]?
  v: Vector(3)?
}
edge Knows: P -> P
"""
READ = "query r($k: String?) { match { $p: P  $p.k = $k } return { $p.k as k, $p.n as n } }"
WRITE = "query w($k: String, $n: I64?) { insert P { k: $k, n: $n } }"
POLICY = "{version: 1, groups: {g: [ada]}, rules: [{id: r, allow: {actors: {group: g}, actions: [read]}}]}"
# What only our own code calls: the rooms below the façade, and the parts of the schema as they are resolved.
INTERNAL = (
    *("GraphStore", "PinnedSnapshot", "ManifestState", "StateComparison", "Proposal"),
    *("Catalog", "NodeType", "EdgeType", "FrozenMap", "View", "Access"),
    *("Bundle", "PolicyGuard", "Action"),
)


@dataclass
class World:
    """A graph, and what valid calls on it need."""

    folder: Path
    graph: og.Graph
    numbers: Iterator[int] = field(default_factory=count)

    def name(self) -> str:
        """Return a name that nothing has yet."""
        return f"x{next(self.numbers)}"

    def branch(self) -> str:
        """Make a branch."""
        return self.graph.branches.create(self.name()).name

    def tag(self) -> str:
        """Make a tag."""
        return self.graph.tags.create(self.name()).name

    def head(self) -> str:
        """Return the newest commit of main."""
        return self.graph.branches.get("main").head or ""

    def free(self) -> str:
        """Return a path with nothing there."""
        return str(self.folder / self.name())


def people() -> list[dict[str, Any]]:
    return [{"type": "P", "data": {"k": "a", "n": 1}}, {"edge": "Knows", "from": "a", "to": "a"}]


Call = Callable[[World], dict[str, Any]]
# A valid call of each callable that has required parameters, or does more when it is given some.
CALLS: Mapping[str, Call] = {
    "init": lambda w: {"address": w.free(), "schema": SCHEMA, "durability": "os"},
    "lint": lambda w: {"schema": SCHEMA, "queries": READ},
    "connect": lambda w: {"address": w.graph.uri},
    "upgrade": lambda w: {"address": w.graph.uri},
    "Graph": lambda w: {"store": GraphStore.open(w.graph.uri)},
    "GraphError": lambda w: {"message": "m"},
    "Policy": lambda w: {"bundle": og.Policy.read(POLICY).bundle},
    "Policy.read": lambda w: {"source": POLICY},
    "Policy.decide": lambda w: {"actor": "ada", "action": "read"},
    "Policy.guard": lambda w: {"actor": "ada", "graph_id": "kb"},
    "Policy.server_guard": lambda w: {"actor": "ada"},
    "Graph.run": lambda w: {"name": "r", "k": "a"},
    "Graph.acting": lambda w: {"actor": "ada"},
    "Graph.branch": lambda w: {"name": w.branch()},
    "Graph.at": lambda w: {"moment": w.head()},
    "Graph.query": lambda w: {"gq": READ, "params": {"k": "a"}},
    "Graph.explain": lambda w: {"gq": READ, "params": {"k": "a"}},
    "Graph.profile": lambda w: {"gq": READ, "params": {"k": "a"}},
    "Graph.mutate": lambda w: {"gq": WRITE, "params": {"k": w.name(), "n": 1}},
    "Graph.load": lambda w: {"data": people(), "mode": "merge", "engine": "local"},
    "Graph.merge": lambda w: {"source": w.branch()},
    "Graph.revert": lambda w: {"commit_id": w.head(), "preview": True},
    "Graph.diff": lambda w: {"a": "main~1"},
    "Graph.entity": lambda w: {"type": "P", "id": "a"},
    "Graph.nodes": lambda w: {"name": "P"},
    "Graph.edges": lambda w: {"name": "Knows"},
    "Graph.export": lambda w: {"out": w.free()},
    "Graph.backup": lambda w: {"destination": w.free()},
    "Graph.clone": lambda w: {"destination": w.free()},
    "restore": lambda w: {"source": w.graph.uri, "destination": w.free()},
    "TypeRows.filter": lambda w: {"id": "a"},
    "DoctorReport.of": lambda w: {"severity": "error"},
    "ExportReport.of_kind": lambda w: {"kind": "node"},
    "Schemas.plan": lambda w: {"schema": SCHEMA},
    "Schemas.apply": lambda w: {"schema": SCHEMA, "branch": w.branch()},
    "Schemas.lint": lambda w: {"schema": SCHEMA},
    "SchemaPlan.rows": lambda w: {"step": w.graph.schema.plan(f"{SCHEMA}\nnode Q {{ n: I64? }}").steps[0]},
    "Graph.cleanup": lambda w: {"keep": 1000},
    "SchemaPlan.takes_history": lambda w: CALLS["SchemaPlan.rows"](w),
    "GraphBranches.create": lambda w: {"name": w.name()},
    "GraphBranches.get": lambda w: {"name": "main"},
    "GraphBranches.rename": lambda w: {"old": w.branch(), "new": w.name()},
    "GraphBranches.delete": lambda w: {"name": w.branch()},
    "Commits.get": lambda w: {"at": w.head()},
    "GraphTags.create": lambda w: {"name": w.name()},
    "GraphTags.get": lambda w: {"name": w.tag()},
    "GraphTags.delete": lambda w: {"name": w.tag()},
    "Changes.of": lambda w: {"commit_id": w.head()},
    "Changes.wait": lambda w: {"timeout": 0.0},
}
# Callables that hand their further keywords on, and to which one.
HANDLES = ("Graph", "Schemas", "GraphBranches", "Commits", "GraphTags", "Changes")
FORWARDS: Mapping[str, Callable[..., Any]] = {"Changes": Changes.poll, "Changes.wait": Changes.poll}
PLAIN: tuple[Any, ...] = (
    None,
    True,
    3,
    -1,
    1.5,
    math.nan,
    10**30,
    "",
    "\ud800",
    "a\0b",
    b"x",
    object(),
    [],
    {},
    Path("no/such/place"),
    Path("a\0b"),
)
NESTED: tuple[Any, ...] = tuple(
    wrong for inner in PLAIN for wrong in ([inner], {"k": inner}, {"type": "P", "data": inner})
)
KEYED: tuple[Any, ...] = tuple({key: "a"} for key in PLAIN if not isinstance(key, list | dict))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A graph with rows and a few commits."""
    monkeypatch.chdir(tmp_path)  # a wrong path is a path from here
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries/r.gq").write_text(READ)
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.load(people(), mode="merge")
        graph.mutate(WRITE, k="b", n=2)
    with og.connect(tmp_path / "g", durability="os", queries=tmp_path / "queries") as graph:
        yield World(tmp_path, graph)


def test_every_wrong_argument_is_answered_by_a_typed_error(world: World) -> None:
    untyped: list[str] = []
    called = 0
    for name, function in sorted(callables(world).items()):
        call = valid(name, function, world)
        for parameter, wrong in wrong_arguments(function, name):
            called += 1
            outcome = outcome_of(function, {**call, parameter: wrong})
            if outcome is None:  # it has done something: what it named may be gone, or be there now
                call = valid(name, function, world)
            if not isinstance(outcome, GraphError | None):
                untyped.append(f"{name}({parameter}={wrong!r:.60}): {outcome!r:.150}")
    world.graph.query(READ, k="a")
    assert untyped == []
    assert called > 1_000  # the walk has not lost its way


def test_after_close_every_callable_answers_or_says_that_the_graph_was_closed(world: World) -> None:
    every = callables(world)
    calls = {name: valid(name, function, world) for name, function in every.items() if name not in og.__all__}
    world.graph.close()
    outcomes = {name: outcome_of(every[name], call) for name, call in calls.items()}
    refused = {name for name, outcome in outcomes.items() if outcome is not None}
    assert {outcome for outcome in outcomes.values() if not isinstance(outcome, GraphClosed | None)} == set()
    answered = {name for name in calls if name.split(".")[0] in HANDLES} - refused
    assert answered == {"Graph.acting", "Graph.close", "Graph.entity"}  # two names, of who asks and for what
    assert "Entity.get" in refused


def test_arguments_are_checked_before_spark_is_asked() -> None:
    pytest.importorskip("pyspark")
    from omnigraph import pipeline
    from omnigraph.pipeline import analytics

    exported = [getattr(module, name) for module in (pipeline, analytics) for name in module.__all__]
    for function in (*exported, pipeline.Stream.wait):
        if not inspect.isfunction(function):
            continue
        for name, expected in expected_of(function).items():
            with pytest.raises(BadArgument, match=name) as refused:
                function(**{name: object()})
            assert expected in refused.value.message, function
    every = {
        name: list(inspect.signature(function).parameters)
        for name, function in vars(pipeline).items()
        if name in pipeline.__all__ and inspect.isfunction(function)
    }
    free = {
        name: sorted(set(names) - set(expected_of(getattr(pipeline, name)))) for name, names in every.items()
    }
    assert {name: names for name, names in free.items() if names} == {"load": ["data"]}


def test_the_error_names_the_parameter_what_it_takes_and_what_came() -> None:
    def declared(
        name: str, limit: Positive = 1, *, types: Iterable[str] = (), strategy: Take | None = None
    ) -> Any:
        return types

    example: Callable[..., Any] = checked(declared)
    assert list(example("a", types=(letter for letter in "xy"))) == ["x", "y"]  # read once, and handed on
    for args, options, message in (
        ((3,), {}, "argument 'name' must be text, not 3 (int)"),
        (("a\0b",), {}, "argument 'name' must be text without NUL (there is one at position 1)"),
        ((), {"name": "\ud800"}, "must be text without lone surrogates (there is one at position 0)"),
        (("a", 0), {}, "argument 'limit' must be a whole number of at least 1, not 0 (int)"),
        (("a", True), {}, "must be a whole number of at least 1, not True (bool)"),
        (("a", 2**63), {}, "must be a whole number of at most 64 bits, not 9223372036854775808"),
        (("a",), {"types": "xy"}, "must be a list, each item text, not 'xy' (str)"),
        (("a",), {"types": ["x", 3]}, "a list, each item text; item 1 must be text, not 3 (int)"),
        (("a",), {"strategy": "mine"}, "must be 'ours' or 'theirs' or None, not 'mine' (str)"),
    ):
        with pytest.raises(BadArgument) as refused:
            example(*args, **options)
        assert message in str(refused.value)
    with pytest.raises(TypeError):  # a signature is Python's to explain
        example()


def test_numbers_and_truths_of_numpy_are_taken_for_those_of_python(world: World) -> None:
    graph = world.graph
    number: Any
    for number in (np.int64(2), np.int32(2), np.uint8(2)):
        assert len(list(graph.commits.list(limit=number))) == 2
        assert graph.nodes("P", at=number).to_arrow().num_rows == 1
    number = np.int64(2**28)
    assert len(graph.query(READ, k="a", memory_bytes=number)) == 1
    assert graph.mutate(WRITE, k="c", n=3, dry_run=cast(Any, np.bool_(True))).commit is None
    number = np.float32(0)
    assert not graph.changes.wait(timeout=number).blocks
    for wrong in (np.float64(2), np.bool_(True), Decimal(2), np.uint64(2**64 - 1)):
        with pytest.raises(BadArgument, match="whole number"):
            graph.commits.list(limit=cast(Any, wrong))


def test_choices_that_are_no_list_are_refused_with_what_one_looks_like(world: World) -> None:
    with pytest.raises(BadArgument, match=r"resolutions.* must be a list, each item a Resolve or a mapping"):
        world.graph.merge(world.branch(), resolutions=cast(Any, {"id": "ours"}))


# -- finding the callables -----------------------------------------------------------------------------


def callables(world: World) -> dict[str, Callable[..., Any]]:
    """Return all public callables by name, bound to an object of their class."""
    exported = {name: getattr(og, name) for name in og.__all__}
    # The other classes are values that calls return or raise; nobody makes them.
    found = {
        name: one
        for name, one in exported.items()
        if inspect.isfunction(one) or one in (og.Graph, og.GraphError)
    }
    seen: set[str] = set()
    waiting: deque[Any] = deque([world.graph])
    waiting.extend(answer(call, world, name) for name, call in found.items())
    while waiting:
        value = waiting.popleft()
        kind = type(value)
        if not _ours(kind) or kind.__name__ in seen:
            continue
        seen.add(kind.__name__)
        for name, member in members(value):
            if inspect.isroutine(member) or member is value:
                found[name] = member
                waiting.extend(parts(answer(member, world, name)))
            else:
                waiting.extend(parts(member))
    return found


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of an object, and the object itself if it can be called."""
    kind = type(value)
    if "__call__" in vars(kind):
        yield kind.__name__, value
    fields = {*getattr(value, "__dict__", {}), *getattr(kind, "__slots__", ())}
    for name in sorted({*dir(kind), *fields}):
        if name.startswith("_") or isinstance(inspect.getattr_static(kind, name, None), classmethod):
            continue
        with suppress(GraphError):  # of a property whose time has not come
            yield f"{kind.__name__}.{name}", getattr(value, name)
    if isinstance(value, Iterable):
        yield f"{kind.__name__}.__iter__", value.__iter__


def _ours(kind: type) -> bool:
    return (
        kind.__module__.startswith("omnigraph.")
        and kind.__name__ not in INTERNAL
        and not issubclass(kind, Exception | Enum)
    )


def parts(value: Any) -> Iterator[Any]:
    """Yield a value and what it holds."""
    yield value
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | Iterator):
        yield from islice(value, 5)


def answer(function: Callable[..., Any], world: World, name: str) -> Any:
    """Return what a valid call gives; it shows that the row of the table is right."""
    if name in ("Graph.close", "Graph"):
        return None
    return called(function, valid(name, function, world))


def valid(name: str, function: Callable[..., Any], world: World) -> dict[str, Any]:
    """Return arguments of a valid call."""
    if name in CALLS:
        return CALLS[name](world)
    required = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _OPEN
    ]
    assert not required, f"{name} needs {required}: add a valid call of it to CALLS"
    return {}


_OPEN = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call with arguments by name; those that have only a place go there."""
    rest = dict(given)
    parameters = inspect.signature(function).parameters.values()
    placed = [
        rest.pop(one.name) for one in parameters if one.kind is one.POSITIONAL_ONLY and one.name in rest
    ]
    return function(*placed, **rest)


def wrong_arguments(function: Callable[..., Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield every parameter with every wrong value."""
    names = [one.name for one in inspect.signature(function).parameters.values() if one.kind not in _OPEN]
    if name in FORWARDS:
        names += list(inspect.signature(FORWARDS[name]).parameters)[2:]  # without self and the first
    for parameter in dict.fromkeys(names):
        for wrong in (*PLAIN, *NESTED, *KEYED):
            yield parameter, wrong


def outcome_of(function: Callable[..., Any], call: Mapping[str, Any]) -> Exception | None:
    """Call, and read some of what comes; return the error if there is one."""
    try:
        value = called(function, call)
        if isinstance(value, og.Graph):
            value.close()
        elif isinstance(value, Iterable):
            list(islice(value, 3))
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the test looks for)
        return error
    return None
