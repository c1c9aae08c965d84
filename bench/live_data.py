"""The data of `live.py`: persons who know each other, as Parquet, made once for each size in a folder.

Skewed: the rank of an end of an edge is `nodes * u ** (1 / a)` with u uniform, a = 0.336 for sources and
0.35 for targets, so that the first in rank draws `edges * nodes ** -a` edges; without pairs that were drawn
before, the largest out-degree is about 79,000 at 1,000,000 nodes and 10,000,000 edges. Who is popular as a
source and who as a target is drawn independently. Uniform: each end is any person. No pair knows each other
twice and nobody knows himself, so that walks and pairs of nodes are counted alike.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FORMAT = 8  # of the generator: data of another one is made again
FACTS = "facts.json"
SKEW = (0.336, 0.35)  # of sources and of targets
CITIES = 200
NEIGHBOURS = (20, 200, 1_000)  # about so many do the persons know from whom hops start
SAMPLES = 512

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """What the questions need to know of the data."""

    folder: str
    nodes: int
    edges: int
    degrees: str
    largest: int
    """The largest out-degree."""
    hub: str
    """Who has it."""
    starts: dict[str, list[str]]
    """By `NEIGHBOURS`: persons who know about so many others, who in turn know not unusually many."""
    pairs: list[list[str]]
    """Two persons each, for shortest paths."""
    ties: list[list[str]]
    """Edges that may be deleted: their ends are in no other list."""
    persons: list[str]
    """Persons who may be changed or deleted: they are in no other list, and no start knows them."""
    neighbours: int = NEIGHBOURS[0]
    """Which of the starts are asked about."""

    @property
    def keys(self) -> list[str]:
        """The persons from whom hops start."""
        return self.starts[str(self.neighbours)]

    def files(self, *, unique: bool = False) -> dict[str, str]:
        """Return the Parquet file of each type; `unique`: persons with an address of their own."""
        person = "Reachable" if unique else "Person"
        return {"Person": f"{self.folder}/{person}.parquet", "Knows": f"{self.folder}/Knows.parquet"}

    @property
    def label(self) -> str:
        """Return what a table is headed with."""
        return (
            f"{self.nodes:,} nodes, {self.edges:,} edges, {self.degrees} degrees (largest {self.largest:,}), "
            f"starts that know {self.neighbours}"
        )


def make(cache: Path, nodes: int, edges: int, degrees: str, neighbours: int) -> Facts:
    """Return the data of one size; make it if it is not there."""
    folder = cache / f"{degrees}-{nodes}-{edges}"
    if (there := read(folder, neighbours)) is not None:
        return there
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(17)
    names = _names(nodes)
    source, target = _pairs(random, nodes, edges, degrees)
    persons = {
        "name": names,
        "age": pa.array(random.integers(0, 100, nodes), pa.int32()),
        "city": pa.array([f"city-{n:03}" for n in range(CITIES)]).take(
            pa.array(random.integers(0, CITIES, nodes))
        ),
    }
    pq.write_table(pa.table(persons), folder / "Person.parquet")
    addresses = pc.binary_join_element_wise(names, "@example.org", "")
    pq.write_table(pa.table({**persons, "email": addresses}), folder / "Reachable.parquet")
    ends = {
        "from": names.take(pa.array(source)),
        "to": names.take(pa.array(target)),
        "since": pa.array(random.integers(1990, 2026, edges), pa.int32()),
    }
    pq.write_table(pa.table(ends), folder / "Knows.parquet")
    made = _facts(str(folder), random, nodes, source, target, degrees)
    (folder / FACTS).write_text(json.dumps({"format": FORMAT, "facts": asdict(made)}))
    return replace(made, neighbours=neighbours)


def read(folder: Path, neighbours: int) -> Facts | None:
    """Return the facts of data that was made before, or None."""
    facts = folder / FACTS
    if not facts.is_file() or (stored := json.loads(facts.read_text()))["format"] != FORMAT:
        return None
    return Facts(**{**stored["facts"], "folder": str(folder), "neighbours": neighbours})


def _names(nodes: int) -> Any:
    """Return keys of ten characters."""
    digits = pc.utf8_lpad(pc.cast(pa.array(np.arange(nodes)), pa.string()), 9, "0")
    return pc.binary_join_element_wise("p", digits, "")


def _pairs(random: np.random.Generator, nodes: int, edges: int, degrees: str) -> tuple[Numbers, Numbers]:
    """Draw both ends of every edge."""
    ranks = [random.permutation(nodes), random.permutation(nodes)]

    def draw(which: int, count: int) -> Numbers:
        if degrees == "uniform":
            return random.integers(0, nodes, count)
        places: Numbers = ranks[which][(nodes * random.power(SKEW[which], count)).astype(np.int64)]
        return places

    pairs: Numbers = np.zeros(0, np.int64)
    while len(pairs) < edges:
        if edges > nodes * (nodes - 1) // 4:
            raise SystemExit(f"{edges} edges are too many for {nodes} nodes: each pair is drawn once")
        count = (edges - len(pairs)) * 21 // 20 + 1000
        source, target = draw(0, count), draw(1, count)
        drawn = (source * nodes + target)[source != target]
        pairs = np.sort(np.concatenate([pairs, drawn]))
        pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
    pairs = random.permutation(pairs)[:edges]
    return pairs // nodes, pairs % nodes


def _facts(
    folder: str, random: np.random.Generator, nodes: int, source: Numbers, target: Numbers, degrees: str
) -> Facts:
    """Choose the persons and edges that are asked about and changed."""

    def name(person: int) -> str:
        return f"p{person:09}"

    out, into = np.bincount(source, minlength=nodes), np.bincount(target, minlength=nodes)
    second = np.bincount(source, weights=out[target], minlength=nodes)  # walks of two hops
    starts = {number: _starts(out, second, number) for number in NEIGHBOURS}
    keys = np.concatenate(list(starts.values()))
    hub = int(np.argmax(out))
    asked = np.concatenate([keys, [hub]])
    few = np.flatnonzero((out > 0) & (into > 0) & (out + into < 40))
    few = few[
        ~np.isin(few, np.concatenate([asked, target[np.isin(source, keys)]]))
    ]  # a new edge makes no pair twice
    few = random.permutation(few)
    ends, persons = few[:40], few[40 : 40 + min(SAMPLES, len(few) // 4)]
    if len(persons) < 16:
        raise SystemExit(f"{nodes} nodes and {len(source)} edges are too few to choose from")
    tied = np.flatnonzero(~np.isin(source, np.concatenate([asked, ends, persons])))
    tied = tied[~np.isin(target[tied], np.concatenate([asked, ends, persons]))]
    tied = random.permutation(tied)[:SAMPLES]
    return Facts(
        folder=folder,
        nodes=nodes,
        edges=len(source),
        degrees=degrees,
        largest=int(out[hub]),
        hub=name(hub),
        starts={str(number): [name(person) for person in chosen] for number, chosen in starts.items()},
        pairs=[[name(a), name(b)] for a, b in zip(ends[::2], ends[1::2], strict=False)],
        ties=[[name(a), name(b)] for a, b in zip(source[tied], target[tied], strict=True)],
        persons=[name(person) for person in persons],
    )


def _starts(out: Numbers, second: Numbers, neighbours: int) -> Numbers:
    """Return persons of about one degree whose walks of two hops are usual for it."""
    nearest = np.argsort(np.abs(out - neighbours), kind="stable")[: max(64, len(out) // 200)]
    nearest = nearest[np.abs(out[nearest] - neighbours) <= np.abs(out[nearest[31]] - neighbours)]
    usual = np.median(second[nearest])
    chosen: Numbers = nearest[np.argsort(np.abs(second[nearest] - usual), kind="stable")[:32]]
    return chosen
