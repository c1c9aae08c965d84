"""Soak: a graph on local disk in use by separate processes, while its history is deleted under them.

    python bench/soak.py [--minutes 30] [--place FOLDER] [--grace 5]

Four writers (mutations, loads and deletes, on main and on branches of their own), two readers (queries, time
travel, diffs, the feed), merges, optimize again and again, cleanup again and again with a grace period of
seconds, branches made, renamed and deleted, tags. At the end: doctor with `deep` has nothing to say, before
a last cleanup deletes what history is left and after it, every acknowledged write is accounted for, no error
came out that was not expected, and what is stored is bounded. Exit code 1 otherwise. The curve of bytes and
files goes to `curve.csv` in the folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import soak_work as work

import omnigraph as og

SAMPLE_S = 10
JUDGED_AFTER_S = 8 * 60  # versions of a branch stay for two minutes: before that any curve rises
RECENT_S = 150  # for so long versions of a branch stay at least
GROWTH = 0.15  # of the mean, over the second half
PARTS = ("tables", "__manifest", "__checksums")


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--place", type=Path, help="an empty folder; a temporary one if not given")
    parser.add_argument("--grace", type=float, default=5, help="seconds")
    parser.add_argument("--branch-life", type=float, default=45, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = options.place or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        address = str(place / "graph.og")
        og.init(address, work.SCHEMA, durability="os").close()
        curve = run(address, place, options)
        problems = [*violations(place), *judge(address, place), *unbounded(curve)]
    for problem in problems[:20]:
        print(f"VIOLATION {problem}")
    print(f"{len(problems)} violations")
    return 1 if problems else 0


# -- running -------------------------------------------------------------------------------------------


def roles(options: argparse.Namespace) -> dict[str, tuple[Any, float, float]]:
    """Return every process: what it does, how long it rests between turns, and an argument."""
    return {
        **{f"writer-{n}": (work.write, 0.05, options.branch_life) for n in range(4)},
        **{f"reader-{n}": (work.read, 0.2, 0.0) for n in range(2)},
        "merger": (work.merge, 0.5, 0.0),
        "optimizer": (work.optimize, 1.0, 0.0),
        "cleaner": (work.clean, 1.0, options.grace),
        "control": (work.control, 5.0, 0.0),
    }


def run(address: str, place: Path, options: argparse.Namespace) -> list[dict[str, float]]:
    """Start everybody, look at the folder now and then, call the end; return the curve."""
    context = get_context("spawn")
    processes: dict[str, SpawnProcess] = {}
    for name, (target, pause, argument) in roles(options).items():
        process = context.Process(target=target, args=(address, str(place), name, pause, argument), name=name)
        process.start()
        processes[name] = process
    while len(statuses(place)) < len(processes) and all(p.is_alive() for p in processes.values()):
        time.sleep(0.1)  # the time counts from when all have begun
    started = time.monotonic()
    curve: list[dict[str, float]] = []
    try:
        while (now := time.monotonic() - started) < options.minutes * 60:
            curve.append(sample(address, place, now))
            if len(curve) % (60 // SAMPLE_S) == 0:
                print(progress(place, curve[-1]), flush=True)
            time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - started - now)))
            dead = [name for name, process in processes.items() if not process.is_alive()]
            if dead:
                note(place, f"{dead} ended early")
                break
    finally:
        (place / "stop").touch()
        for name, process in processes.items():
            process.join(180)
            if process.is_alive():
                note(place, f"{name} did not end within three minutes")
                process.kill()
                process.join()
            elif process.exitcode != 0:
                note(place, f"{name} ended with exit code {process.exitcode}")
    curve.append(sample(address, place, time.monotonic() - started))
    print(progress(place, curve[-1]))
    with open(place / "curve.csv", "w", newline="") as out:
        writer = csv.DictWriter(out, curve[0])
        writer.writeheader()
        writer.writerows(curve)
    return curve


def note(place: Path, what: str) -> None:
    """Add a violation that the parent saw."""
    with open(place / "parent.violations", "a") as log:
        log.write(json.dumps({"who": "parent", "what": what, "trace": ""}) + "\n")


def sample(address: str, place: Path, now: float) -> dict[str, float]:
    """Return what is stored now, by part, and how many rows there are."""
    stored: Counter[str] = Counter()
    for path, size in files_below(address):
        part = os.path.relpath(path, address).split(os.sep)[0]
        stored["bytes"] += size
        stored["files"] += 1
        stored[part if part in PARTS else "other"] += size
    told = statuses(place)
    return {
        "seconds": round(now),
        "bytes": stored["bytes"],
        "files": stored["files"],
        **{part: stored[part] for part in (*PARTS, "other")},
        "rows": sum(status.get("rows", 0) for status in told.values()),
        "writes": sum(status.get("writes", 0) for status in told.values()),
        "freed": told.get("cleaner", {}).get("freed", 0),
    }


def files_below(folder: str) -> Iterator[tuple[str, int]]:
    """Yield every file with its size; those that go meanwhile are left out."""
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield f"{where}/{name}", os.stat(f"{where}/{name}").st_size
            except FileNotFoundError:
                continue


def statuses(place: Path) -> dict[str, dict[str, Any]]:
    """Return what each process last said of itself."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(place.glob("*.status"))}


