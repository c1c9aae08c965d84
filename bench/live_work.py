"""What `live.py` measures inside one process: one engine, one graph, one job; the answer is a line of JSON.

    python bench/live_work.py '{"job": "warm", "engine": "ours", "path": ..., "data": FOLDER, ...}'

A process for each job keeps the engines apart (Kuzu and Ladybug do not go into one), gives each the whole
machine's memory, and leaves nothing warm that should be cold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any

from live_data import Facts, read
from live_engines import LIVE, QUESTIONS, WRITES, Engine, Ours, Question, connect, digest, load, size_on_disk

ENOUGH_S = 1.0  # of timed runs of one query
QUICK_MS = 5.0

ADD = "query w($k: String, $e: String) { insert Person { name: $k, age: 30, email: $e } }"
LINK = "query w($k: String, $b: String) { insert Knows { from: $k, to: $b, since: 2026 } }"
BOTH = (
    "query w($k: String, $e: String, $b: String) { insert Person { name: $k, age: 30, email: $e } "
    "insert Knows { from: $k, to: $b, since: 2026 } }"
)


def resident(name: str = "VmRSS") -> float:
    """Return the memory that this process holds, or held at most (VmHWM), in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def timed(action: Callable[[], Any]) -> float:
    """Return the milliseconds of one run."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def warm_ms(engine: Engine, facts: Facts, name: str, runs: int) -> float:
    """Return the median of warm runs: at least so many, more if they are short, fewer if they are long."""
    numbers = count()

    def once(n: int) -> float:
        question = numbered(QUESTIONS[name], next(numbers))
        params = question.params(facts, n)
        return timed(lambda: engine.ask(question, params))

    for n in range(60):  # enough to be warm
        if once(n) > 100:
            break
    times: list[float] = []
    while len(times) < runs or (sum(times) < ENOUGH_S * 1000 and len(times) < 200):
        times.append(once(len(times)))
        if sum(times) > 20 * ENOUGH_S * 1000:
            break
    return median(times)


def numbered(question: Question, n: int) -> Question:
    """Return the question as its n-th run asks it."""
    return replace(question, ours=question.ours.replace("#", f"{n}"), peer=question.peer.replace("#", f"{n}"))


def answer(engine: Engine, facts: Facts, name: str) -> str:
    """Return what is compared between engines: the answers of the first runs."""
    question = numbered(QUESTIONS[name], 0)
    several = 3 if question.params(facts, 0) else 1
    return "; ".join(digest(name, engine.rows(question, question.params(facts, n))) for n in range(several))


# --- Jobs


def do_load(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Load the files."""
    unique = bool(job.get("unique"))
    seconds = load(job["engine"], job["path"], facts.files(unique=unique), unique=unique)
    return {"seconds": seconds, "peak": resident("VmHWM"), "bytes": size_on_disk(job["path"])}


