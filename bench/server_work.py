"""What the clients of bench/server.py do, each group of them in a process of its own.

They speak plain HTTP, as a client in any language would: what they take of the machine, the server has not.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit

LOOK_UP = "query one($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
ADD = "query add($writer: String, $n: I64) { insert Entry { writer: $writer, n: $n } }"
ALL = "query all() { match { $e: Entry } return { $e.writer as writer, $e.n as n } }"
PATIENCE = 60.0  # seconds that a client goes on trying
GONE = (OSError, http.client.HTTPException)


def person(number: int) -> str:
    """Return the key of a person."""
    return f"person-{number:06d}"


class Caller:
    """One connection, kept open; asks the next server when one is gone or busy."""

    def __init__(self, *graphs: str) -> None:
        self._graphs = itertools.cycle(urlsplit(graph) for graph in graphs)
        self._next()

    def _next(self) -> None:
        graph = next(self._graphs)
        self._path = graph.path
        self._connection = http.client.HTTPConnection(graph.hostname or "", graph.port, timeout=PATIENCE)

    def post(self, route: str, document: dict[str, Any], key: str | None = None) -> tuple[int, bytes]:
        """Send one request, once."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        self._connection.request("POST", f"{self._path}{route}", json.dumps(document), headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def insist(self, route: str, document: dict[str, Any], key: str) -> Counter[int]:
        """Send one request until it is answered for good; return all answers, 0 for none."""
        deadline, answers = time.monotonic() + PATIENCE, Counter[int]()
        while True:
            try:
                status, body = self.post(route, document, key)
            except GONE:
                status, body = 0, b""
                self._connection.close()
                self._next()
            answers[status] += 1
            if status == 200:
                return answers
            assert status in (0, 429, 503, 504), body
            assert time.monotonic() < deadline, "never answered"
            time.sleep(random.uniform(0.01, 0.1))

    def look_up(self, number: int) -> tuple[int, bytes]:
        """Read one person by key."""
        return self.post("/query", {"query": LOOK_UP, "params": {"name": person(number)}})

    def rows(self, query: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return what a query finds."""
        status, body = self.post("/query", {"query": query, "params": params or {}})
        assert status == 200, body
        rows: list[dict[str, Any]] = json.loads(body)["rows"]
        return rows


@dataclass
class Told:
    """What clients were told."""

    reads: list[float] = field(default_factory=list)  # seconds
    writes: list[float] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)  # by status; 0 is a connection that was lost
    landed: list[tuple[str, int]] = field(default_factory=list)  # acknowledged

    def add(self, other: Told) -> None:
        """Take in what others were told."""
        self.reads += other.reads
        self.writes += other.writes
        self.landed += other.landed
        self.answers += other.answers


@dataclass(frozen=True)
class Task:
    """What each client of a process does, for so long or so often."""

    graphs: tuple[str, ...]
    people: int = 1
    seconds: float | None = None
    times: int | None = None
    writes: float = 0.0  # of the requests
    insists: bool = False


def client(task: Task, name: str) -> Told:
    """Be one client."""
    first = int(name[1:]) % len(task.graphs)
    told, caller = Told(), Caller(*task.graphs[first:], *task.graphs[:first])
    dice = random.Random(name)
    ends = None if task.seconds is None else time.monotonic() + task.seconds
    for n in itertools.count():
        if (ends is not None and time.monotonic() > ends) or n == task.times:
            return told
        writes = dice.random() < task.writes
        document = {"query": ADD, "params": {"writer": name, "n": n}}
        began = time.perf_counter()
        if writes and task.insists:
            answers = caller.insist("/mutate", document, f"{name}-{n}")
        elif writes:
            answers = Counter([caller.post("/mutate", document, f"{name}-{n}")[0]])
        else:
            answers = Counter([caller.look_up(dice.randrange(task.people))[0]])
        (told.writes if writes else told.reads).append(time.perf_counter() - began)
        told.answers += answers
        if writes and answers[200]:
            told.landed.append((name, n))
    return told


def _process(task: Task, names: list[str], go: Any, sink: Any) -> None:
    """Be some clients, each in a thread."""
    told = [Told() for _ in names]

    def work(place: int) -> None:
        go.wait()
        told[place] = client(task, names[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in told[1:]:
        told[0].add(other)
    sink.put(told[0])


def together(
    task: Task, clients: int, processes: int = 1, *, meanwhile: Callable[[], object] | None = None
) -> tuple[Told, float]:
    """Let clients work in separate processes from one moment on; return what they were told, and how long."""
    context = get_context("spawn")
    go, sink = context.Barrier(clients + 1), context.Queue()
    names = [f"c{n}" for n in range(clients)]
    running = [
        context.Process(target=_process, args=(task, names[n::processes], go, sink)) for n in range(processes)
    ]
    for process in running:
        process.start()
    go.wait(PATIENCE)
    began = time.perf_counter()
    if meanwhile is not None:
        meanwhile()
    told = Told()
    for _ in running:
        told.add(sink.get())
    seconds = time.perf_counter() - began
    for process in running:
        process.join()
    return told, seconds
