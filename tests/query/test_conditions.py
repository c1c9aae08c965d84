"""One rule for conditions: reads, updates and deletes keep the rows that the reference keeps."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.query import bind_params, compile_query
from omnigraph.catalog.query.statements import CheckedRead
from omnigraph.execution.conditions import MOST_TESTS, StoredRows, pruning
from omnigraph.storage.tables.keys import PROBE_LIMIT
from omnigraph.surfaces.cli.app import main
from tests.query.plain import PlainGraph, Thing
from tests.query.reference import answer
from tests.query.worlds import POOLS

PROPERTIES = {"n": "I32", "big": "I64", "f": "F64", "s": "String", "b": "Bool", "d": "Date"}
SCHEMA = """
node P {
    k: I32 @key  n: I32? @index  big: I64?  f: F64? @index  s: String? @index  b: Bool?  d: Date? @index
    mark: I64?
}
"""
ROWS = 24
CONDITIONS = 12


@pytest.mark.parametrize("seed", range(4))
def test_a_condition_keeps_the_same_rows_in_reads_and_writes(seed: int) -> None:
    check(Random(seed))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 400))
def test_random_conditions_keep_the_same_rows_in_reads_and_writes(seed: int) -> None:
    check(Random(seed))


def check(rnd: Random) -> None:
    """Ask conditions before and after indexes are built; then delete by one of them."""
    rows = [{"k": k, **{name: value(rnd, kind) for name, kind in PROPERTIES.items()}} for k in range(ROWS)]
    with loaded(rows) as graph:
        for number in range(CONDITIONS):
            if number == CONDITIONS // 2:
                graph.ensure_indexes()
            condition, params = random_condition(rnd)
            expected = kept(graph, rows, condition, params)
            note = f"{condition} {params}"
            assert marked(graph, number, condition, params) == expected, note
            assert marked_while_pending(graph, rows, condition, params) == expected, note
        gone = graph.mutate(f"query d({declared(params)}) {{ delete P where {bare(condition)} }}", params)
        assert gone.affected_nodes == len(expected), note


@contextmanager
def loaded(rows: list[dict[str, Any]]) -> Iterator[Graph]:
    with TemporaryDirectory() as folder, og.init(Path(folder) / "g.og", SCHEMA, durability="os") as graph:
        graph.load([{"type": "P", "data": row} for row in rows], mode="append")
        yield graph


def kept(graph: Graph, rows: list[dict[str, Any]], condition: str, params: dict[str, Any]) -> set[int]:
    """The keys that a read gives, in memory and by a scan, which must be those of the reference."""
    text = f"query q({declared(params)}) {{ match {{ $p: P  {condition} }} return {{ $p.k }} }}"
    read = compile_query(text, graph.schema.catalog("main"))
    assert isinstance(read, CheckedRead)
    plain = PlainGraph({"P": [Thing("P", str(row["k"]), {**row, "d": days(row["d"])}) for row in rows]})
    expected = {row[0] for row in answer(read, plain, bind_params(read.parameters, params))}
    for rules in (None, frozenset[str]()):
        found = graph._query.run(text, params, rules=rules)
        assert {row["p.k"] for row in found} == expected, f"{text} {params} {rules}"
    return expected


def marked(graph: Graph, number: int, condition: str, params: dict[str, Any]) -> set[int]:
    """The keys of the stored rows that an update finds."""
    graph.mutate(
        f"query u({declared(params)}) {{ update P set {{ mark: {number} }} where {bare(condition)} }}", params
    )
    found = graph.query(f"query q() {{ match {{ $p: P {{ mark: {number} }} }} return {{ $p.k }} }}")
    return {row["p.k"] for row in found}


def marked_while_pending(
    graph: Graph, rows: list[dict[str, Any]], condition: str, params: dict[str, Any]
) -> set[int]:
    """The keys of rows that the same mutation has inserted, and an update finds among them."""
    inserts = " ".join(f"insert P {{ {fields(row)} }}" for row in rows)
    text = f"query u({declared(params)}) {{ {inserts} update P set {{ mark: -1 }} where {bare(condition)} }}"
    graph.mutate(text, params)
    found = graph.query("query q() { match { $p: P { mark: -1 } } return { $p.k } }")
    return {row["p.k"] for row in found}


# -- random conditions


def value(rnd: Random, kind: str) -> Any:
    return None if rnd.random() < 0.25 else rnd.choice(POOLS[kind])


def random_condition(rnd: Random) -> tuple[str, dict[str, Any]]:
    params: dict[str, Any] = {}
    return _condition(rnd, params, 0), params


def _condition(rnd: Random, params: dict[str, Any], depth: int) -> str:
    if depth < 3 and rnd.random() < 0.5:
        parts = [_condition(rnd, params, depth + 1) for _ in range(rnd.randint(2, 3))]
        return rnd.choice(
            [f"({' and '.join(parts)})", f"({' or '.join(parts)})", f"not({parts[0]})", f"not({parts[0]})"]
        )
    name, kind = rnd.choice([*PROPERTIES.items(), ("k", "I32")])
    match rnd.choice(("compare", "compare", "in", "in", "null", "param")):
        case "compare":
            other = rnd.choice(["0.5", "-1", "99999999999"]) if kind in ("I32", "I64", "F64") else None
            right = other if other and rnd.random() < 0.3 else literal(rnd.choice(POOLS[kind]), kind)
            return f"$p.{name} {rnd.choice(['=', '!=', '<', '<=', '>', '>='])} {right}"
        case "in":
            items = [rnd.choice(POOLS[kind]) for _ in range(rnd.randint(0, 3))]
            if rnd.random() < 0.5:
                return f"$p.{name} in [{', '.join(literal(item, kind) for item in items)}]"
            return f"$p.{name} in {_param(params, f'[{kind}]?', None if rnd.random() < 0.3 else items)}"
        case "param":
            return f"$p.{name} {rnd.choice(['=', '!=', '<'])} {_param(params, f'{kind}?', value(rnd, kind))}"
        case _:
            return f"$p.{name} is {rnd.choice(['', 'not '])}null"


def _param(params: dict[str, Any], kind: str, given: Any) -> str:
    name = f"x{len(params)}_{kind.strip('[]?')}{'_list' if kind.startswith('[') else ''}"
    params[name] = given
    return f"${name}"


def declared(params: dict[str, Any]) -> str:
    kinds = ((name, name.split("_")[1], name.endswith("_list")) for name in params)
    return ", ".join(f"${name}: [{kind}]?" if listed else f"${name}: {kind}?" for name, kind, listed in kinds)


def bare(condition: str) -> str:
    return condition.replace("$p.", "")


def fields(row: dict[str, Any]) -> str:
    kinds = {"k": "I32", **PROPERTIES}
    return ", ".join(f"{name}: {literal(row[name], kind)}" for name, kind in kinds.items())


def literal(stored: Any, kind: str) -> str:
    match stored:
        case None:
            return "null"
        case bool():
            return "true" if stored else "false"
        case str():
            return f'date("{stored}")' if kind == "Date" else f'"{stored}"'
        case _:
            return str(stored)


def days(text: str | None) -> int | None:
    return None if text is None else pa.scalar(text).cast(pa.date32()).value


# -- long lists and chains

LISTED = 40  # rows, every second of which is in the lists
WORDS = [f"c{2 * number}" for number in range(100_000)]
IN_READS = {
    "a list": "$p.c in $xs",
    "the keys": "$p.k in $xs",
    "a negated list": "not($p.c in $xs) and $p.c < $first",
    "a list that contains": "$xs contains $p.c",
    "a list beside another condition": "$p.c in $xs and $p.n >= 0",
    "a list or another condition": "$p.c in $xs or $p.n < 0",
    "a block": "exists { $p.c in $xs }",
    "two lists": "$p.c in $xs  $p.k in $xs",
}
IN_WRITES = {
    "a list": "c in $xs",
    "the keys": "k in $xs",
    "a negated list": "not(not(c in $xs))",
    "a list beside another condition": "n >= 0 and c in $xs",
    "a list or another condition": "c in $xs or n < 0",
}


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    schema = "node P { k: String @key  c: String?  n: I64?  mark: I64? }  edge Knows: P -> P"
    with og.init(tmp_path_factory.mktemp("long") / "g.og", schema, durability="os") as graph:
        names = [f"c{number}" for number in range(LISTED)]
        rows = [{"type": "P", "data": {"k": name, "c": name, "n": place}} for place, name in enumerate(names)]
        graph.load([*rows, {"edge": "Knows", "from": "c0", "to": "c1"}], mode="append")
        yield graph


@pytest.mark.parametrize("place", IN_READS)
def test_a_read_takes_a_list_of_any_length(listed: Graph, place: str) -> None:
    text = f"match {{ $p: P  {IN_READS[place]} }} return {{ count($p) as n }}"
    found = listed.query(f"query q($xs: [String], $first: String) {{ {text} }}", xs=WORDS, first="d")

    assert found.one()["n"] == LISTED // 2


@pytest.mark.parametrize("place", IN_WRITES)
def test_a_write_takes_a_list_of_any_length(listed: Graph, place: str) -> None:
    text = f"query u($xs: [String]) {{ update P set {{ mark: 1 }} where {IN_WRITES[place]} }}"

    assert listed.mutate(text, xs=WORDS).affected_nodes == LISTED // 2


def test_a_list_of_keys_is_looked_up(listed: Graph) -> None:
    text = "query q($xs: [String]) { match { $p: P  $p.k in $xs } return { $p.k } }"

    assert "look up $p: P by keys" in str(listed.explain(text, xs=WORDS))


def test_ends_of_edges_take_a_list_of_any_length(listed: Graph) -> None:
    listed.branches.create("less")
    text = "query d($xs: [String]) { delete Knows where from in $xs and not(to in $xs) }"

    assert listed.mutate(text, xs=WORDS, branch="less").affected_edges == 1


def test_the_command_line_takes_a_list_of_any_length(
    listed: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "params.json").write_text(json.dumps({"xs": WORDS}))
    (tmp_path / "q.gq").write_text("query q($xs: [String]) { match { $p: P  $p.c in $xs } return { $p.k } }")
    words = ["query", listed.uri, "--query", tmp_path / "q.gq", "--params-file", tmp_path / "params.json"]

    assert main([*map(str, words), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == LISTED // 2


def test_a_query_of_spark_takes_a_list_of_any_length(listed: Graph) -> None:
    """As the task of an executor runs it; no session is needed for that."""
    source = pytest.importorskip("omnigraph.pipeline.reading.query")
    text = "query q($xs: [String]) { match { $p: P  $p.c in $xs } return { $p.k } }"
    query = source.query_of({"uri": listed.uri, "query": text, "params": json.dumps({"xs": WORDS})})
    there = pickle.loads(pickle.dumps(query))

    assert sum(batch.num_rows for batch in there.rows()) == LISTED // 2


CHAINS = {
    "equal to one of many": (" or ", '{p}c = "c{i}"', LISTED),
    "unequal to all of many": (" and ", '{p}c != "c{i}"', 0),
    "any of many ranges": (" or ", "{p}n > {i}", LISTED - 1),
    "all of many ranges": (" and ", "{p}n >= -{i}", LISTED),
    "any of many pairs": (" or ", '({p}c = "c{i}" and {p}n >= {i})', LISTED),
}


@pytest.mark.parametrize("length", [1_000, pytest.param(10_000, marks=[pytest.mark.full])])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_any_length_answers(listed: Graph, chain: str, length: int) -> None:
    word, part, expected = CHAINS[chain]
    in_read = word.join(part.format(p="$p.", i=i) for i in range(length))
    in_write = word.join(part.format(p="", i=i) for i in range(length))
    found = listed.query(f"query q() {{ match {{ $p: P  {in_read} }} return {{ count($p) as n }} }}")
    clauses = listed.query(f"query q() {{ match {{ $p: P  ({in_read}) }} return {{ count($p) as n }} }}")
    written = listed.mutate(f"query u() {{ update P set {{ mark: 2 }} where {in_write} }}")

    assert (found.one()["n"], clauses.one()["n"], written.affected_nodes) == (expected,) * 3


def test_as_many_clauses_as_one_likes(listed: Graph) -> None:
    clauses = " ".join(f'$p.n >= -{i} $p.c != "x{i}" $q.n >= $p.n - {i}' for i in range(500))
    found = listed.query(f"query q() {{ match {{ $p: P $q: P {clauses} }} return {{ count($p) as n }} }}")

    assert found.one()["n"] == LISTED * (LISTED + 1) // 2


LONG_TEXTS: dict[str, Callable[[int], str]] = {
    "list": lambda n: f"$p.c in {json.dumps(WORDS[:n])}",
    "or": lambda n: " or ".join(f'$p.c = "c{i}"' for i in range(n)),
    "ranges": lambda n: " or ".join(f"$p.n > {i}" for i in range(n)),
    "clauses": lambda n: " ".join(f"$p.n > {i}" for i in range(n)),
}


@pytest.mark.parametrize("form", LONG_TEXTS)
def test_work_grows_with_the_length_of_a_condition_and_not_faster(listed: Graph, form: str) -> None:
    """Counted in calls, which do not depend on the machine."""
    steps = []
    for length in (100, 200, 800):  # at first some things are made once for all
        text = f"query q() {{ match {{ $p: P  {LONG_TEXTS[form](length)} }} return {{ $p.k }} }}"
        steps.append(calls(partial(listed.query, text)))

    assert steps[2] < 4.2 * steps[1]


def calls(action: Callable[[], object]) -> int:
    """Return how many functions an action calls in this thread."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