def progress(place: Path, now: dict[str, float]) -> str:
    """Return one line for a human."""
    found = sum(1 for _ in violations(place))
    return (
        f"{now['seconds'] / 60:5.1f} min  {now['writes']:.0f} writes, {now['rows']:.0f} rows, "
        f"{now['bytes'] / 1e6:.1f} MB in {now['files']:.0f} files, {now['freed'] / 1e6:.1f} MB freed, "
        f"{found} violations"
    )


def violations(place: Path) -> Iterator[str]:
    """Yield what processes noted, the first lines of it."""
    for path in sorted(place.glob("*.violations")):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            trace = told["trace"].strip().splitlines()[-9:]
            yield "\n    ".join([f"{told['who']}: {told['what']}", *trace])


# -- judging -------------------------------------------------------------------------------------------


def judge(address: str, place: Path) -> Iterator[str]:
    """Yield what is wrong with the graph at the end."""
    told = statuses(place)
    for name, status in told.items():
        facts = {key: value for key, value in status.items() if key != "codes"}
        print(f"{name:10} {status['codes']} {facts}")
        if not status["codes"].get("ok"):
            yield f"{name} never succeeded"
    expected = {name: acknowledged(place / f"{name}.acks") for name in told if name.startswith("writer")}
    with og.connect(address) as graph:
        yield from unsound("with its history", graph)  # what is damaged there, the cleanup below deletes
        for name, models in expected.items():
            side = f"{name}-side"
            if side in [branch.name for branch in graph.branches.list()]:
                yield from differences(f"branch {side}", {f"{name}.side": models["side"]}, graph, side)
                graph.merge(side, "main")
        owned = {f"{name}.{where}": model for name, both in expected.items() for where, model in both.items()}
        yield from differences("main", owned, graph, "main")
        graph.optimize()
        last = graph.cleanup(keep=0, grace="0s", dry_run=False)
        print(f"a last cleanup frees {last.bytes / 1e6:.1f} MB in {last.files} files")
        print(f"left: {sum(size for _, size in files_below(address)) / 1e6:.2f} MB")
        yield from differences("main, optimized and cleaned", owned, graph, "main")
        yield from unsound("optimized and cleaned", graph)


def unsound(what: str, graph: og.Graph) -> Iterator[str]:
    """Yield what doctor finds when it reads everything."""
    report = graph.doctor(deep=True)
    print(f"doctor --deep, {what}: {report.counts} {dict(Counter(one.code for one in report.findings))}")
    yield from (f"doctor, {what}: {one}" for one in (*report.of("error"), *report.of("warning")))


def acknowledged(log: Path) -> dict[str, work.Model]:
    """Return what must be there by what a writer was told."""
    models = {"main": work.empty(), "side": work.empty()}
    for line in log.read_text().splitlines():
        told = json.loads(line)
        work.apply(models[told["where"]], told["put"], told["gone"])
    return models


def differences(what: str, owned: dict[str, work.Model], graph: og.Graph, branch: str) -> Iterator[str]:
    """Yield how a branch differs from what was acknowledged, of the entities that have these owners."""
    found = {owner: work.empty() for owner in owned}
    for (kind, _), row in work.state(graph, branch=branch).items():
        key = row["name"] if kind != "Uses" else f"{row['from']} {row['to']}"
        owner = key.rpartition(" ")[2].rpartition(".")[0]
        if owner in found:
            if key in found[owner][kind]:
                yield f"{what}: {kind} {key} is there twice"
            found[owner][kind][key] = row["n"]
    for owner, model in owned.items():
        for kind, rows in model.items():
            lost = {key for key in rows if found[owner][kind].get(key) != rows[key]}
            extra = found[owner][kind].keys() - rows.keys()
            if lost or extra:
                yield f"{what}: {owner} {kind}: lost or old {sorted(lost)[:5]}, too much {sorted(extra)[:5]}"


def unbounded(curve: list[dict[str, float]]) -> Iterator[str]:
    """Print the curve, and yield what of it rises without end."""
    top = max(point["bytes"] for point in curve)
    for point in curve[:: max(1, len(curve) // 30)]:
        bar = "#" * round(60 * point["bytes"] / top)
        print(f"{point['seconds'] / 60:5.1f} min {point['bytes'] / 1e6:7.1f} MB {point['files']:6.0f} {bar}")
    if curve[-1]["seconds"] < JUDGED_AFTER_S:
        print("too short to say whether it is bounded")
        return
    for name in ("bytes", "files", "rows", *PARTS):
        middle, growth = growth_of(name, curve)
        print(f"{name} in the second half: mean {middle:.0f}, {growth:+.1%} from its begin to its end")
        if name in ("bytes", "files") and growth > GROWTH:
            yield f"{name} rise by {growth:.0%} in the second half"


def growth_of(name: str, curve: list[dict[str, float]]) -> tuple[float, float]:
    """Return the mean of the second half, and by what share of it time alone moves it from begin to end.

    Versions of the last minutes are always there, so what is stored follows the pace of that time: that part
    is no growth, and is told apart by a regression on both.
    """
    first = len(curve) // 2
    recent = [
        point["writes"] - next(p for p in curve if p["seconds"] > point["seconds"] - RECENT_S)["writes"]
        for point in curve
    ]
    known = np.array([[1.0, pace, p["seconds"]] for pace, p in zip(recent, curve, strict=True)][first:])
    values = np.array([point[name] for point in curve[first:]])
    per_second = np.linalg.lstsq(known, values, rcond=None)[0][2]
    middle = float(values.mean())
    return middle, float(per_second * (known[-1, 2] - known[0, 2]) / max(1.0, middle))


if __name__ == "__main__":
    sys.exit(main())
