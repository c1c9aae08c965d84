"""What the processes of `soak.py` do. Each function here is the whole life of one of them.

Every process keeps two logs that outlive it: what was acknowledged to it, a line for each, synced before it
goes on; and what went wrong. Writers have keys of their own, so what must be there at the end is exact.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import omnigraph as og

SCHEMA = """
node Item { name: String @key  n: I64? @index  text: String? }
node Part { name: String @key  n: I64? }
edge Uses: Item -> Part { n: I64? }
"""
ENDS = {"src": "from", "dst": "to"}  # columns of edges, as the feed names them
MOST = 60  # entities of a type that a writer keeps on a branch: beyond it, it deletes
Rows = dict[tuple[str, str], dict[str, Any]]
Model = dict[str, dict[str, int]]  # type -> key -> value; the key of an edge is its two ends
REPEAT = {"publish_contention", "read_set_conflict", "staged_files_gone"}
GONE = {"history_reclaimed", "change_feed_gap", "commit_not_found"}
NAMES = {"branch_not_found"}  # somebody else deleted or renamed it


class Violation(Exception):
    """Something that must never be."""


class Worker:
    """One process: its graph, its logs, its counts."""

    def __init__(self, address: str, folder: str, name: str, expected: set[str]) -> None:
        self.name = name
        self.random = Random(name)
        self.graph = og.connect(address, durability="os")
        self.codes: Counter[str] = Counter()
        self.facts: dict[str, float] = {}
        self._expected = expected
        self._folder = Path(folder)
        self._acks = open(self._folder / f"{name}.acks", "ab", buffering=0)  # noqa: SIM115 - as long as it lives
        self._told = 0.0

    def acknowledged(self, **line: Any) -> None:
        """Note that something was acknowledged, durably."""
        self._acks.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._acks.fileno())

    def run(self, turn: Callable[[int], None], pause: float) -> None:
        """Take turns until the end is called; count how each ended."""
        number = 0
        self._tell()
        while not (self._folder / "stop").exists():
            self.attempt(lambda number=number: turn(number))  # type: ignore[misc]
            number += 1
            self._tell()
            time.sleep(pause)
        self._tell(last=True)
        self.graph.close()

    def attempt(self, call: Callable[[], None]) -> bool:
        """Do one thing; say whether it succeeded. What may not happen is a violation."""
        try:
            call()
            self.codes["ok"] += 1
            return True
        except og.GraphError as error:
            self.codes[error.code] += 1
            if error.code not in self._expected:
                self.violation(f"{error.code}: {error}", traceback.format_exc())
        except Exception as error:  # noqa: BLE001 - that nothing else comes out is the point
            self.codes[type(error).__name__] += 1
            self.violation(repr(error), traceback.format_exc())
        return False

    @contextmanager
    def merging(self, branch: str) -> Iterator[None]:
        """Let merges of a branch come one after the other: two crosswise ones are a conflict by contract."""
        with open(self._folder / f"{branch}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def violation(self, what: str, trace: str = "") -> None:
        """Note something that must not be."""
        with open(self._folder / f"{self.name}.violations", "a") as log:
            log.write(json.dumps({"who": self.name, "what": what, "trace": trace}) + "\n")

    def _tell(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if last or now > self._told + 1:
            self._told = now
            text = json.dumps({"codes": self.codes, **self.facts})
            place = self._folder / f"{self.name}.status"
            place.with_suffix(".new").write_text(text)
            place.with_suffix(".new").replace(place)


# -- writers -------------------------------------------------------------------------------------------


def empty() -> Model:
    """Return a model of nothing."""
    return {"Item": {}, "Part": {}, "Uses": {}}


def apply(model: Model, put: Model, gone: dict[str, list[str]]) -> None:
    """Bring a model up to date with one acknowledged write."""
    for kind, rows in put.items():
        model[kind].update(rows)
    for kind, keys in gone.items():
        for key in keys:
            del model[kind][key]


def write(address: str, folder: str, name: str, pause: float, life: float) -> None:
    """Insert, update, load and delete, on main and on a branch that begins anew now and then."""
    worker = Worker(address, folder, name, REPEAT)
    writer = Writer(worker, life)
    worker.run(writer.turn, pause)


class Writer:
    """Writes entities of its own, and knows what must be there."""

    def __init__(self, worker: Worker, life: float) -> None:
        self._worker = worker
        self._graph = worker.graph
        self._random = worker.random
        self._models = {"main": empty(), "side": empty()}
        self._life = life
        self._number = 0
        self._side = f"{worker.name}-side"
        self._since: float | None = None  # when the branch was made

    def turn(self, number: int) -> None:
        """Write once."""
        self._renew()
        where = "side" if self._since is not None and number % 3 == 0 else "main"
        model = self._models[where]
        actions = [self._insert, self._update, self._load, self._link, self._delete, self._unlink]
        full = max(map(len, model.values())) > MOST
        put, gone = (self._thin if full else self._random.choice(actions))(where, model)
        if not (put or gone):
            return
        self._worker.acknowledged(where=where, put=put, gone=gone)
        apply(model, put, gone)
        self._worker.facts["rows"] = sum(len(rows) for one in self._models.values() for rows in one.values())
        self._worker.facts["writes"] = self._worker.facts.get("writes", 0) + 1

    def _renew(self) -> None:
        """Merge the branch, delete it, and make it anew, when it has lived for long enough."""
        now = time.monotonic()
        if self._since is not None and now > self._since + self._life:
            with self._worker.merging(self._side):
                self._graph.merge(self._side, "main")
                self._graph.branches.delete(self._side)
            self._since = None
        if self._since is None:
            self._graph.branches.create(self._side)
            self._since = now

    def _key(self, where: str) -> str:
        self._number += 1
        return f"{self._worker.name}.{where}.{self._number}"

    def _mutate(self, where: str, statement: str, **values: Any) -> None:
        kinds = {str: "String", int: "I64", list: "[String]"}
        declared = ", ".join(f"${name}: {kinds[type(value)]}" for name, value in values.items())
        branch = self._side if where == "side" else "main"
        self._graph.mutate(f"query w({declared}) {{ {statement} }}", values, branch=branch)

    def _insert(self, where: str, _: Model) -> tuple[Model, dict[str, list[str]]]:
        item, part = self._key(where), self._key(where)
        n = self._number
        statement = (
            "insert Item { name: $i, n: $n } insert Part { name: $p, n: $n } "
            "insert Uses { from: $i, to: $p, n: $n }"
        )
        self._mutate(where, statement, i=item, p=part, n=n)
        return {"Item": {item: n}, "Part": {part: n}, "Uses": {f"{item} {part}": n}}, {}

    def _update(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        if not model["Item"]:
            return {}, {}
        item = self._random.choice(sorted(model["Item"]))
        self._number += 1
        self._mutate(where, "update Item set { n: $n } where name = $i", i=item, n=self._number)
        return {"Item": {item: self._number}}, {}

    def _load(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        """New entities, and some that are there, with other values."""
        kind = self._random.choice(["Item", "Part"])
        keys = [self._key(where) for _ in range(6)]
        keys += self._random.sample(sorted(model[kind]), min(3, len(model[kind])))
        rows = [{"type": kind, "data": {"name": key, "n": self._number}} for key in keys]
        branch = self._side if where == "side" else "main"
        self._graph.load(rows, mode="merge", branch=branch)
        return {kind: dict.fromkeys(keys, self._number)}, {}

    def _link(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        if not (model["Item"] and model["Part"]):
            return {}, {}
        item, part = (self._random.choice(sorted(model[kind])) for kind in ("Item", "Part"))
        if f"{item} {part}" in model["Uses"]:
            return {}, {}
        self._number += 1
        self._mutate(where, "insert Uses { from: $i, to: $p, n: $n }", i=item, p=part, n=self._number)
        return {"Uses": {f"{item} {part}": self._number}}, {}

    def _unlink(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        if not model["Uses"]:
            return {}, {}
        edge = self._random.choice(sorted(model["Uses"]))
        item, part = edge.split(" ")
        self._mutate(where, "delete Uses where from = $i and to = $p", i=item, p=part)
        return {}, {"Uses": [edge]}

    def _delete(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        return self._remove(where, model, self._random.choice(["Item", "Part"]), 1)

    def _thin(self, where: str, model: Model) -> tuple[Model, dict[str, list[str]]]:
        return self._remove(where, model, max(("Item", "Part"), key=lambda kind: len(model[kind])), MOST // 2)

    def _remove(self, where: str, model: Model, kind: str, count: int) -> tuple[Model, dict[str, list[str]]]:
        """Delete nodes; their edges go along."""
        keys = self._random.sample(sorted(model[kind]), min(count, len(model[kind])))
        if not keys:
            return {}, {}
        self._mutate(where, f"delete {kind} where name in $keys", keys=keys)
        edges = [edge for edge in sorted(model["Uses"]) if set(edge.split(" ")) & set(keys)]
        return {}, {kind: keys, "Uses": edges}


# -- readers -------------------------------------------------------------------------------------------


def state(graph: og.Graph, **moment: Any) -> Rows:
    """Return every row of a state."""
    tables = {
        "Item": graph.nodes("Item", **moment),
        "Part": graph.nodes("Part", **moment),
        "Uses": graph.edges("Uses", **moment),
    }
    return {
        (kind, row["id"]): {ENDS.get(name, name): value for name, value in row.items()}
        for kind, rows in tables.items()
        for row in rows.to_arrow().to_pylist()
    }


def read(address: str, folder: str, name: str, pause: float, _: float) -> None:
    """Query heads, travel to commits that were read before, compare states, follow the feed."""
    worker = Worker(address, folder, name, REPEAT | GONE | NAMES)
    reader = Reader(worker)
    worker.run(reader.turn, pause)


class Reader:
    """Reads the same things in several ways: they must agree, or the reason must be given."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._graph = worker.graph
        self._random = worker.random
        self._known: deque[tuple[str, Rows]] = deque(maxlen=12)  # of main
        self._replica: Rows = {}
        self._cursor: str | None = None

    def turn(self, number: int) -> None:
        """Ask one thing."""
        [self._head, self._past, self._diff, self._feed, self._join, self._side][number % 6]()

    def _expect(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"{what}: {found!r} instead of {expected!r}"[:2000])

    def _head(self) -> None:
        commit = self._graph.branches.get("main").head
        assert commit is not None
        self._known.append((commit, state(self._graph, at=commit)))

    def _past(self) -> None:
        if self._known:
            commit, rows = self._random.choice(self._known)
            self._expect(f"rows of {commit} again", changed(rows, state(self._graph, at=commit)), {})

    def _diff(self) -> None:
        if len(self._known) < 2:
            return
        (a, before), (b, after) = (
            self._random.sample(list(self._known)[-4:], 2) if len(self._known) > 3 else list(self._known)[-2:]
        )
        rows = dict(before)
        for change in self._graph.diff(a, b):
            follow(rows, change)
        self._expect(f"the diff from {a} to {b}", changed(rows, after), {})

    def _feed(self) -> None:
        """Keep a copy of main by its feed alone."""
        if self._cursor is None:
            self._replica.clear()
            baseline = self._graph.changes.baseline()
            for change in baseline:
                follow(self._replica, change)
            self._cursor = baseline.resume_cursor
            return
        try:
            page = self._graph.changes.poll(self._cursor)
            blocks = list(page.blocks)
            while page.page_token is not None:
                page = self._graph.changes.poll(page_token=page.page_token)
                blocks += page.blocks
        except og.GraphError:
            self._cursor = None  # a gap: begin again
            raise
        self._cursor = page.cursor
        for block in blocks:
            for change in block.changes:
                follow(self._replica, change)
        if blocks:
            commit = blocks[-1].cause.commit_id
            self._expect(f"the feed at {commit}", changed(self._replica, state(self._graph, at=commit)), {})

    def _join(self) -> None:
        """Ask for edges by a query, and count them by a scan of the same commit."""
        commit = self._graph.branches.get("main").head
        text = "query q() { match { $i: Item  $i $u:uses $p } return { count($u.@id) as n } }"
        (row,) = self._graph.query(text, at=commit).rows
        self._expect(f"edges at {commit}", row["n"], len(self._graph.edges("Uses", at=commit)))

    def _side(self) -> None:
        """Read the head of some branch: by its name, all of one state."""
        branch = self._random.choice(self._graph.branches.list())
        text = "query q() { match { $i: Item } return { count($i) as n, count($i.n) as m } }"
        (row,) = self._graph.query(text, branch=branch.name).rows
        self._expect(f"items of {branch.name} with a number", row["m"], row["n"])


