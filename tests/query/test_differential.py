"""The engine answers as the reference does, on random graphs and reads, in every way of reading."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.query import bind_params, compile_query
from omnigraph.catalog.query.statements import CheckedRead
from omnigraph.execution.plan.rules import RULES
from tests.query.plain import PlainGraph
from tests.query.reference import answer
from tests.query.texts import Text, random_text
from tests.query.worlds import SCHEMA, World, random_world
from tests.support.derived import EVERYTHING, derived_files, small_tiers, spoil

QUERIES = 6  # for each graph
Traversal = Literal["auto", "lookup", "csr"]
Way = tuple[Traversal, frozenset[str] | None]
TRAVERSALS: tuple[Traversal, ...] = ("auto", "lookup", "csr")
EVERY_WAY: tuple[Way, ...] = tuple(product(TRAVERSALS, (None, frozenset[str]())))
SOME_WAYS = (EVERY_WAY[0], EVERY_WAY[2], EVERY_WAY[5])
INDEXED_WAYS: tuple[Way, ...] = (("auto", None), ("lookup", frozenset()))
ONE_RULE_OFF: tuple[Way, ...] = tuple(("auto", frozenset(RULES.keys() - {rule})) for rule in RULES)


@pytest.mark.parametrize("seed", range(15))
def test_engine_agrees_with_the_reference(seed: int) -> None:
    check(Random(seed), (*SOME_WAYS, *ONE_RULE_OFF))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1_000, 2_000))
def test_engine_agrees_with_the_reference_in_every_way(seed: int) -> None:
    check(Random(seed), (*EVERY_WAY, *ONE_RULE_OFF))


# -- with derived files present, absent, partial and damaged


STATES: dict[str, tuple[str, ...]] = {
    "present": (),
    "absent": ("delete_all",),
    "partial": ("delete",),
    "damaged": ("flip", "scramble"),
    "traded": ("swap",),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("state", STATES)
def test_engine_agrees_whatever_became_of_derived_files(
    monkeypatch: pytest.MonkeyPatch, state: str, seed: int
) -> None:
    check_derived(Random(f"{state} {seed}"), monkeypatch, state)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1_000, 1_100))
@pytest.mark.parametrize("state", STATES)
def test_engine_agrees_whatever_became_of_derived_files_in_every_way(
    monkeypatch: pytest.MonkeyPatch, state: str, seed: int
) -> None:
    check_derived(Random(f"{state} {seed}"), monkeypatch, state, EVERY_WAY)


def check_derived(
    rnd: Random, monkeypatch: pytest.MonkeyPatch, state: str, ways: Iterable[Way] = SOME_WAYS
) -> None:
    """Ask some reads of a graph in which every file has derived ones, before and after they are spoilt."""
    small_tiers(monkeypatch, EVERYTHING, few=rnd.choice([1, 30]), cheap=rnd.choice([0, 60]))
    world = random_world(rnd)
    texts = [random_text(rnd) for _ in range(QUERIES)]
    states = {"main": world.plain, "side": world.plain_branch}
    with opened(world) as graph:
        if rnd.random() < 0.5:
            for branch in states:
                graph.ensure_indexes(branch=branch)
        if world.main:
            assert derived_files(graph.uri)
        asked = [(text, branch) for text in texts for branch in states]
        for text, branch in asked if rnd.random() < 0.5 else asked[:2]:
            compare(graph, text, branch, states[branch], ways)
        spoil(graph.uri, rnd, STATES[state])
        with og.connect(graph.uri) as fresh:
            for (text, branch), reader in product(asked, (graph, fresh)):
                compare(reader, text, branch, states[branch], ways)


# -- one world


def check(rnd: Random, ways: Iterable[Way] = EVERY_WAY) -> None:
    """Ask some reads of main and of a branch, in several ways; then again, with indexes."""
    world = random_world(rnd)
    texts = [random_text(rnd) for _ in range(QUERIES)]
    states = {"main": world.plain, "side": world.plain_branch}
    with opened(world) as graph:
        for text, branch in product(texts, states):
            compare(graph, text, branch, states[branch], ways)
        for branch in states:
            made = rnd.choice([graph.ensure_indexes, graph.optimize])(branch=branch)
            rows = sum(pin.rows for pin in graph.store.snapshot(branch).state.pins.values())
            assert (made.commit_id is not None) == (rows > 0)
            assert not any(one.error for one in made.types)
        for text, branch in product(texts, states):
            compare(graph, text, branch, states[branch], INDEXED_WAYS)


@contextmanager
def opened(world: World) -> Iterator[Graph]:
    """Load a world: some of it on main, the rest on a branch, where some nodes are deleted at last."""
    with TemporaryDirectory() as folder:
        graph = og.init(Path(folder) / "graph.og", SCHEMA, durability="os")
        with graph:
            if world.main:
                graph.load(world.main, mode="append")
            graph.store.branches.create("side", "main")
            if world.branch:
                graph.load(world.branch, mode="append", branch="side")
            for name in world.deleted:
                graph.mutate("query d($n: String) { delete A where name = $n }", n=name, branch="side")
            yield graph


def compare(graph: Graph, text: Text, branch: str, plain: PlainGraph, ways: Iterable[Way]) -> None:
    """Assert that every way of reading gives the rows of the reference."""
    read = compile_query(text.gq, graph.schema.catalog(branch))
    assert isinstance(read, CheckedRead)
    expected = answer(read, plain, bind_params(read.parameters, text.params))
    for traversal, rules in ways:
        result = graph._query.run(text.gq, text.params, branch=branch, traversal=traversal, rules=rules)
        found = [list(row.values()) for row in result.to_json()["rows"]]
        off = sorted(RULES.keys() - (RULES.keys() if rules is None else rules))
        way = f"{branch}, {traversal}, without the rules {off}"
        assert alike(expected, found), report(text, way, expected, found)


def alike(expected: Any, found: Any) -> bool:
    """Compare JSON values: kinds and order must agree, floats up to the last digits."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(alike, expected, found))
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and list(expected) == list(found)
            and alike([*expected.values()], [*found.values()])
        )
    return type(expected) is type(found) and bool(expected == found)


def report(text: Text, way: str, expected: list[list[Any]], found: list[list[Any]]) -> str:
    """Return what differs, for a reader."""
    lines = [text.gq, json.dumps(text.params), way, "expected:"]
    lines += [f"  {row}" for row in expected]
    lines += ["found:", *(f"  {row}" for row in found)]
    return "\n".join(lines)
