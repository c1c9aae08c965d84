"""A live graph beside Ladybug: in a new process, after a write, warm, and as it grows.

    python bench/live.py [PART ...] [--nodes 1000000 --edges 10000000 --degrees skewed] [--json]

Every figure is a ratio of two that were taken in one run on the same data. Parts, all of them when left out:

    load      ours beside the COPY of Kuzu 0.11.3 (the harder bar) and of Ladybug, from the same Parquet files
    new       after a load and nothing else, a fresh process for each first query: open, first query, and
              from the start of the process with all imports, beside `import lance` of the same run
    after     each query first after a one-row write, and warm after it, for each kind of write; then write
              an edge, read one hop and two, again and again, beside Ladybug
    warm      every query warm, run each time; beside it asked again (we keep small answers) and, of the
              peer, as Python's lists (quicker for few rows than Arrow); triangles and shortest paths on a
              tenth of the edges; the answers must agree
    commits   one-row validated commits (a node with a unique property and an edge): CPU in a graph of 1,000
              nodes and in the whole one; p50 with sync beside the floor; thousands in one process, with
              time, bytes and resident size by the fifth
    threads   answers a second of four reader threads over those of one; what two reader processes share
    s3        requests and bytes of a cold hop, a warm one, and commits, on an S3 server behind a proxy
    lsqb      nine counts over a social network (live_lsqb.py); where Ladybug is ahead the table says so
    growth    the figures of new, after and warm at 1/100, 1/10 and all of the edges, with the exponent:
              the slope of the logarithms, 0 for flat and 1 for linear

Data and the databases of peers are made once in --folder; our graphs are loaded anew in each run (--reuse
keeps them), so that another version of the code can be measured with PYTHONPATH=OTHER/src. Peers come with
`pip install -c constraints.txt .[bench]`; without them our figures stand alone. A time is in milliseconds
and a median unless its column says otherwise; bounds are printed beside the figures that have one. Each job
runs in a process of its own (live_work.py), so ours and a peer never hold memory at the same time.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import live_lsqb
from live_data import NEIGHBOURS, Facts, make
from live_engines import LIVE, QUESTIONS, WRITES
from live_report import Table, alike, exponent, ratio, verdict

HERE = Path(__file__).parent
PEER = "ladybug"
KEPT = Path(tempfile.gettempdir()) / "omnigraph-live"
NEW_BOUNDS = {"key": 2.5, "1 hop": 2.5, "2 hops": 2.5, "group": 0.8, "two-hop count": 0.5}
WARM_BOUNDS = {"three-hop count": 0.4, "triangles": 1.0, "cycles of three": 1.0, "shortest path": 0.1}
TABLE = (
    *("key", "1 hop", "2 hops", "2 hops, filter, top", "group", "two-hop count", "three-hop count"),
    *("3 hops", "key, new text", "1 hop, new text"),  # in no table of bounds
)
SMALLER = ("triangles", "cycles of three", "shortest path")  # asked of a tenth of the edges
PARTS = ("load", "new", "after", "warm", "commits", "threads", "s3", "lsqb", "growth")


class Bench:
    """The data, the graphs made of it, and the processes that work on them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cache: Path = options.folder
        self._made: set[str] = set()
        self._scratch = self.cache / f"scratch-{os.getpid()}"
        self.peers = [name for name in (PEER, "kuzu") if importlib.util.find_spec(name) is not None]

    @property
    def engines(self) -> list[str]:
        """Ours, and the peer for reads and writes if it is there."""
        return ["ours", PEER] if PEER in self.peers else ["ours"]

    def data(self, share: int = 1) -> Facts:
        """Return the data, or a part of it."""
        return self.sized(self.options.nodes // share, self.options.edges // share)

    def sized(self, nodes: int, edges: int) -> Facts:
        """Return data of another size."""
        return make(self.cache, nodes, edges, self.options.degrees, self.options.neighbours)

    def run(self, command: list[str], seconds: float | None = None) -> Any:
        """Run a process and return the JSON of its last line; a string says why there is none."""
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(HERE.parent)]))
        try:
            done = subprocess.run(
                [sys.executable, *command],
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                timeout=seconds,
                check=False,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return f"longer than {seconds:.0f} s"
        if done.returncode != 0:
            return f"exit {done.returncode}"
        return json.loads(done.stdout.splitlines()[-1])

    def command(self, job: str, engine: str, path: str, facts: Facts, **given: Any) -> list[str]:
        """Return what does a job, as arguments of the interpreter."""
        spec = {"job": job, "engine": engine, "path": path, "data": facts.folder, **given}
        return [str(HERE / "live_work.py"), json.dumps({**spec, "neighbours": facts.neighbours})]

    def work(self, job: str, engine: str, path: str, facts: Facts, **given: Any) -> dict[str, Any]:
        """Do one job in a process of its own."""
        spec = {
            "job": job,
            "engine": engine,
            "path": path,
            "data": facts.folder,
            "neighbours": facts.neighbours,
            **given,
        }
        found = self.run([str(HERE / "live_work.py"), json.dumps(spec)])
        if not isinstance(found, dict):
            sys.exit(f"{job} of {engine}: {found}")
        return found

    def graph(self, engine: str, facts: Facts, *, unique: bool = False) -> str:
        """Return a graph with the data loaded and nothing else done to it; nobody may write to it."""
        path = self.place(engine, facts, unique=unique)
        keep = engine != "ours" or self.options.reuse
        if path not in self._made and not (keep and Path(f"{path}.done").is_file()):
            self.load(engine, facts, unique=unique)
        self._made.add(path)
        return path

    def place(self, engine: str, facts: Facts, *, unique: bool = False) -> str:
        """Return where a graph is made."""
        return f"{facts.folder}/{engine}{'-unique' if unique else ''}.db"

    def load(self, engine: str, facts: Facts, *, unique: bool = False) -> dict[str, Any]:
        """Load anew."""
        path = self.place(engine, facts, unique=unique)
        remove(path)
        found = self.work("load", engine, path, facts, unique=unique)
        Path(f"{path}.done").touch()
        self._made.add(path)
        return found

    def copy(self, path: str, *, name: str = "copy", keep: bool = False) -> str:
        """Return a copy that may be written to; copies before it go, unless they are kept."""
        if not keep:
            shutil.rmtree(self._scratch, ignore_errors=True)
        folder = self._scratch / name
        folder.mkdir(parents=True)
        target = folder / Path(path).name
        if Path(path).is_dir():
            shutil.copytree(path, target)
        else:
            for one in Path(path).parent.glob(Path(path).name + "*"):
                shutil.copy(one, folder / one.name)
        os.sync()  # what is written back later would slow what is measured
        return str(target)

    def close(self) -> None:
        """Remove what was only for this run."""
        shutil.rmtree(self._scratch, ignore_errors=True)


def remove(path: str) -> None:
    """Remove a graph and what lies beside it."""
    for one in Path(path).parent.glob(Path(path).name + "*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()


# --- Parts


def part_load(bench: Bench) -> list[Table]:
    """Load into each engine."""
    facts = bench.data()
    table = Table(f"load: {facts.label}")
    found = {name: bench.load(name, facts) for name in ("ours", *bench.peers)}
    ours = found["ours"]["seconds"]
    for name, one in found.items():
        over = ratio(ours, one["seconds"]) if name != "ours" else None
        table.add(
            engine=name,
            seconds=one["seconds"],
            rows_per_s=round((facts.nodes + facts.edges) / one["seconds"]),
            peak_RSS_MiB=round(one["peak"]),
            MB_on_disk=round(one["bytes"] / 1e6),
            ours_over_it=over,
            bound=verdict(over, 0.95 if name == "kuzu" else None),
        )
    return [table]


def part_new(bench: Bench) -> list[Table]:
    """Ask each query first in a fresh process."""
    return [new_process(bench, bench.data())]


def new_process(bench: Bench, facts: Facts) -> Table:
    """Start processes in turns; each opens a graph and asks one query."""
    for package in ("omnigraph", "lance", *bench.peers):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        compileall.compile_dir(str(Path(spec.origin).parent), quiet=1)
    paths = {engine: bench.graph(engine, facts) for engine in bench.engines}
    lance: list[float] = []
    seen: dict[tuple[str, str], list[list[float]]] = {(e, q): [] for e in paths for q in LIVE}
    for turn in range(bench.options.processes + 1):
        lance.append(_import_lance())
        for engine, name in seen:
            seen[engine, name].append(_first(engine, paths[engine], facts, name, turn))
    base = median(lance[1:])  # the first of each brings files into the page cache
    medians = {
        case: [median(column) for column in zip(*rows[1:], strict=True)] for case, rows in seen.items()
    }
    table = Table(f"new process, after a load and nothing else: {facts.label}")
    for name in LIVE:
        imported, opened, first, whole, rows = medians["ours", name]
        peer = medians.get((PEER, name))
        over = ratio(first, peer[2] if peer else None)
        of_lance = (whole - 100) / base if name in ("key", "1 hop") else None
        table.add(
            first=name,
            imports=imported,
            open=opened,
            query=first,
            peer_imports=peer[0] if peer else None,
            peer_open=peer[1] if peer else None,
            peer_query=peer[2] if peer else None,
            ratio=over,
            bound=verdict(over, NEW_BOUNDS[name]),
            from_start=whole,
            peer_start=peer[3] if peer else None,
            less_100_over_lance=of_lance,
            start_bound=verdict(of_lance, 1.5),
            rows=alike(round(rows), round(peer[4])) if peer else None,
        )
    table.notes.append(f"import lance, from the start of its process: {base:.0f} ms")
    return table


def _first(engine: str, path: str, facts: Facts, name: str, turn: int) -> list[float]:
    """Start one process; return import, open, first query, all since its start, and the rows."""
    question = QUESTIONS[name]
    given = [f"{key}={value}" for key, value in question.params(facts, turn).items()]
    text = question.ours if engine == "ours" else question.peer
    command = [sys.executable, str(HERE / "live_first.py"), engine, path, text, *given]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    started, imported, opened, answered, rows = (float(one) for one in done.stdout.split())
    steps = [imported - started, opened - imported, answered - opened, answered - began]
    return [*(step * 1000 for step in steps), rows]


def _import_lance() -> float:
    """Return the milliseconds from the start of a process until Lance is imported."""
    code = "import lance, time; print(time.perf_counter())"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    return (float(done.stdout) - began) * 1000


def part_after(bench: Bench) -> list[Table]:
    """Ask first after a write, then write and read in turns."""
    return [after_writes(bench, bench.data()), alternation(bench, bench.data())]


def after_writes(bench: Bench, facts: Facts) -> Table:
    """Write one row and ask at once, with every kind of write and every query."""
    kinds = list(WRITES)
    found = {
        engine: bench.work(
            "after",
            engine,
            bench.copy(bench.graph(engine, facts)),
            facts,
            rounds=bench.options.rounds,
            kinds=kinds,
        )
        for engine in bench.engines
    }
    table = Table(f"first query after a one-row write: {facts.label}")
    for kind in kinds:
        mine, peer = found["ours"][kind], found.get(PEER, {}).get(kind)
        wrote = peer["write"] if peer else None
        table.add(
            after=kind,
            query="(the write)",
            warm=None,
            first=mine["write"],
            first_over_warm=None,
            extra_ms=None,
            bound="",
            peer_warm=None,
            peer_first=wrote,
            ours_over_it=ratio(mine["write"], wrote),
        )
        for name in LIVE:
            first, warm = mine[name]["first"], mine[name]["warm"]
            held = first <= 1.5 * warm or first - warm <= 5
            table.add(
                after=kind,
                query=name,
                warm=warm,
                first=first,
                first_over_warm=ratio(first, warm),
                extra_ms=first - warm,
                bound=f"<= 1.5x or + 5: {'held' if held else 'NOT HELD'}",
                peer_warm=peer[name]["warm"] if peer else None,
                peer_first=peer[name]["first"] if peer else None,
                ours_over_it=ratio(first, peer[name]["first"]) if peer else None,
            )
    if PEER in found:
        answers = {name: alike(found["ours"]["answers"][name], found[PEER]["answers"][name]) for name in LIVE}
        table.notes.append(f"answers after all writes: {answers}")
    return table


def alternation(bench: Bench, facts: Facts) -> Table:
    """Write an edge, read one hop and two."""
    given = {"turns": bench.options.turns, "seconds": bench.options.limit}
    found = {
        engine: bench.work("alternate", engine, bench.copy(bench.graph(engine, facts)), facts, **given)
        for engine in bench.engines
    }
    table = Table(f"write an edge, read 1 hop and 2 hops, again and again (means): {facts.label}")
    for engine, one in found.items():
        over = ratio(found["ours"]["turn"], one["turn"]) if engine != "ours" else None
        table.add(
            engine=engine,
            turns=one["turns"],
            write=one["write"],
            hop=one["1 hop"],
            two_hops=one["2 hops"],
            turn=one["turn"],
            ours_over_it=over,
            bound=verdict(over, 0.4),
        )
    if PEER in found:
        table.notes.append(f"answers at the end: {alike(found['ours']['answers'], found[PEER]['answers'])}")
    return table


def part_warm(bench: Bench) -> list[Table]:
    """Ask every query warm."""
    return [warm(bench, bench.data(), TABLE), warm(bench, bench.data(bench.options.smaller), SMALLER)]


def warm(bench: Bench, facts: Facts, names: tuple[str, ...]) -> Table:
    """Time both engines; check that they agree."""
    given = {"questions": list(names), "runs": bench.options.runs}
    found = {e: bench.work("warm", e, bench.graph(e, facts), facts, **given) for e in bench.engines}
    table = Table(f"warm, each run, answers as Arrow tables: {facts.label}")
    for name in names:
        mine, peer = found["ours"][name], found.get(PEER, {}).get(name)
        over = ratio(mine["ms"], peer["ms"] if peer else None)
        table.add(
            query=name,
            ours=mine["ms"],
            peer=peer["ms"] if peer else None,
            ratio=over,
            bound=verdict(over, WARM_BOUNDS.get(name, 1.0 if name in TABLE[:6] else None)),
            ours_asked_again=mine.get("quickest"),
            peer_as_lists=peer.get("quickest") if peer else None,
            answers=agreement(mine, peer),
        )
    return table


def agreement(mine: dict[str, Any], peer: dict[str, Any] | None) -> str:
    """Say whether the answers are the same, or who gave none and why."""
    if mine["ms"] is None:
        return f"ours gave up: {mine['answer']}"
    if peer is None or peer["ms"] is None:
        return "-" if peer is None else f"{PEER} gave up: {peer['answer']}"
    return alike(mine["answer"], peer["answer"])


def part_commits(bench: Bench) -> list[Table]:
    """Commit one row at a time, in a small graph and in the whole one."""
    small, large = bench.sized(1_000, 10_000), bench.data()
    paths = [bench.graph("ours", facts, unique=True) for facts in (small, large)]
    beside = bench.copy(paths[0])
    found = bench.work(
        "commits",
        "ours",
        bench.copy(paths[1], name="large", keep=True),
        large,
        small={"path": beside, "persons": small.persons},
        rounds=3,
        each=60,
    )
    table = Table(f"one-row validated commits: 1,000 nodes and 10,000 edges; {large.label}")
    for kind in ("node", "edge", "both"):
        a, b = (found["os"][f"{size} {kind}"] for size in ("small", "large"))
        synced = [found["sync"][f"{size} {kind}"]["p50"] for size in ("small", "large")]
        grown = ratio(b["cpu"], a["cpu"])
        table.add(
            commit=kind,
            CPU_small=a["cpu"],
            CPU_large=b["cpu"],
            ratio=grown,
            bound=verdict(grown, 1.3 if kind == "both" else None),
            p50_small=a["p50"],
            p50_large=b["p50"],
            synced_p50_small=synced[0],
            synced_p50_large=synced[1],
            synced_over_floor=ratio(synced[1], found["sync"]["the floor"]["p50"]),
        )
    floor = {how: found[how]["the floor"] for how in ("os", "sync")}
    table.notes += [
        "in turns in one process; CPU: best of 3 x 60, without sync; both: a node and an edge in one commit",
        f"floor (write_floor.py: one row, one table, nothing checked): CPU {floor['os']['cpu']:.1f}, "
        f"p50 {floor['os']['p50']:.1f}, synced p50 {floor['sync']['p50']:.1f}",
        f"first commit after the load: {found['first']['small']:.0f} and {found['first']['large']:.0f}",
    ]
    return [table, _many(bench, large)]


def _many(bench: Bench, facts: Facts) -> Table:
    """Commit thousands of times in one process."""
    found = bench.work(
        "many",
        "ours",
        bench.copy(bench.graph("ours", facts, unique=True)),
        facts,
        commits=bench.options.commits,
        durability=bench.options.durability,
    )
    table = Table(
        f"{bench.options.commits:,} one-row commits (a node and an edge) in one process: {facts.label}"
    )
    for step in found["steps"]:
        table.add(
            commits=step["to"],
            ms=step["ms"],
            p50=step["p50"],
            CPU_ms=step["cpu"],
            bytes_a_commit=round(step["bytes"]),
            RSS_MiB=round(step["rss"], 1),
        )
    first, last = found["steps"][0]["rss"], found["steps"][-1]["rss"]
    table.notes.append(
        f"resident: {found['start']:.0f} MiB before, {last / first:.3f} of that after the first fifth "
        f"at the end ({verdict(last / first, 1.1)})"
    )
    return table


def part_threads(bench: Bench) -> list[Table]:
    """Compare reader threads with one, and look at what reader processes share."""
    facts = bench.data()
    path = bench.graph("ours", facts)
    number = bench.options.threads
    found = bench.work("threads", "ours", path, facts, threads=number, seconds=bench.options.seconds)
    table = Table(f"{number} reader threads over one, {os.cpu_count()} cores: {facts.label}")
    for name, one in found.items():
        over = ratio(one["more"], one["one"])
        table.add(
            query=name,
            ms=one["ms"],
            answers_per_s=one["one"],
            with_threads=one["more"],
            ratio=over,
            bound="" if name.startswith("(") else verdict(over, 1.6 if one["ms"] > 5 else 0.9, least=True),
        )
    return [table, _shared(bench, path, facts)]


def _shared(bench: Bench, path: str, facts: Facts) -> Table:
    """Start two readers, and add up what the system says of their memory."""
    table = Table(f"two reader processes on one graph, MiB of each (means): {facts.label}")
    for label, asked in {"opened": [], "hops asked": list(LIVE[:3]), "all asked": list(LIVE)}.items():
        spec = {
            "job": "hold",
            "engine": "ours",
            "path": path,
            "data": facts.folder,
            "neighbours": facts.neighbours,
        }
        spec["questions"] = asked
        command = [sys.executable, str(HERE / "live_work.py"), json.dumps(spec)]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        figures = []
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            figures.append(_memory(child.pid, path))
        for child in children:
            child.communicate("\n")
        table.add(
            readers=label,
            RSS=fmean(one["Rss"] for one in figures),
            PSS=fmean(one["Pss"] for one in figures),
            shared=fmean(one["Rss"] - one["Private_Clean"] - one["Private_Dirty"] for one in figures),
            of_the_graph_mapped_RSS=fmean(one["mapped Rss"] for one in figures),
            PSS_of_that=fmean(one["mapped Pss"] for one in figures),
        )
    table.notes.append("a page that both map counts half in PSS; shared includes the code of libraries")
    return table


def _memory(process: int, path: str) -> dict[str, float]:
    """Return the memory of a process in MiB, and how much of it is mapped files of the graph."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        found[name] = int(value.split()[0]) / 1024
    found |= {"mapped Rss": 0.0, "mapped Pss": 0.0}
    inside = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        head, _, rest = line.partition(" ")
        if not head.endswith(":"):
            inside = str(Path(path).resolve()) in rest
        elif inside and head in ("Rss:", "Pss:"):
            found[f"mapped {head[:3]}"] += int(rest.split()[0]) / 1024
    return found


def part_s3(bench: Bench) -> list[Table]:
    """Count requests and bytes."""
    facts = bench.data()
    found = bench.run([str(HERE / "live_s3.py"), facts.folder])
    if not isinstance(found, dict):
        sys.exit(f"s3: {found}")
    table = Table(f"on S3: {facts.label}")
    bounds = {
        "cold hop": 40,
        "the same hop again": 1,
        "commit of node": 10,
        "commit of edge": 10,
        "commit of both": 14,
    }
    for name, times in found["counted"].items():
        most = max(count for count, _ in times)
        share = fmean(moved for _, moved in times) / found["edge bytes"]
        bound = next((limit for start, limit in bounds.items() if name.startswith(start)), None)
        table.add(
            operation=name,
            times=len(times),
            requests=fmean(count for count, _ in times),
            most=most,
            bound=verdict(most, bound),
            bytes=round(fmean(moved for _, moved in times)),
            share_of_edges=f"{share:.2%}",
            share_bound=verdict(share, 0.02 if name.startswith("cold hop") else None),
        )
    table.notes.append(
        f"the edge table has {found['edge bytes']:,} bytes; the load took {found['seconds']:.1f} s; "
        f"requests of the cold hop, opening included: {next(iter(found['classes'].values()))}"
    )
    return [table]


def part_lsqb(bench: Bench) -> list[Table]:
    """Ask the nine counts, each in a process of its own."""
    files = live_lsqb.make(bench.cache, bench.options.persons)
    script = str(HERE / "live_lsqb.py")
    paths = {}
    for engine in bench.engines:
        paths[engine] = str(bench.cache / f"lsqb-{bench.options.persons}" / f"{engine}.db")
        remove(paths[engine])
        bench.run([script, engine, paths[engine], "load", json.dumps(files)])
    table = Table(
        f"LSQB-shaped counts: {bench.options.persons:,} persons, {bench.options.persons * 30:,} messages"
    )
    for name in live_lsqb.QUESTIONS:
        found: dict[str, Any] = {}
        for engine, path in paths.items():
            one = bench.run([script, engine, path, name, str(bench.options.runs)], bench.options.limit)
            found[engine] = one if isinstance(one, dict) else {"ms": None, "answer": one}
        mine, peer = found["ours"], found.get(PEER)
        over = ratio(mine["ms"], peer["ms"] if peer else None)
        ahead = "-" if over is None else "ours" if over <= 1 else PEER
        count = mine["answer"] if mine["ms"] is not None or peer is None else peer["answer"]
        table.add(
            question=name,
            count=count if isinstance(count, int) else None,
            ours=mine["ms"],
            peer=peer["ms"] if peer else None,
            ratio=over,
            ahead=ahead,
            answers=agreement(mine, peer),
        )
    return [table]


def part_growth(bench: Bench) -> list[Table]:
    """Take the figures of three parts at three sizes."""
    shares = (100, 10, 1)
    sizes = [bench.options.edges // share for share in shares]
    figures: dict[tuple[str, str, str], list[float | None]] = {}

    def note(part: str, what: str, engine: str, at: int, value: float | None) -> None:
        figures.setdefault((part, what, engine), [None] * len(shares))[at] = value

    for at, share in enumerate(shares):
        facts = bench.data(share)
        for row in new_process(bench, facts).rows:
            note("new process", row["first"], "ours", at, row["query"])
            note("new process", row["first"], PEER, at, row["peer query"])
        for row in after_writes(bench, facts).rows:
            note(f"after {row['after']}", row["query"], "ours", at, row["first"])
            note(f"after {row['after']}", row["query"], PEER, at, row.get("peer first"))
        for row in alternation(bench, facts).rows:
            note("alternation", "a turn", row["engine"], at, row["turn"])
        for row in warm(bench, facts, TABLE + (SMALLER if share > 1 else ())).rows:
            note("warm", row["query"], "ours", at, row["ours"])
            note("warm", row["query"], PEER, at, row["peer"])
    table = Table(f"growth: ms at three sizes, {bench.options.degrees} degrees, and the exponent")
    for (part, what, engine), values in figures.items():
        named = {f"{size:,} edges": value for size, value in zip(sizes, values, strict=True)}
        table.rows.append(
            {"part": part, "query": what, "engine": engine, **named, "exponent": exponent(sizes, values)}
        )
    return [table]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them when left out")
    add("--nodes", type=int, default=1_000_000, help="persons (default 1,000,000)")
    add("--edges", type=int, default=10_000_000, help="edges between them (default 10,000,000)")
    add(
        "--neighbours",
        type=int,
        choices=NEIGHBOURS,
        default=NEIGHBOURS[0],
        help="how many the persons know from whom hops start (default 20)",
    )
    add(
        "--degrees", choices=["skewed", "uniform"], default="skewed", help="see live_data.py (default skewed)"
    )
    add(
        "--smaller",
        type=int,
        default=10,
        help="triangles and shortest paths are asked of one so-manieth of the data (default 10)",
    )
    add(
        "--folder",
        type=Path,
        default=KEPT,
        help="where data and graphs are kept (default: omnigraph-live among temporary files)",
    )
    add(
        "--reuse",
        action="store_true",
        help="take our graphs from an earlier run, too: after no change of the code",
    )
    add("--processes", type=int, default=5, help="new: processes for each first query (default 5)")
    add("--rounds", type=int, default=5, help="after: writes of each kind before each query (default 5)")
    add("--turns", type=int, default=200, help="after: turns of writing and reading (default 200)")
    add(
        "--limit",
        type=float,
        default=120.0,
        help="most seconds of turns, and of one LSQB question (default 120)",
    )
    add("--runs", type=int, default=5, help="warm, lsqb: least number of timed runs (default 5)")
    add("--commits", type=int, default=5_000, help="commits: how many in one process (default 5,000)")
    add(
        "--durability",
        choices=["sync", "os"],
        default="os",
        help="commits: of those in one process (default os)",
    )
    add("--threads", type=int, default=4, help="threads: reader threads beside one (default 4)")
    add("--seconds", type=float, default=2.0, help="threads: of each of three rates (default 2)")
    add("--persons", type=int, default=10_000, help="lsqb: persons of the network (default 10,000)")
    add("--json", action="store_true", help="print one JSON document instead of tables")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.folder = options.folder.resolve()
    return options


def main() -> None:
    """Measure and report."""
    options = arguments()
    parts: dict[str, Callable[[Bench], list[Table]]] = {
        "load": part_load,
        "new": part_new,
        "after": part_after,
        "warm": part_warm,
        "commits": part_commits,
        "threads": part_threads,
        "s3": part_s3,
        "lsqb": part_lsqb,
        "growth": part_growth,
    }
    bench = Bench(options)
    report = {}
    for name in (PEER, "kuzu"):
        if name not in bench.peers:
            print(f"{name} is not installed: its figures are left out", file=sys.stderr)
    try:
        for name in options.parts or PARTS:
            tables = parts[name](bench)
            report[name] = [table.data() for table in tables]
            if not options.json:
                for table in tables:
                    print(table.text(), flush=True)
    finally:
        bench.close()
    if options.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