def do_warm(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Time each query warm; small ones also in the quickest way there is: ours kept, a peer's as lists."""
    engine = connect(job["engine"], job["path"])
    quickest = connect(job["engine"], job["path"], **{"kept" if job["engine"] == "ours" else "lists": True})
    figures: dict[str, dict[str, Any]] = {}
    for name in job["questions"]:
        try:
            said = answer(engine, facts, name)
            figures[name] = {"ms": warm_ms(engine, facts, name, job["runs"]), "answer": said}
            if figures[name]["ms"] < QUICK_MS:
                figures[name]["quickest"] = warm_ms(quickest, facts, name, job["runs"])
        except Exception as error:  # noqa: BLE001 - an engine that gives up is a finding of the table
            figures[name] = {"ms": None, "answer": f"{type(error).__name__}: {error}"[:120]}
    return figures


def do_after(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """For each kind of write: each query right after it, and then warm."""
    engine = connect(job["engine"], job["path"])
    for name in LIVE:
        warm_ms(engine, facts, name, 3)
    figures: dict[str, Any] = {}
    number = 0
    for kind in job["kinds"]:
        change = WRITES[kind]
        wrote: list[float] = []
        firsts: dict[str, list[float]] = {name: [] for name in LIVE}
        warms: dict[str, list[float]] = {name: [] for name in LIVE}
        for _ in range(job["rounds"]):
            for name in LIVE:
                number += 1
                values, question = change.params(facts, number), QUESTIONS[name]
                wrote.append(timed(lambda c=change, v=values: engine.write(c, v)))  # type: ignore[misc]
                asked = question.params(facts, number)
                ask = lambda q=question, p=asked: engine.ask(q, p)  # noqa: E731
                firsts[name].append(timed(ask))
                warms[name].append(min(timed(ask) for _ in range(3)))
        figures[kind] = {
            "write": median(wrote),
            **{name: {"first": median(firsts[name]), "warm": median(warms[name])} for name in LIVE},
        }
    figures["answers"] = {name: answer(engine, facts, name) for name in LIVE}
    return figures


def do_alternate(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Write an edge, read one hop and two from its start, again and again."""
    engine = connect(job["engine"], job["path"])
    for name in ("1 hop", "2 hops"):
        warm_ms(engine, facts, name, 3)
    change, hop, two_hops = WRITES["edge insert"], QUESTIONS["1 hop"], QUESTIONS["2 hops"]
    wrote, near, far = [], [], []
    began = time.perf_counter()
    for n in range(job["turns"]):
        values, asked = change.params(facts, n), hop.params(facts, n)
        wrote.append(timed(lambda v=values: engine.write(change, v)))  # type: ignore[misc]
        near.append(timed(lambda a=asked: engine.ask(hop, a)))  # type: ignore[misc]
        far.append(timed(lambda a=asked: engine.ask(two_hops, a)))  # type: ignore[misc]
        if time.perf_counter() - began > job["seconds"]:
            break
    return {
        "turns": len(wrote),
        "write": fmean(wrote),
        "1 hop": fmean(near),
        "2 hops": fmean(far),
        "turn": fmean(wrote) + fmean(near) + fmean(far),
        "answers": {name: answer(engine, facts, name) for name in ("1 hop", "2 hops")}
        if len(wrote) == job["turns"]
        else None,
    }


def do_commits(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """One-row validated commits in a small graph and in a large one, taking turns with the floor."""
    from write_floor import Bare

    persons = {"small": job["small"]["persons"], "large": facts.persons}
    paths = {"small": job["small"]["path"], "large": job["path"]}
    figures: dict[str, Any] = {"first": {}}
    for durability in ("os", "sync"):
        graphs = {size: Ours(path, durability=durability).graph for size, path in paths.items()}
        floor = Bare(f"{job['path']}-bare-{durability}", durability)

        def commit(size: str, kind: str, n: int, how: str = durability, g: Any = graphs) -> None:
            name, known = f"{how}-{kind}-{n}", persons[size]
            a, b = known[n % len(known)], known[(n + 7) % len(known)]
            if kind == "node":
                g[size].mutate(ADD, k=name, e=name)
            elif kind == "edge":
                g[size].mutate(LINK, k=a, b=b)
            else:
                g[size].mutate(BOTH, k=name, e=name, b=b)

        actions: dict[tuple[str, str], Callable[[int], None]] = {
            ("the", "floor"): lambda n, f=floor: f.commit(f"{n}")  # type: ignore[misc]
        }
        for kind in ("node", "edge", "both"):
            for size in graphs:
                actions[size, kind] = partial(commit, size, kind)
        for size in graphs if durability == "os" else ():
            figures["first"][size] = timed(partial(actions[size, "both"], -1))
        wall: dict[tuple[str, str], list[float]] = {case: [] for case in actions}
        used: dict[tuple[str, str], list[float]] = {case: [] for case in actions}
        each = job["each"]
        for turn in range(job["rounds"] + 1):
            for case, action in actions.items():
                before = time.process_time()
                times = [timed(partial(action, n)) for n in range(turn * each, (turn + 1) * each)]
                if turn:  # the first warms up
                    used[case].append((time.process_time() - before) * 1000 / each)
                    wall[case] += times
        figures[durability] = {
            f"{size} {kind}": {"cpu": min(used[size, kind]), "p50": median(wall[size, kind])}
            for size, kind in actions
        }
        for graph in graphs.values():
            graph.close()
    return figures


def do_many(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Thousands of one-row commits: time, bytes on disk and resident size by the thousand."""
    graph = Ours(job["path"], durability=job["durability"]).graph
    before, start = _measured_elsewhere(job["path"]), resident()
    steps = []
    step = max(1, job["commits"] // 5)
    for begin in range(0, job["commits"], step):
        cpu = time.process_time()
        times = [
            timed(
                lambda n=n: graph.mutate(  # type: ignore[misc]
                    BOTH, k=f"many-{n}", e=f"many-{n}", b=facts.persons[n % len(facts.persons)]
                )
            )
            for n in range(begin, begin + step)
        ]
        now = _measured_elsewhere(job["path"])
        steps.append(
            {
                "to": begin + step,
                "ms": fmean(times),
                "p50": median(times),
                "cpu": (time.process_time() - cpu) * 1000 / step,
                "bytes": (now - before) / step,
                "rss": resident(),
            }
        )
        before = now
    return {"start": start, "steps": steps}


def _measured_elsewhere(path: str) -> int:
    """Return the bytes of a graph's files; a list of them would count as growth of this process."""
    code = "import sys, live_engines; print(live_engines.size_on_disk(sys.argv[1]))"
    return int(subprocess.check_output([sys.executable, "-c", code, path], cwd=Path(__file__).parent))


def do_threads(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Answers a second of one reader thread and of several, on one open graph.

    Beside them a loop of Python that takes about as long as a small query: what the interpreter gives.
    """
    run, kept = connect("ours", job["path"]), connect("ours", job["path"], kept=True)
    small, long = ("key", "1 hop"), ("group", "two-hop count", "2 hops from the hub")
    rates = {"(a loop of Python)": {"ms": timed(_loop), **_rates(lambda _: _loop(), job)}}
    for label, name, engine in [
        *((f"{name}, asked again", name, kept) for name in small),
        *((name, name, run) for name in small + long),
    ]:
        question = QUESTIONS[name]
        ask = lambda n, e=engine, q=question: e.ask(q, q.params(facts, n))  # noqa: E731
        rates[label] = {"ms": warm_ms(engine, facts, name, 5), **_rates(ask, job)}
    return rates


def _loop() -> int:
    return sum(number for number in range(4_000))


def _rates(ask: Callable[[int], Any], job: dict[str, Any]) -> dict[str, float]:
    """Return the rates of one thread and of several, taken in turns: they share what the machine is doing."""
    rates: dict[int, list[float]] = {1: [], job["threads"]: []}
    for _ in range(3):
        for threads, measured in rates.items():
            measured.append(_rate(ask, threads, job["seconds"]))
    one, more = (median(measured) for measured in rates.values())
    return {"one": one, "more": more}


def _rate(ask: Callable[[int], Any], threads: int, seconds: float) -> float:
    done = [0] * threads
    start = threading.Barrier(threads + 1)
    until = [0.0]

    def work(mine: int) -> None:
        start.wait()
        while time.perf_counter() < until[0] or not done[mine]:
            ask(done[mine] * threads + mine)
            done[mine] += 1

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    began = time.perf_counter()
    until[0] = began + seconds
    start.wait()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - began)


def do_hold(job: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Open, ask if told to, and wait until somebody has looked at this process."""
    engine = connect("ours", job["path"])
    for name in job["questions"]:
        engine.ask(QUESTIONS[name], QUESTIONS[name].params(facts, 0))
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    return {}


JOBS: dict[str, Callable[[dict[str, Any], Facts], dict[str, Any]]] = {
    "load": do_load,
    "warm": do_warm,
    "after": do_after,
    "alternate": do_alternate,
    "commits": do_commits,
    "many": do_many,
    "threads": do_threads,
    "hold": do_hold,
}


def main() -> None:
    """Do one job."""
    job = json.loads(sys.argv[1])
    facts = read(Path(job["data"]), job["neighbours"])
    if facts is None:
        sys.exit(f"no data in {job['data']}")
    print(json.dumps(JOBS[job["job"]](job, facts)))


if __name__ == "__main__":
    main()
