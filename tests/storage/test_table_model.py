"""Tables against a model: random effects by two writers, compared with a dictionary after every commit.

The writers take turns and share nothing but the files, so that each meets fragments, deletions and
columns that the other made. At the end every version is read again, by a third that has cached nothing.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.compaction import (
    OptimizePolicy,
    fragment_facts,
    rewrite,
    worth_rewriting,
    write_anew,
)
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    Compact,
    DeleteIds,
    DropColumn,
    Effect,
    FillNulls,
    Overwrite,
    RenameColumn,
    Upsert,
)
from omnigraph.storage.tables.row_runs import RowRuns
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.storage.docs import DOC, make_docs
from tests.support.graphs import write

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
NAMES = [f"k{number}" for number in range(12)]
BULK = 4_500  # rows enough for a fragment past the first tier
COUNT = pa.int64()
Row = dict[str, Any]
Content = dict[str, Row]

keys = st.sampled_from(NAMES)
values = st.none() | st.integers(-3, 3)
small = st.dictionaries(keys, values, min_size=1, max_size=4)
kinds = st.one_of(
    st.tuples(st.just("upsert"), small, st.lists(keys, max_size=2)),
    st.tuples(st.just("upsert"), small, st.just([])),
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("bulk")),
    st.tuples(st.just("delete"), st.lists(keys, max_size=3)),
    st.tuples(st.just("delete above"), st.integers(-3, 3)),  # many rows at once, whole fragments among them
    st.tuples(st.just("overwrite"), small),
    st.tuples(st.just("add"), st.sampled_from(["c1", "c2"]), values),
    st.tuples(st.just("copy"), st.sampled_from(["c1", "c2"])),
    st.tuples(st.just("fill nulls"), st.integers(-3, 3)),
    st.tuples(st.just("drop"), st.sampled_from(["c1", "c2", "tags"])),
    st.tuples(st.just("rename"), st.sampled_from(["c1", "c2"]), st.sampled_from(["c1", "c2", "c3"])),
)
histories = st.lists(st.tuples(st.integers(0, 1), kinds), min_size=8, max_size=22)


@dataclass
class Model:
    """What the table should hold."""

    rows: Content = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=lambda: {f.name: f.type for f in SCHEMA})
    fresh: itertools.count[int] = field(default_factory=itertools.count)
    has_bulk: bool = False

    def row(self, name: str, n: int | None) -> Row:
        made = dict.fromkeys(self.types)
        return {**made, "id": name, "n": n, **({"tags": ["t", str(n)]} if "tags" in self.types else {})}

    def table(self, rows: Content) -> pa.Table:
        fields = [pa.field(name, kind, nullable=name != "id") for name, kind in self.types.items()]
        return pa.Table.from_pylist(list(rows.values()), schema=pa.schema(fields))

    def step(self, what: tuple[Any, ...]) -> tuple[Effect, tuple[int, int, int]] | None:
        """Apply an operation; return the effect that should do the same, and what it should count."""
        match what:
            case ("upsert", found, removed):
                new = {name: self.row(name, n) for name, n in found.items()}
                gone = {name for name in removed if name in self.rows and name not in new}
                updated = len(new.keys() & self.rows.keys())
                self.rows = {k: v for k, v in self.rows.items() if k not in gone} | new
                effect = Upsert(self.table(new), pa.array(removed, pa.string()))
                return effect, (len(new) - updated, updated, len(gone))
            case ("append", count):
                return self._append({f"f{next(self.fresh)}": 1 for _ in range(count)})
            case ("bulk",) if not self.has_bulk:
                self.has_bulk = True
                return self._append({f"b{number}": number % 5 for number in range(BULK)})
            case ("delete", names):
                return self._delete(set(names), DeleteIds(pa.array(names, pa.string())))
            case ("delete above", least):
                matching = {k for k, row in self.rows.items() if row["n"] is not None and row["n"] > least}
                return self._delete(matching, DeleteIds(pa.array(sorted(matching), pa.string())))
            case ("overwrite", found):
                counts = (len(found), 0, len(self.rows))
                self.rows = {name: self.row(name, n) for name, n in found.items()}
                self.has_bulk = False
                return Overwrite(self.table(self.rows)), counts
            case ("add", name, n) if name not in self.types:
                self.types[name] = COUNT
                self.rows = {k: {**row, name: n} for k, row in self.rows.items()}
                fill = None if n is None else pa.scalar(n, COUNT)
                return AddColumn(pa.field(name, COUNT), fill), (0, 0, 0)
            case ("copy", name) if name not in self.types:
                self.types[name] = COUNT
                self.rows = {k: {**row, name: row["n"]} for k, row in self.rows.items()}
                return AddColumn(pa.field(name, COUNT), copy_from="n"), (0, 0, 0)
            case ("fill nulls", n):
                filled = sum(row["n"] is None for row in self.rows.values())
                self.rows = {
                    k: {**row, "n": n if row["n"] is None else row["n"]} for k, row in self.rows.items()
                }
                return FillNulls("n", pa.scalar(n, COUNT)), (0, filled, 0)
            case ("drop", name) if name in self.types:
                del self.types[name]
                self.rows = {k: {c: v for c, v in row.items() if c != name} for k, row in self.rows.items()}
                return DropColumn(name), (0, 0, 0)
            case ("rename", old, new) if old in self.types and new not in self.types:
                self.types = {new if c == old else c: kind for c, kind in self.types.items()}
                self.rows = {
                    k: {new if c == old else c: v for c, v in row.items()} for k, row in self.rows.items()
                }
                return RenameColumn(old, new), (0, 0, 0)
        return None  # it makes no sense here

    def _append(self, found: Mapping[str, int]) -> tuple[Effect, tuple[int, int, int]]:
        new = {name: self.row(name, n) for name, n in found.items()}
        self.rows = self.rows | new
        return Append(self.table(new)), (len(new), 0, 0)

    def _delete(self, names: set[str], effect: Effect) -> tuple[Effect, tuple[int, int, int]]:
        gone = names & self.rows.keys()
        self.rows = {k: v for k, v in self.rows.items() if k not in gone}
        return effect, (0, 0, len(gone))


def content(store: GraphStore, version: int | None = None) -> Content:
    found = store.table(store.snapshot(at=version), DOC).to_table().to_pylist()
    by_id = {str(row["id"]): row for row in found}
    assert len(by_id) == len(found), "one id twice"
    return by_id


def rewritten(store: GraphStore) -> Compact | None:
    """Rewrite what is worth it, for a version that may be long past when it is published."""
    snapshot = store.snapshot()
    handle = store.table(snapshot, DOC)
    layout = store.reads.layout(handle)
    chosen = worth_rewriting(OptimizePolicy(), fragment_facts(handle, layout))
    if not chosen:
        return None
    version = snapshot.state.version
    rewriter = partial(write_anew, RowRuns(store.location.objects, store.reads.deleted))
    new = rewrite(handle, layout, store.reads.deleted, OptimizePolicy(), chosen, version, rewriter)
    return Compact(new, most_lost=1.0)


def maintain(store: GraphStore, effect: Compact) -> None:
    """Publish what was rewritten, as a commit that changes no row."""
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={DOC: effect}, replans=True)
    receipt = store.publish("main", PlannedWrite(plan))
    assert [(c.inserted, c.updated, c.deleted) for c in receipt.tables] in ([], [(0, 0, 0)])


def run(root: Path, history: list[tuple[int, tuple[Any, ...]]]) -> None:
    model, seen = Model(), dict[int, Content]()
    waiting: Compact | None = None
    address = str(root / "g")
    with (
        make_docs(address, SCHEMA) as first,
        GraphStore.open(address, durability="os") as second,
    ):
        for number, (who, what) in enumerate(history):
            if number % 4 == 3:
                waiting = rewritten((first, second)[who]) or waiting
            elif number % 4 == 1 and waiting is not None:  # two steps later
                maintain((first, second)[who], waiting)
                assert content(first) == model.rows
            wanted = model.step(what)
            if wanted is None:
                continue
            effect, counts = wanted
            receipt = write((first, second)[who], {DOC: effect})

            if receipt.commit is not None and receipt.tables:
                change = receipt.tables[0]
                assert (change.inserted, change.updated, change.deleted) == counts
            else:
                assert counts == (0, 0, 0)
            head = first.snapshot()
            assert content(first) == model.rows
            assert head.pin(DOC).rows == len(model.rows)
            seen[head.state.version] = model.rows

    with GraphStore.open(address, durability="os") as third:
        for version, then in seen.items():
            assert content(third, version) == then


COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],  # a history takes too long to be shrunk
    "print_blob": True,
}


@settings(max_examples=15, **COMMON)
@given(histories)
def test_any_history_of_effects_leaves_what_a_dictionary_would_hold(
    history: list[tuple[int, tuple[Any, ...]]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        run(Path(root), history)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(max_examples=150, **COMMON)
@given(st.lists(st.tuples(st.integers(0, 1), kinds), min_size=20, max_size=60))
def test_any_long_history_of_effects_leaves_what_a_dictionary_would_hold(
    history: list[tuple[int, tuple[Any, ...]]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        run(Path(root), history)
