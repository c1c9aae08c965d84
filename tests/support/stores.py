"""What the storage tests share: looking at a whole graph's objects, and meeting a write half way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph.base.errors import GraphError
from omnigraph.storage.durability import Action
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Effect, Overwrite
from omnigraph.storage.transaction import PlannedWrite, PublishPlan, PublishReceipt, WriteTxn
from tests.support.graphs import PERSON
from tests.support.places import Place

Hook = Callable[[], object]


def location(place: Place) -> Location:
    """Return a place as the package addresses it."""
    return Location.parse(place.address, place.options)


def again(place: Place, retry: RetryPolicy | None = None) -> GraphStore:
    """Open the graph at a place as another process would: nothing shared with other stores."""
    return GraphStore.open(place.address, durability="os", retry=retry, **place.kwargs)


def everything(place: Place) -> dict[str, bytes | None]:
    """Return all objects at a place with their content; on local disk also the directories (None)."""
    where = location(place)
    found: dict[str, bytes | None] = {key: where.objects.read(key) for key, _ in where.objects.list()}
    if where.is_local and Path(where.uri).is_dir():
        root = Path(where.uri)
        found |= {f"{path.relative_to(root)}/": None for path in root.rglob("*") if path.is_dir()}
    return found


@contextmanager
def nothing_written(place: Place) -> Iterator[None]:
    """Check that a block leaves every object as it was, and adds none."""
    before = everything(place)
    yield
    after = everything(place)
    assert sorted(after) == sorted(before)
    assert after == before


def check_error(error: GraphError, code: str, *names: str) -> None:
    """Check that an error has its code, names the thing that it is about, and says what to do."""
    assert error.code == code
    assert error.remedy, f"no remedy in {error!r}"
    for name in names:
        assert name in str(error)
    assert error.remedy in str(error)


class Once:
    """A failpoint action that runs a function at the first hit only, and not at those it causes itself."""

    def __init__(self, do: Hook) -> None:
        self._do = do
        self.ran = False

    def __call__(self) -> None:
        if not self.ran:
            self.ran = True
            self._do()


class Always:
    """A failpoint action that runs a function at every hit, except those that the function itself causes."""

    def __init__(self, do: Hook) -> None:
        self._do = do
        self._busy = False
        self.times = 0

    def __call__(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self.times += 1
            self._do()
        finally:
            self._busy = False


class Pause:
    """A failpoint action that parks the first thread to arrive until it is let go."""

    def __init__(self) -> None:
        self._arrived, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        if not self._arrived.is_set():
            self._arrived.set()
            assert self._go.wait(60), "nobody let the parked writer go"

    def wait(self) -> None:
        assert self._arrived.wait(60), "no writer arrived"

    def let_go(self) -> None:
        self._go.set()


class Hits:
    """How often failpoints were passed, to be armed with `hits.at(...)`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def at(self, *points: str) -> dict[str, Action]:
        return {point: partial(self._count, point) for point in points}

    def _count(self, point: str) -> None:
        with self._lock:
            self.counts[point] += 1

    @property
    def total(self) -> int:
        return self.counts.total()


STAGING = ("table_data.before", "table_deletions.before", "table_commit.before", "table_create.before")


@dataclass
class Scripted:
    """A write that does the given effects, counts how often it is asked, and can be met half way."""

    effects: Mapping[str, Effect]
    options: Mapping[str, Any] = field(default_factory=dict)
    on_prepare: Hook | None = None
    on_validate: Hook | None = None
    bases: list[int] = field(default_factory=list)
    validated_on: list[int] = field(default_factory=list)
    commit_ids: set[str] = field(default_factory=set)

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        self.bases.append(txn.snapshot.state.version)
        self.commit_ids.add(txn.commit_id)
        if self.on_prepare is not None:
            self.on_prepare()
        return PublishPlan(**{"kind": CommitKind.MUTATION, "effects": self.effects, **self.options})

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        self.validated_on.append(txn.snapshot.state.version)
        self.commit_ids.add(txn.commit_id)
        if self.on_validate is not None:
            self.on_validate()


def staged_versions(place: Place, table_id: str) -> set[int]:
    """Return the detached versions stored for a table, published or not."""
    keys = (key for key, _ in location(place).objects.list(f"tables/{table_id}/_versions"))
    names = (key.rsplit("/", 1)[-1].removesuffix(".manifest") for key in keys)
    return {int(name[1:]) for name in names if name.startswith("d")}


def tidy(store: GraphStore) -> PublishReceipt:
    """Publish a maintenance commit: other files, the same rows."""
    same = store.table(store.snapshot(), PERSON).to_table()
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={PERSON: Overwrite(same)}, replans=True)
    return store.publish("main", PlannedWrite(plan))
