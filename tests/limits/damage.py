"""Damaged files: flip, cut, extend or empty one stored file of a graph, then do everything with the graph.

Run as a program, so that a crash or a hang of native code ends this process and not the tests:
python -m tests.limits.damage GRAPH SCRATCH FIRST LAST. Prints a line of JSON for each case before it begins
and one after it, so that whoever reads the output knows which case did not end.
"""

from __future__ import annotations

import faulthandler
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from tests.formats.make_graph import FIRST, document, edge, write
from tests.support.derived import EVERYTHING, small_tiers

VERIFY: tuple[Literal["first-read"], Literal["off"]] = ("first-read", "off")
HANG_S = 90.0  # a case takes a second; nothing waits for so long
ASK = """
query key() { match { $d: Document { slug: "d1" } } return { $d.text, $d.pages } }
query hop() { match { $d: Document  $d cites $e } return { $d.slug, $e.slug } order { $d.slug } }
query words() { match { $d: Document  search($d.text, "lake") } return { $d.slug } order { $d.slug } }
query near($v: Vector(2)) {
    match { $d: Document } return { $d.slug } order { nearest($d.place, $v) } limit 2
}
"""
MORE = [document(number, f"lake {number}", place=[number, 1], pages=number) for number in range(100, 140)]
CITES = [edge(f"c{n}", "Cites", f"d{n}", f"d{n + 1}", since=n) for n in range(100, 139)]
CHANGE = 'query q() { update Document set { pages: 77 } where slug = "d3" }'


# -- the graph -----------------------------------------------------------------------------------------


def make(address: Path) -> None:
    """Make a small graph that has a file of every kind."""
    with _every_file_derives(), og.init(address, FIRST, durability="os") as graph:
        write(graph)
        graph.load([*MORE, *CITES], mode="append")
        graph.optimize()
        graph.cleanup(keep=4, grace="0s", dry_run=False)


@contextmanager
def _every_file_derives() -> Iterator[None]:
    """Have derived files made and read of tables as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        small_tiers(patch, EVERYTHING)
        yield


def kinds(address: Path) -> dict[str, list[str]]:
    """Return the files of a graph by what they are."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(address.rglob("*")):
        if path.is_file():
            name = path.relative_to(address).as_posix()
            found[_kind(name)].append(name)
    return dict(sorted(found.items()))


def _kind(name: str) -> str:
    """Return the kind of a file: the folder that it lies in, without the ids of tables and chains."""
    parts = name.split("/")
    if parts[0] == "tables":
        return f"tables/{parts[2]}"
    return f"{parts[0]}/{parts[1] if len(parts) > 2 and parts[1].startswith('_') else '*'}"


# -- damage --------------------------------------------------------------------------------------------


def damaged(data: bytes, rnd: Random) -> tuple[str, bytes]:
    """Return a way to damage a file and what is left of it."""
    at = rnd.randrange(len(data)) if data else 0
    match rnd.randrange(8):
        case 0 | 1:
            flipped = bytearray(data or b"\0")
            flipped[at] ^= 1 << rnd.randrange(8)
            return f"bit at {at}", bytes(flipped)
        case 2:
            size = rnd.randrange(1, 17)
            return f"{size} bytes at {at}", data[:at] + rnd.randbytes(size) + data[at + size :]
        case 3:
            return f"cut at {at}", data[:at]
        case 4:
            return "emptied", b""
        case 5:
            return "extended", data + rnd.randbytes(rnd.randrange(1, 64))
        case 6:
            return f"zeros from {at}", data[:at] + bytes(len(data) - at)
        case _:
            tail = max(0, len(data) - rnd.randrange(1, 48))  # where footers are
            size = rnd.randrange(1, 9)
            return f"{size} bytes at {tail}", data[:tail] + rnd.randbytes(size) + data[tail + size :]


def spoil(address: Path, seed: int) -> str:
    """Damage one file of a graph; every kind has its turn. Return what was done."""
    rnd = Random(seed)
    by_kind = kinds(address)
    kind = list(by_kind)[seed % len(by_kind)]
    files = sorted(by_kind[kind], key=lambda name: (address / name).stat().st_mtime_ns)
    file = files[-1 - min(rnd.randrange(len(files)), rnd.randrange(len(files)))]  # rather what is newer
    how, content = damaged((address / file).read_bytes(), rnd)
    (address / file).write_bytes(content)
    return f"{file}: {how}"


# -- what is done with it --------------------------------------------------------------------------------


