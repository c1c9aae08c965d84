"""Two server processes on one graph, one of them killed in the middle: the races of processes, through HTTP.

Writers of six kinds work through both servers at once, each beginning at another. When a third of all writes
are acknowledged, one server loses its replies, though what was asked takes effect, and then gets SIGKILL. A
call that is lost goes to the server that is left, under the same idempotency key. The race is run once; each
test holds one promise against what it left behind.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import DeadlineExceeded, KeyConflict, PreconditionFailed, Unavailable
from omnigraph.surfaces.client.open import open_remote
from tests.support.contents import check_whole
from tests.support.faults import Fault
from tests.support.graphs import chain_of
from tests.support.proxy import S3Proxy
from tests.support.served import serving

SCHEMA = """
node Note { text: String }
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
NOTE = "query note($t: String) { insert Note { text: $t } }"
NOTED = "query noted($t: String) { match { $n: Note { text: $t } } return { $n.text } }"
ADD = "query add($n: String) { insert Person { name: $n, age: 0 } }"
AGE = 'query age() { match { $p: Person { name: "counter" } } return { $p.age } }'
SET = 'query set($n: I32) { update Person set { age: $n } where name = "counter" }'
KNOW = 'query know($n: String) { insert Knows { from: "hub", to: $n } }'
LEAVE = "query leave($n: String) { delete Person where name = $n }"
MANY, LOST = 10_000, 4  # replies that would be lost, and that are before the server is killed
COUNTER = "counter"  # a branch and a person: increments meet nobody else's commits there
SIZES = [pytest.param((5, 1), id="5 of each"), pytest.param((40, 2), id="40 of each", marks=pytest.mark.full)]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("two-servers"), pytest.mark.timeout(420)]


@dataclass
class Race:
    """What the writers share, and what came of it."""

    turns: int
    writes: int  # of all writers
    acknowledged: list[str] = field(default_factory=list)  # commits
    outcomes: Counter[str] = field(default_factory=Counter)
    begun: threading.Event = field(default_factory=threading.Event)
    _done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, outcome: str, commit_id: str | None = None) -> None:
        """Note one answer."""
        with self._lock:
            self.outcomes[outcome] += 1
            self._done += 1
            if commit_id is not None:
                self.acknowledged.append(commit_id)
            if 3 * self._done >= self.writes:  # more than half go to the server that will die: some are left
                self.begun.set()


class Front:
    """Clients of both servers: what one of them loses is asked of the other."""

    def __init__(self, addresses: list[str]) -> None:
        self.graphs: list[Any] = [open_remote(address, retries=2) for address in addresses]

    def call(self, method: str, *given: Any, **named: Any) -> Any:
        """Ask the first, or else the second."""
        try:
            return getattr(self.graphs[0], method)(*given, **named)
        except (Unavailable, DeadlineExceeded):
            return getattr(self.graphs[1], method)(*given, **named)

    def close(self) -> None:
        """Give back the connections."""
        for graph in self.graphs:
            graph.close()


# -- what writers do -----------------------------------------------------------------------------------


def take_notes(front: Front, race: Race, me: str) -> None:
    """Insert rows that have no key, so that a write done twice would show; each can be read at once."""
    for turn in range(race.turns):
        text = f"{me}-{turn}"
        receipt = front.call("mutate", NOTE, t=text, idempotency_key=text)
        assert len(front.call("query", NOTED, t=text)) == 1
        race.note("note", receipt.commit_id)


def count_up(front: Front, race: Race, me: str) -> None:
    """Read a number and write the next one, if nobody came between."""
    for turn in range(race.turns):
        read = front.call("query", AGE, branch=COUNTER)
        options = {"branch": COUNTER, "if_commit": read.commit_id, "idempotency_key": f"{me}-{turn}"}
        following = read.scalar() + 1
        try:
            front.call("mutate", SET, n=following, **options)
        except PreconditionFailed:
            race.note("overtaken")
        else:
            race.note("counted")


def claim_names(front: Front, race: Race, me: str) -> None:
    """Append people whom others append, too."""
    for turn in range(race.turns):
        rows = [{"type": "Person", "data": {"name": f"claimed-{turn}"}}]
        key = f"{me}-{turn}"
        try:
            receipt = front.call("load", rows, mode="append", idempotency_key=key)
        except KeyConflict:
            race.note("taken")
        else:
            race.note(f"claimed-{turn}", receipt.commit_id)


def merge_branches(front: Front, race: Race, me: str) -> None:
    """Make a branch, write on it, and merge it."""
    for turn in range(race.turns):
        name = f"{me}-{turn}"
        side = front.call("branch", name, create=True).view.branch
        front.call("mutate", ADD, n=name, branch=side, idempotency_key=f"{name} add")
        merged = front.call("merge", side, idempotency_key=f"{name} merge")
        race.note("merged", merged.commit_id)