# -- what a scan is given


@pytest.mark.parametrize(
    ("condition", "prunes"),
    [
        ("$p.n = 1", True),
        ("$p.n = 1 or $p.big = 2", True),
        ("not($p.n = 1 and $p.s = $p.s)", False),  # of the second part a scan knows nothing
        ("$p.n = 1 and $p.s = $p.s", True),
        (" or ".join(f"($p.n = {i} and $p.big > {i})" for i in range(1_000)), False),
        (" and ".join(f"$p.n > {i}" for i in range(1_000)), True),
        (" or ".join(f"$p.n = {i}" for i in range(PROBE_LIMIT)), True),
        (" or ".join(f"$p.n = {i}" for i in range(PROBE_LIMIT + 1)), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_scan_is_given_few_tests_whatever_the_length_of_a_condition(condition: str, prunes: bool) -> None:
    """Its expressions are walked recursively by engines that end the process when the stack does."""
    with loaded([]) as graph:
        text = f"query q() {{ match {{ $p: P  {condition} }} return {{ $p.k }} }}"
        read = compile_query(text, graph.schema.catalog("main"))
    assert isinstance(read, CheckedRead)
    (_, clause) = read.clauses
    found = pruning([clause.condition], StoredRows({}, 0))  # type: ignore[union-attr]

    assert (found is not None) == prunes
    assert found is None or found.tests <= MOST_TESTS