def follow(rows: Rows, change: Any) -> None:
    """Apply one change to rows."""
    if change.after is None:
        del rows[change.type_name, change.id]
    else:
        rows[change.type_name, change.id] = dict(change.after)


def changed(one: Rows, other: Rows) -> dict[tuple[str, str], Any]:
    """Return where two states differ; empty if they do not."""
    return {
        key: (one.get(key), other.get(key)) for key in one.keys() | other if one.get(key) != other.get(key)
    }


# -- everybody else ------------------------------------------------------------------------------------


def merge(address: str, folder: str, name: str, pause: float, _: float) -> None:
    """Merge branches of writers into main, and main into them."""
    worker = Worker(address, folder, name, REPEAT | NAMES | {"history_reclaimed"})

    def turn(number: int) -> None:
        sides = [branch.name for branch in worker.graph.branches.list() if branch.name.endswith("-side")]
        if sides:
            side = worker.random.choice(sides)
            ends = (side, "main") if number % 3 else ("main", side)
            with worker.merging(side):
                outcome = worker.graph.merge(*ends)
            worker.codes[f"outcome: {outcome.outcome.value}"] += 1

    worker.run(turn, pause)


def optimize(address: str, folder: str, name: str, pause: float, _: float) -> None:
    """Optimize every branch again and again."""
    worker = Worker(address, folder, name, REPEAT | NAMES)

    def turn(number: int) -> None:
        branches = worker.graph.branches.list()
        report = worker.graph.optimize(branch=branches[number % len(branches)].name)
        for row in report.types:
            if row.error:
                raise Violation(f"{row.type}: {row.error}")
            if row.skipped:
                worker.codes[f"skipped: {row.skipped}"] += 1
        worker.facts["commits"] = worker.facts.get("commits", 0) + (report.commit_id is not None)

    worker.run(turn, pause)