def meet_people(front: Front, race: Race, me: str) -> None:
    """Insert edges to people who are about to leave."""
    for turn in range(race.turns):
        _or_refused(front, race, KNOW, f"p{turn}", f"{me}-{turn}")


def leave(front: Front, race: Race, me: str) -> None:
    """Delete those people."""
    for turn in range(race.turns):
        _or_refused(front, race, LEAVE, f"p{turn}", f"{me}-{turn}")


def _or_refused(front: Front, race: Race, text: str, name: str, key: str) -> None:
    """Write, or be told that somebody came first."""
    try:
        receipt = front.call("mutate", text, n=name, idempotency_key=key)
    except (og.ConstraintViolation, og.ConflictError) as refused:
        race.note(refused.code)
    else:
        race.note("left or met", receipt.commit_id)


WRITERS = [
    take_notes,
    take_notes,
    count_up,
    count_up,
    claim_names,
    claim_names,
    merge_branches,
    meet_people,
    leave,
]


# -- the race ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SIZES)
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Race, og.Graph]]:
    """Run it, and open the graph on its storage."""
    turns, times = request.param
    place = tmp_path_factory.mktemp("two") / "kb.og"
    with og.init(place, SCHEMA, durability="os") as graph:
        people = ["hub", COUNTER, *(f"p{turn}" for turn in range(turns))]
        graph.load([{"type": "Person", "data": {"name": name, "age": 0}} for name in people], mode="append")
        graph.branches.create(COUNTER)
    writers = WRITERS * times
    race = Race(turns, turns * len(writers))
    with (
        serving(place) as killed,
        serving(place) as kept,
        S3Proxy(killed.url) as proxy,
        ThreadPoolExecutor(len(writers)) as pool,
    ):
        addresses = [f"{proxy.endpoint}/graphs/kb", kept.graph]
        fronts = [Front(addresses[:: (1, -1)[number % 2]]) for number in range(len(writers))]
        running = [
            pool.submit(write, front, race, f"w{number}")
            for number, (write, front) in enumerate(zip(writers, fronts, strict=True))
        ]
        assert race.begun.wait(120), [future.exception() for future in running if future.done()]
        proxy.fail(lambda method, _: method == "POST", Fault.CUT_AFTER, MANY)
        while proxy.pending_faults > MANY - LOST:
            time.sleep(0.001)
        assert not all(future.done() for future in running)
        os.kill(killed.process.pid, signal.SIGKILL)
        for future in running:
            future.result(300)
        for front in fronts:
            front.close()
        assert kept.process.poll() is None
    with og.connect(place, durability="os") as graph:
        yield race, graph


Finished = tuple[Race, og.Graph]


def test_every_note_is_there_once(finished: Finished) -> None:
    race, graph = finished
    writers = [
        number
        for number, write in enumerate(WRITERS * (race.writes // race.turns // len(WRITERS)))
        if write is take_notes
    ]
    expected = sorted(f"w{number}-{turn}" for number in writers for turn in range(race.turns))
    assert sorted(row["text"] for row in graph.nodes("Note")) == expected


def test_every_acknowledged_commit_is_on_the_one_line(finished: Finished) -> None:
    race, graph = finished
    line = chain_of(graph.store)
    assert len(line) == len(set(line))
    assert set(race.acknowledged) <= set(line)


def test_each_increment_that_was_acknowledged_counts_once(finished: Finished) -> None:
    race, graph = finished
    assert race.outcomes["counted"] > 0
    assert graph.query(AGE, branch=COUNTER).scalar() == race.outcomes["counted"]
    assert len(graph.commits.list(COUNTER, 1_000)) == race.outcomes["counted"] + 2


def test_a_name_has_one_owner(finished: Finished) -> None:
    race, graph = finished
    wins = {name: count for name, count in race.outcomes.items() if name.startswith("claimed-")}
    assert wins == {f"claimed-{turn}": 1 for turn in range(race.turns)}
    names = [row["name"] for row in graph.nodes("Person")]
    assert len(names) == len(set(names))
    assert wins.keys() <= set(names)


def test_every_branch_was_merged(finished: Finished) -> None:
    race, graph = finished
    merged = {branch.name for branch in graph.branches.list()} - {"main", COUNTER}
    assert len(merged) == race.outcomes["merged"]
    assert merged <= {row["name"] for row in graph.nodes("Person")}


def test_no_edge_lost_an_end_and_the_graph_is_whole(finished: Finished) -> None:
    _, graph = finished
    names = {row["name"] for row in graph.nodes("Person")}
    assert {row["dst"] for row in graph.edges("Knows")} <= names
    check_whole(graph)
    assert graph.doctor().ok
