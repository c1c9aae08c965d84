"""Random histories on three branches, with merges, beside a plain model: images and conflicts agree."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict
from tests.engine.merge.model import Image, Model
from tests.support.two_branches import SCHEMA, change, knows, person, put

BRANCHES = ["main", "left", "right"]
STEPS = 22
NAMES = ["a", "b", "c"]
EDGES = ["x", "y"]


class Run:
    """One history, in the engine and in the model."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph = graph
        self.random = random.Random(seed)
        self.model = Model(BRANCHES)
        self.log: list[str] = []
        for name in BRANCHES[1:]:
            graph.store.branches.create(name, "main")

    def step(self) -> None:
        act = self.random.choices(
            [
                self.put_node,
                self.put_edge,
                self.delete_node,
                self.delete_edge,
                self.merge,
                self.tidy,
                self.renew,
            ],
            [6, 4, 1, 1, 5, 1, 1],
        )[0]
        act(self.random.choice(BRANCHES))

    def put_node(self, branch: str) -> None:
        name = self.random.choice(NAMES)
        data = {"age": self.random.choice([1, 2, None]), "city": self.random.choice(["p", "q", None])}
        old = self.model.image(branch).get(("node", name), {"name": name, "age": None, "city": None})
        chosen = self.random.choice([data, {**old, "age": data["age"]}, {**old, "city": data["city"]}])
        record = {key: chosen[key] for key in ("age", "city")}
        self.log.append(f"put {name} {record} on {branch}")
        put(self.graph, branch, person(name, **record))
        self.model.commit(branch, {**self.model.image(branch), ("node", name): {"name": name, **record}})

    def put_edge(self, branch: str) -> None:
        there = [key[1] for key in self.model.image(branch) if key[0] == "node"]
        if not there:
            return
        edge, ends = self.random.choice(EDGES), self.random.choices(there, k=2)
        since = self.random.choice([1, 2])
        self.log.append(f"put {edge} {ends} {since} on {branch}")
        put(self.graph, branch, knows(edge, *ends, since=since, note=None))
        values = {"src": ends[0], "dst": ends[1], "since": since, "note": None}
        self.model.commit(branch, {**self.model.image(branch), ("edge", edge): values})

    def delete_node(self, branch: str) -> None:
        name = self.random.choice(NAMES)
        image = self.model.image(branch)
        if ("node", name) not in image:
            return
        self.log.append(f"delete {name} on {branch}")
        change(self.graph, branch, f'delete Person where name = "{name}"')
        left = {
            key: one
            for key, one in image.items()
            if key != ("node", name) and name not in (one.get("src"), one.get("dst"))
        }
        self.model.commit(branch, left)

    def delete_edge(self, branch: str) -> None:
        image = self.model.image(branch)
        edges = sorted(key for key in image if key[0] == "edge")
        if not edges:
            return
        source = image[self.random.choice(edges)]["src"]
        self.log.append(f"delete edges of {source} on {branch}")
        change(self.graph, branch, f'delete Knows where from = "{source}"')
        left = {key: one for key, one in image.items() if not (key[0] == "edge" and one["src"] == source)}
        self.model.commit(branch, left)

    def merge(self, target: str) -> None:
        source = self.random.choice([name for name in BRANCHES if name != target])
        self.log.append(f"merge {source} into {target}")
        wanted = self.model.merge(source, target)
        try:
            found: Any = self.graph.merge(source, target).outcome.value
        except MergeConflict as error:
            found = {(one.kind.value, one.entity_id) for one in error.conflicts}
        assert found == wanted, self.told()

    def tidy(self, branch: str) -> None:
        """Maintenance changes no outcome."""
        maintain = self.random.choice([self.graph.ensure_indexes, self.graph.optimize])
        self.log.append(f"{maintain.__name__} {branch}")
        if maintain(branch=branch).commit_id is not None:
            self.model.commit(branch, self.model.image(branch))

    def renew(self, branch: str) -> None:
        """Delete a branch and make it again from another."""
        if branch == "main":
            return
        source = self.random.choice([name for name in BRANCHES if name != branch])
        try:
            self.graph.store.branches.delete(branch)
        except og.GraphError:
            return  # another one was forked from it
        self.log.append(f"renew {branch} from {source}")
        self.graph.store.branches.create(branch, source)
        self.model.fork(branch, source)

    def check(self) -> None:
        for branch in BRANCHES:
            assert self.stored(branch) == self.model.image(branch), f"{branch}: {self.told()}"

    def stored(self, branch: str) -> Image:
        nodes = self.graph.nodes("Person", branch=branch).to_arrow().to_pylist()
        edges = self.graph.edges("Knows", branch=branch).to_arrow().to_pylist()
        found = {("node", row.pop("id")): row for row in nodes}
        return found | {("edge", row.pop("id")): row for row in edges}

    def told(self) -> str:
        return "\n".join(self.log)


def play(place: Path, seed: int) -> None:
    with og.init(place, SCHEMA, durability="os") as graph:
        run = Run(graph, seed)
        for _ in range(STEPS):
            run.step()
        run.check()
    shutil.rmtree(place)


@pytest.mark.parametrize("seed", range(24))
def test_history(tmp_path: Path, seed: int) -> None:
    play(tmp_path / "graph.og", seed)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_five_hundred_histories(tmp_path: Path) -> None:
    for seed in range(1_000, 1_500):
        play(tmp_path / "graph.og", seed)