def reads(graph: Graph) -> dict[str, Callable[[], Any]]:
    """Return what is read, as plain values that can be compared."""
    return {
        "key": lambda: graph.query(ASK, query_name="key").to_json()["rows"],
        "hop": lambda: graph.query(ASK, query_name="hop").to_json()["rows"],
        "words": lambda: graph.query(ASK, query_name="words").to_json()["rows"],
        "near": lambda: graph.query(ASK, {"v": [0.0, 1.0]}, query_name="near").to_json()["rows"],
        "rows": lambda: graph.nodes("Document").to_arrow().sort_by("slug").to_pylist(),
        "tag": lambda: graph.nodes("Document", at="v2").to_arrow().sort_by("slug").to_pylist(),
        "branch": lambda: graph.nodes("Writer", branch="past").to_arrow().num_rows,
        "schema": lambda: graph.schema.show(),
        "entity": lambda: str(graph.entity("Document", "d1").get()),
        "diff": lambda: sorted(map(str, graph.diff("v2", "main"))),
    }


def chores(graph: Graph, scratch: Path, seed: int) -> dict[str, Callable[[], Any]]:
    """Return what is done besides: a listing, and some of what takes longer."""
    record = {"type": "Document", "data": {"slug": "new", "text": "t"}}
    longer: list[tuple[str, Callable[[], Any]]] = [
        ("mutate", lambda: graph.mutate(CHANGE)),
        ("load", lambda: graph.load([record], mode="merge", idempotency_key="load-1")),
        ("merge", lambda: graph.merge("grown")),
        ("optimize", graph.optimize),
        ("verify", lambda: graph.verify(history=True)),
        ("export", lambda: graph.export(scratch / "export", format="jsonl")),
        ("backup", lambda: graph.backup(scratch / "copy.og", durability="os")),
        ("clone", lambda: graph.clone(scratch / "clone.og", durability="os")),
        ("cleanup", lambda: graph.cleanup(keep=0, grace="0s", dry_run=False)),
        ("fix", lambda: graph.doctor(fix=True)),
        ("fork", lambda: graph.branches.create("forked")),
        ("delete", lambda: graph.branches.delete("past")),
        ("apply", lambda: graph.schema.apply(FIRST)),
        ("feed", lambda: graph.changes(start="beginning", limit=20)),
        ("baseline", lambda: list(graph.changes.baseline())),
    ]
    turns = Random(seed).sample(longer, 3)
    return {
        "commits": lambda: graph.commits.list(),
        "branches": lambda: graph.branches.list(counts=True),
        "tags": lambda: graph.tags.list(),
        **dict(turns),
    }


def outcome(step: Callable[[], Any]) -> tuple[str, Any]:
    """Run a step: "answer" and what it said, "refused" and the code, or "crash" and what was raised."""
    try:
        return "answer", step()
    except GraphError as error:
        return "refused", error.code
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        return "crash", f"{type(error).__name__}: {error}"[:300]


def examined(address: Path, scratch: Path, seed: int, truth: dict[str, Any]) -> dict[str, Any]:
    """Do everything with a damaged graph; return what crashed and what was wrong unnoticed."""
    crashes: dict[str, str] = {}
    wrong: list[str] = []
    seen: dict[str, int] = defaultdict(int)

    def note(name: str, found: tuple[str, Any]) -> tuple[str, Any]:
        seen[found[0]] += 1
        if found[0] == "crash":
            crashes[name] = found[1]
        return found

    for verify in VERIFY:
        opened = outcome(partial(og.connect, address, verify=verify, durability="os"))
        kind, graph = note(f"open {verify}", opened)
        if kind != "answer":
            continue
        with graph:
            for name, step in reads(graph).items():
                kind, answer = note(f"{name} {verify}", outcome(step))
                if kind == "answer" and answer != truth[name] and verify == "first-read":
                    wrong.append(name)
            if verify == "off":
                if wrong or seed % 5 == 0:  # it takes as long as all the others together
                    kind, report = note("doctor", outcome(partial(graph.doctor, deep=True)))
                    if kind == "refused" or (kind == "answer" and not report.ok):
                        wrong.clear()  # noticed
                for name, step in chores(graph, scratch, seed).items():
                    note(name, outcome(step))
    return {"crashes": crashes, "wrong": wrong, "seen": dict(seen)}


def main(base: Path, scratch: Path, first: int, last: int) -> None:
    """Run cases by their seeds."""
    with og.connect(base, durability="os") as graph:
        truth = {name: step() for name, step in reads(graph).items()}
    for seed in range(first, last):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        address = scratch / "graph.og"
        shutil.copytree(base, address)
        what = spoil(address, seed)
        print(json.dumps({"seed": seed, "what": what}), flush=True)
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        found = examined(address, scratch, seed, truth)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"seed": seed, **found}), flush=True)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    with _every_file_derives():
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
