"""Topology: stored adjacency, less what was deleted, plus what came since, is that of every version."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.derive import complete_adjacency
from omnigraph.engine.graph import Graph
from omnigraph.execution.adjacency import Adjacency
from omnigraph.execution.columns import ColumnCache
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.topology import Topologies, Topology
from tests.support.derived import small_tiers

SCHEMA = """
node Person { name: String @key  age: I32?  note: String? }
node City { name: String @key  note: String? }
edge Knows: Person -> Person { note: String? }
edge LivesIn: Person -> City
"""
STEPS = 60
LONG = "x" * 40


@pytest.fixture
def tiny_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled, and as large, after a few dozen rows."""
    small_tiers(monkeypatch)


class World:
    """A graph and a plain model of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph: Graph = og.init(str(folder / "g.og"), SCHEMA)
        self.branch = "main"
        self.people: dict[str, set[str]] = {"main": set()}
        self.cities: dict[str, set[str]] = {"main": set()}
        self.knows: dict[str, Counter[tuple[str, str]]] = {"main": Counter()}
        self.lives: dict[str, Counter[tuple[str, str]]] = {"main": Counter()}
        while len(self.people["main"]) < 60 or len(self.cities["main"]) < 30:
            self.add(60)
        self.edges(120)

    def step(self) -> None:
        """Do something at random."""
        kinds = [self.add, self.add, self.edges, self.edges, self.update, self.update_edges]
        kinds += [self.delete_node, self.delete_edges, self.again, self.derive, self.fork]
        self.random.choice(kinds)()

    def _names(self, count: int, letter: str) -> list[str]:
        return [f"{letter}{self.random.randrange(200):03d}" for _ in range(count)]

    def add(self, count: int = 0) -> None:
        """Make nodes, or make them anew."""
        count = count or self.random.choice([1, 3, 60])
        letter = self.random.choice("pc")
        names = sorted(set(self._names(count, letter)))
        kind = "Person" if letter == "p" else "City"
        rows = [{"type": kind, "data": {"name": name, "note": LONG}} for name in names]
        self.graph.load(rows, mode="merge", branch=self.branch)
        (self.people if letter == "p" else self.cities)[self.branch] |= set(names)

    def again(self) -> None:
        """Take a node away and make it again: the same id, another row."""
        people = sorted(self.people[self.branch])
        if people:
            name = self.random.choice(people)
            self.remove(name)
            self.graph.mutate(
                "query q($n: String) { insert Person { name: $n } }", n=name, branch=self.branch
            )
            self.people[self.branch].add(name)

    def edges(self, count: int = 0) -> None:
        """Make edges of both types, many of them from a few people."""
        people, cities = sorted(self.people[self.branch]), sorted(self.cities[self.branch])
        if not people or not cities:
            return
        count = count or self.random.choice([1, 2, 80])
        rows: list[dict[str, Any]] = []
        known, living = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for _ in range(count):
            source, target = self.random.choice(people[:20]), self.random.choice(people)
            rows.append({"edge": "Knows", "from": source, "to": target, "data": {"note": LONG}})
            known[(source, target)] += 1
            person, city = self.random.choice(people), self.random.choice(cities)
            rows.append({"edge": "LivesIn", "from": person, "to": city})
            living[(person, city)] += 1
        self.graph.load(rows, mode="append", branch=self.branch)
        self.knows[self.branch] += known
        self.lives[self.branch] += living

    def update(self) -> None:
        people = sorted(self.people[self.branch])
        for name in self.random.sample(people, min(len(people), self.random.choice([1, 1, 9]))):
            self.graph.mutate(
                "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }",
                n=name,
                a=self.random.randrange(100),
                branch=self.branch,
            )

    def update_edges(self) -> None:
        people = sorted(self.people[self.branch])
        if people:
            self.graph.mutate(
                'query q($n: String) { update Knows set { note: "new" } where from = $n }',
                n=self.random.choice(people[:20]),
                branch=self.branch,
            )

    def delete_node(self) -> None:
        people = sorted(self.people[self.branch])
        if people:
            self.remove(self.random.choice(people))

    def remove(self, name: str) -> None:
        self.graph.mutate("query q($n: String) { delete Person where name = $n }", n=name, branch=self.branch)
        self.people[self.branch].discard(name)
        for edges in (self.knows, self.lives):
            left = {pair: n for pair, n in edges[self.branch].items() if name not in pair}
            edges[self.branch] = Counter(left)

    def delete_edges(self) -> None:
        people = sorted(self.people[self.branch])
        if people:
            name = self.random.choice(people)
            self.graph.mutate(
                "query q($n: String) { delete Knows where to = $n }", n=name, branch=self.branch
            )
            left = {pair: n for pair, n in self.knows[self.branch].items() if pair[1] != name}
            self.knows[self.branch] = Counter(left)

    def derive(self) -> None:
        snapshot = self.graph.store.snapshot(self.branch)
        complete_adjacency(self.graph.store, self.catalog(), snapshot)

    def fork(self) -> None:
        if len(self.people) < 3:
            name = f"b{len(self.people)}"
            self.graph.branches.create(name, self.branch)
            for model in (self.people, self.cities):
                model[name] = set(model[self.branch])
            for edges in (self.knows, self.lives):
                edges[name] = Counter(edges[self.branch])
        self.branch = self.random.choice(sorted(self.people))

    def catalog(self) -> Any:
        snapshot = self.graph.store.snapshot(self.branch)
        return self.graph._catalogs.get(snapshot.schema)

    def topology(self, topologies: Topologies, edge: str) -> tuple[Topology, list[list[str]]]:
        """Return the topology of an edge type on the branch, and the ids of its ends by ordinal."""
        snapshot, catalog = self.graph.store.snapshot(self.branch), self.catalog()
        declared = next(e for e in catalog.edges if e.name == edge)
        tables = [
            EntityTable(catalog.table(t), t, snapshot.pin(t).version, self.graph.store.reads, ColumnCache())
            for t in (declared.id, declared.source, declared.target)
        ]
        names = []
        for table in tables[1:]:
            ids = [""] * table.span
            every = table.every()
            for ordinal, name in zip(every.tolist(), table.take("id", every).to_pylist(), strict=True):
                ids[ordinal] = name
            names.append(ids)
        return topologies.get(*tables), names


def seen(side: Adjacency, here: list[str], there: list[str]) -> Counter[tuple[str, str]]:
    """Return the pairs of one side, asked for node by node and all at once, which must agree."""
    living = np.array([n for n, name in enumerate(here) if name], dtype=np.int64)
    which, _, others = side.of(living)
    assert (np.diff(which) >= 0).all()
    pairs = Counter((here[living[w]], there[o]) for w, o in zip(which.tolist(), others.tolist(), strict=True))
    one_by_one = Counter(
        (here[node], there[other])
        for node in living.tolist()
        for other in side.of(np.array([node]))[2].tolist()
    )
    assert one_by_one == pairs
    offsets, lists = side.flat()
    flat = Counter(
        (here[node], there[other])
        for node in range(len(here))
        for other in lists[offsets[node] : offsets[node + 1]].tolist()
    )
    assert flat == pairs
    degrees = side.degrees.dense()
    assert side.degrees.of(living).tolist() == degrees[living].tolist()
    assert {here[n]: int(d) for n, d in enumerate(degrees) if d} == Counter(a for a, _ in pairs.elements())
    return pairs


def check(world: World, topologies: Topologies) -> None:
    """Compare every side of both edge types with the model."""
    for edge, model in (("Knows", world.knows), ("LivesIn", world.lives)):
        topology, (sources, targets) = world.topology(topologies, edge)
        expected = Counter({pair: n for pair, n in model[world.branch].items() if n})
        turned = Counter({(b, a): n for (a, b), n in expected.items()})
        assert seen(topology.forward, sources, targets) == expected
        assert seen(topology.backward, targets, sources) == turned
        assert seen(topology.forward_pairs, sources, targets) == Counter(expected.keys())
        assert seen(topology.backward_pairs, targets, sources) == Counter(turned.keys())
        for side in (topology.forward_pairs, topology.backward_pairs):
            offsets, lists = side.flat()
            assert all((np.diff(lists[a:b]) > 0).all() for a, b in pairwise(offsets))


@pytest.mark.usefixtures("tiny_tiers")
@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 8)),
    ],
)
def test_every_version_of_a_random_history_has_the_edges_of_the_model(tmp_path: Path, seed: int) -> None:
    """One set of caches for the whole history, so that what versions share is right in each of them."""
    world, topologies = World(tmp_path, seed), Topologies()
    based = 0
    with world.graph:
        for _ in range(STEPS):
            world.step()
            check(world, topologies)
            based += any(base.file is not None for base in topologies._bases.values())
        for branch in sorted(world.people):
            world.branch = branch
            check(world, Topologies())
    assert based, "no stored adjacency was ever used"
