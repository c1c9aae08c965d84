"""Durability: on local disk, what was acknowledged survives a power cut.

The order of events is recorded: each fsync with its path, and the failpoints around the swap. Files are
compared with what was really synced, so a new kind of file that nobody syncs is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.base.errors import GraphError, StorageError
from omnigraph.storage.durability import Syncer, armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    BuildIndexes,
    DeleteIds,
    DropColumn,
    Effect,
    IndexSpec,
    Overwrite,
    SeveralEffects,
    StoredIndexKind,
    Upsert,
)
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan
from tests.support.graphs import KNOWS, PERSON, PERSON_SCHEMA, knows, make_graph, people, persons, write
from tests.support.places import Place

BEFORE, AFTER, RETURNED = "publish.before", "publish.after", "returned"
# Lance writes the first two beside what it commits and needs neither to read nor to commit again; a checksum
# that is lost makes a file unrecorded, not damaged; a derived file that is lost or torn is worked out again.
UNNEEDED = ("/_transactions/", "latest_version_hint.json", "/__checksums", "/_derived/")
MANY = 12_000


@dataclass
class Events:
    """What happened, in order: paths that were synced, and the names of points that were passed."""

    seen: list[str] = field(default_factory=list)

    def synced(self, upto: str | None = None, after: str | None = None) -> set[str]:
        """Return the paths synced before the first passing of one point and after that of another."""
        start = 0 if after is None else self.seen.index(after)
        end = len(self.seen) if upto is None else self.seen.index(upto)
        return {event for event in self.seen[start:end] if event.startswith("/")}

    def armed(self) -> dict[str, Callable[[], None]]:
        return {point: lambda point=point: self.seen.append(point) for point in (BEFORE, AFTER)}  # type: ignore[misc]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """Record every fsync that a store made from here on asks for; they are still carried out."""
    found = Events()

    def record(handle: int) -> None:
        found.seen.append(os.readlink(f"/proc/self/fd/{handle}"))
        os.fsync(handle)

    defaults = Syncer.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "fsync", record)
    return found


def files(root: Path) -> set[str]:
    """Return the files that matter below a folder."""
    found = (str(path) for path in root.rglob("*") if path.is_file())
    return {path for path in found if not any(part in path for part in UNNEEDED)}


def folders(root: Path) -> set[str]:
    found = (path for path in (root, *root.rglob("*")) if path.is_dir() and path.name != "_transactions")
    return {str(path) for path in found if not {"__checksums", "_derived"} & {*path.parts}}


@pytest.fixture
def graph(events: Events, local_place: Place) -> Iterator[GraphStore]:
    """A synced graph with a small table of edges and a large one of people, with key hashes."""
    with make_graph(local_place.address) as made:
        write(made, {PERSON: Append(people(f"p{number:05d}" for number in range(MANY)))})
        write(made, {KNOWS: Upsert(knows({"e": ("a", "b")}))})
        events.seen.clear()
        yield made


def publish(events: Events, graph: GraphStore, plan: PublishPlan) -> tuple[set[str], set[str], set[str]]:
    """Publish, and return the files made before the swap and after it, and the folders made."""
    root = Path(graph.location.uri)
    had, had_folders = files(root), folders(root)
    at_swap: set[str] = set()

    def look() -> None:
        at_swap.update(files(root))

    with armed({**events.armed(), BEFORE: lambda: (look(), events.seen.append(BEFORE))}):  # type: ignore[dict-item,func-returns-value]
        graph.publish("main", PlannedWrite(plan))
    events.seen.append(RETURNED)
    return at_swap - had, files(root) - at_swap, folders(root) - had_folders


ONE = people(["p00001", "new"])
NAMED = people(["n1"]).drop_columns(["age"])
EFFECTS: dict[str, dict[str, Effect]] = {
    "append": {PERSON: Append(people(["n1", "n2"]))},
    "append to two tables": {PERSON: Append(people(["n1"])), KNOWS: Append(knows({"f": ("a", "b")}))},
    "large append": {KNOWS: Append(knows({f"k{n}": ("a", "b") for n in range(MANY)}))},
    "upsert": {PERSON: Upsert(ONE)},
    "delete": {PERSON: DeleteIds(pa.array(["p00001", "p00002"]))},
    "overwrite": {PERSON: Overwrite(people(["n1"]))},
    "filled column": {PERSON: AddColumn(pa.field("score", pa.float64()), pa.scalar(0.5))},
    "empty column": {PERSON: AddColumn(pa.field("score", pa.float64()))},
    "copied column": {PERSON: AddColumn(pa.field("score", pa.int64()), copy_from="age")},
    "several": {PERSON: SeveralEffects((DropColumn("age"), DeleteIds(pa.array(["p00001"])), Append(NAMED)))},
}
PLANS: dict[str, PublishPlan] = {
    "index": PublishPlan(
        CommitKind.MAINTENANCE,
        effects={PERSON: BuildIndexes((IndexSpec("age", StoredIndexKind.BTREE),))},
    ),
    **{name: PublishPlan(CommitKind.MUTATION, effects=effects) for name, effects in EFFECTS.items()},
    "schema": PublishPlan(CommitKind.SCHEMA, schema=b"another"),
    "new table": PublishPlan(
        CommitKind.SCHEMA,
        create={"t-new": NewTable("New", "node", PERSON_SCHEMA)},
        effects={"t-new": Append(people(["n1"]))},
    ),
}


# -- the order


@pytest.mark.parametrize("name", PLANS)
def test_everything_staged_is_synced_before_the_swap(events: Events, graph: GraphStore, name: str) -> None:
    staged, _, _ = publish(events, graph, PLANS[name])

    assert staged, "the swap had something to wait for"
    assert staged - events.synced(upto=BEFORE) == set()


@pytest.mark.parametrize("name", PLANS)
def test_the_folders_that_name_staged_files_are_synced_before_the_swap(
    events: Events, graph: GraphStore, name: str
) -> None:
    staged, _, new_folders = publish(events, graph, PLANS[name])

    named = {str(Path(path).parent) for path in staged | new_folders}
    assert named - events.synced(upto=BEFORE) == set()


@pytest.mark.parametrize("name", PLANS)
def test_the_new_manifest_and_its_folder_are_synced_after_the_swap_and_before_the_receipt(
    events: Events, graph: GraphStore, name: str
) -> None:
    _, published, _ = publish(events, graph, PLANS[name])

    (manifest,) = published
    assert "/__manifest/_versions/" in manifest
    assert events.synced(after=AFTER, upto=RETURNED) >= {manifest, str(Path(manifest).parent)}


def test_a_file_is_synced_before_the_folder_that_names_it(events: Events, graph: GraphStore) -> None:
    """The other way round, a power cut between them could leave a name without content."""
    staged, published, _ = publish(events, graph, PLANS["upsert"])

    for path in staged | published:
        folder = str(Path(path).parent)
        assert events.seen.index(path) < len(events.seen) - 1 - events.seen[::-1].index(folder)


def test_deletion_files_and_indexes_are_among_what_is_synced(events: Events, graph: GraphStore) -> None:
    """So that the tests above cannot pass for want of such files."""
    upserted, _, _ = publish(events, graph, PLANS["upsert"])
    indexed, _, _ = publish(events, graph, PLANS["index"])

    kinds = {Path(path).relative_to(graph.location.uri).parts[2] for path in upserted | indexed}
    assert kinds == {"data", "_deletions", "_versions", "_indices"}


def test_key_hashes_are_written_and_nobody_waits_for_the_disk_to_have_them(
    events: Events, graph: GraphStore
) -> None:
    """A power cut may take them or leave a part of one: whoever needs them works them out again."""
    publish(events, graph, PLANS["large append"])

    assert list(Path(graph.location.uri, "tables", KNOWS).glob("_derived/*/keys-*"))
    assert not [path for path in events.synced() if "_derived" in path]


# -- other things that are acknowledged


def test_a_new_graph_is_synced_to_the_last_folder(events: Events, local_place: Place) -> None:
    root = Path(local_place.address)

    make_graph(local_place.address).close()

    assert files(root) - events.synced() == set()
    assert folders(root) - events.synced() == set()
    assert str(root.parent) in events.synced(), "the entry of the root itself"


def test_a_graph_made_in_folders_that_did_not_exist_is_reachable_after_a_power_cut(
    events: Events, tmp_path: Path
) -> None:
    make_graph(str(tmp_path / "new" / "newer" / "graph")).close()

    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "newer")} <= events.synced()


@pytest.mark.parametrize("what", ["create a branch", "delete a branch", "raise the floor"])
def test_control_writes_are_synced_before_they_are_acknowledged(
    events: Events, graph: GraphStore, what: str
) -> None:
    graph.branches.create("old", "main")
    root = Path(graph.location.uri)
    had, had_folders = files(root), folders(root)
    events.seen.clear()

    if what == "create a branch":
        graph.branches.create("new", "main")
    elif what == "delete a branch":
        graph.branches.delete("old")
    else:
        graph.raise_floor("main", 2)

    made = files(root) - had
    assert made
    assert made - events.synced() == set()
    assert {str(Path(path).parent) for path in made | (folders(root) - had_folders)} <= events.synced()


# -- the other mode


def test_durability_os_syncs_nothing_at_all(
    events: Events, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync", "sync"):
        monkeypatch.setattr(os, name, lambda *_: events.seen.append("/called"))
    with make_graph(local_place.address, durability="os") as store:
        for plan in PLANS.values():
            if plan.effects.keys() <= {KNOWS}:
                store.publish("main", PlannedWrite(plan))
        write(store, EFFECTS["upsert"])
        store.branches.create("dev", "main")
        store.branches.delete("dev")
        store.raise_floor("main", 2)

    assert events.seen == []


@pytest.mark.s3
def test_nothing_is_synced_on_an_object_store(events: Events, s3_place: Place) -> None:
    with make_graph(s3_place.address, **s3_place.kwargs) as store:
        write(store, EFFECTS["upsert"])

    assert events.seen == []


def test_an_unknown_mode_is_refused(local_place: Place) -> None:
    with pytest.raises(GraphError, match="'sync' or 'os'"):
        make_graph(local_place.address, durability="maybe")
    assert not Path(local_place.address).exists()


# -- a disk that fails


@pytest.mark.parametrize("point", ["staged_sync", "head_sync"])
def test_a_disk_that_fails_to_sync_is_a_typed_error(graph: GraphStore, point: str) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    def from_now_on() -> None:
        graph.syncer._fsync = fail

    with armed({f"{point}.before": from_now_on}), pytest.raises(StorageError) as caught:
        write(graph, EFFECTS["append"])

    assert caught.value.code == ("storage" if point == "staged_sync" else "outcome_unknown")
    assert ("n1" in persons(graph)) == (point == "head_sync")


def test_a_folder_whose_entry_could_not_be_synced_is_synced_again(tmp_path: Path) -> None:
    """A write that is tried again must not rest on a directory entry that was never synced."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    file = tmp_path / "a" / "b" / "f"
    file.write_bytes(b"x")
    synced: list[str] = []
    failing = {str(tmp_path)}

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path in failing:
            raise OSError("the disk is busy")
        synced.append(path)

    syncer = Syncer(enabled=True, fsync=fsync)
    with pytest.raises(StorageError):
        syncer.files([str(file)])
    failing.clear()
    synced.clear()
    syncer.files([str(file)])

    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(file)} <= {*synced}