def clean(address: str, folder: str, name: str, pause: float, grace: float) -> None:
    """Clean up again and again, with a grace period of seconds."""
    worker = Worker(address, folder, name, REPEAT)

    def turn(_: int) -> None:
        report = worker.graph.cleanup(
            keep=10, older_than=f"{round(3 * grace)}s", grace=f"{round(grace)}s", dry_run=False
        )
        for part in report.parts:
            if part.error:
                raise Violation(f"{part.name}: {part.error}")
        worker.facts["freed"] = worker.facts.get("freed", 0) + report.bytes
        worker.facts["files"] = worker.facts.get("files", 0) + report.files

    worker.run(turn, pause)


def control(address: str, folder: str, name: str, pause: float, _: float) -> None:
    """Make, rename and delete branches; tag commits, and read them when history around them is gone."""
    worker = Worker(address, folder, name, REPEAT)
    tags: deque[tuple[str, Rows]] = deque()

    def turn(number: int) -> None:
        graph = worker.graph
        first, second = f"made-{number}", f"renamed-{number}"
        graph.branches.create(first)
        worker.acknowledged(branch=first)
        graph.mutate("query w($n: String) { insert Item { name: $n, n: 1 } }", n=first, branch=first)
        graph.branches.rename(first, second)
        graph.query(
            "query q($n: String) { match { $i: Item { name: $n } } return { $i.n } }", n=first, branch=second
        )
        tag = graph.tags.create(f"tag-{number}")
        tags.append((tag.name, state(graph, at=tag.name)))
        for kept, rows in tags:
            if changed(rows, state(graph, at=kept)):
                raise Violation(f"tag {kept} reads otherwise than before")
        graph.branches.delete(second)
        worker.acknowledged(deleted=second)
        if len(tags) > 4:
            graph.tags.delete(tags.popleft()[0])

    worker.run(turn, pause)
