"""The oracle of the fault matrix: what a graph shows, as a value, and whether all ways to read it agree.

Room    tests. Also imported by spawned processes: no pytest here.
View    everything that a graph shows but for its ids, which are random: two runs of one writer show the same.
Ways    a raw scan of the Lance files, the tables of the API, a query, the past at the head's own commit, and
        a handle that was opened before: whatever one of them shows, all of them must.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import lance
import pyarrow as pa

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphNotFound, HistoryReclaimed, IntegrityError
from omnigraph.engine.export.files import MANIFEST, SCHEMA
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot
from tests.support.places import Place

ADD = "query add($name: String) { insert Company { name: $name } }"
ID = re.compile(r"\b[0-9A-Z]{26}\b")
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age, $p.note } }"


class Rows(tuple[tuple[Any, ...], ...]):
    """The rows of a type by id, with a short spelling: an assertion that fails must stay readable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} rows, {hash(tuple(self)) & 0xFFFF:04x}>"


Known = dict[tuple[str, int], Rows]  # by table and version
Content = Mapping[str, Rows]  # by name of the type


@dataclass(frozen=True)
class BranchView:
    """What one branch shows."""

    schema: str = field(repr=False)
    rows: Content
    commits: tuple[str, ...]  # what each is, newest first, as far as history goes
    ids: tuple[str, ...] = field(compare=False)  # of the commits


@dataclass(frozen=True)
class View:
    """What a graph shows. A tag whose commit was reclaimed has None."""

    branches: Mapping[str, BranchView]
    tags: Mapping[str, Content | None]

    @property
    def content(self) -> object:
        """What there is to read now; a sweep may take history away, and nothing of this."""
        return {name: (branch.schema, branch.rows) for name, branch in self.branches.items()}, self.tags


def look(graph: Graph, known: Known | None = None) -> View:
    """Read everything with one handle: every listed branch and tag, every type, every row."""
    scan = Scan(graph.store, known)
    branches = {ref.name: _branch(graph, scan, ref.name) for ref in graph.branches.list()}
    return View(branches, {tag.name: scan.at(tag.name) for tag in graph.tags.list()})


def look_at(place: Place, known: Known | None = None) -> View | None:
    """Read everything with a handle that knows nothing; None where there is no graph, or none yet."""
    try:
        graph = og.connect(place.address, **place.kwargs)
    except (GraphNotFound, IntegrityError):
        return None
    with graph:
        return look(graph, known)


class Exported(dict[str, str]):
    """The files of an export, with their digests, but for the ids in their names, which are random."""


def exported_at(place: Place) -> Exported | None:
    """Read every file that the manifest of an export names, and the manifest; None where there is none."""
    folder = Location.parse(place.address, place.options).objects
    manifest = folder.read(MANIFEST)
    if manifest is None:
        return None
    told = json.loads(manifest)
    sizes = {file["name"]: file["bytes"] for one in told["types"] for file in one["files"]}
    found = {name: folder.read(name) for name in (MANIFEST, SCHEMA, *sizes)}
    missing = sorted(name for name, data in found.items() if data is None)
    assert not missing, f"the manifest is there, and not {missing}"
    read = {name: data for name, data in found.items() if data is not None}
    for name, size in sizes.items():
        assert len(read[name]) == size, f"{name} has {len(read[name])} bytes, and should have {size}"
    read[MANIFEST] = ID.sub("an id", manifest.decode()).encode()
    return Exported({ID.sub("an id", name): hashlib.sha256(data).hexdigest() for name, data in read.items()})


def _branch(graph: Graph, scan: Scan, name: str) -> BranchView:
    commits = graph.commits.list(name)
    return BranchView(
        schema=graph.schema.show(name),
        rows=scan.content(graph.store.snapshot(name)),
        commits=tuple(_spelt(commit) for commit in commits),
        ids=tuple(commit.id for commit in commits),
    )


def _spelt(commit: og.Commit) -> str:
    """Say what a commit is; an id in its message, as that of a clone has, is another one in every run."""
    return ID.sub("an id", f"{commit.kind.value} {commit.message or ''}".strip())


class Scan:
    """Reads tables past the engine and its caches, each version once: versions of tables never change."""

    def __init__(self, store: GraphStore, known: Known | None = None) -> None:
        self._store = store
        self._known: Known = {} if known is None else known

    def content(self, snapshot: PinnedSnapshot) -> Content:
        """Return what a state holds, by type."""
        found = {}
        for table_id, pin in snapshot.state.pins.items():
            found[pin.name] = rows = self._rows(table_id, pin.version)
            assert len(rows) == pin.rows, f"{pin.name}: {len(rows)} rows stored, {pin.rows} said"
        return found

    def at(self, moment: str) -> Content | None:
        """Return what a commit or a tag holds; None if it says that it was reclaimed."""
        try:
            return self.content(resolve(self._store, "main", moment))
        except HistoryReclaimed:
            return None

    def _rows(self, table_id: str, version: int) -> Rows:
        location = self._store.location
        uri, options = location.join("tables", table_id), dict(location.options)
        if (uri, version) not in self._known:
            handle = lance.dataset(uri, version=version, storage_options=options or None)
            self._known[uri, version] = _sorted(handle.to_table())
        return self._known[uri, version]


def _sorted(table: pa.Table) -> Rows:
    names = sorted(table.column_names, key=lambda name: (name != "id", name))
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return Rows(sorted(rows, key=lambda row: str(row[0])))


# -- all ways to read agree ----------------------------------------------------------------------------


def check_agreement(graph: Graph, shown: View, stale: Graph, known: Known) -> None:
    """Hold the tables of the API, a query, time travel and a stale handle against the raw scan."""
    assert look(stale, known) == shown, "a handle that was opened before shows something else"
    branch, here = "main", shown.branches["main"]
    head = here.ids[0]
    for name, rows in here.rows.items():
        now, then = (_count(graph, name, branch, at) for at in (None, head))
        assert now == then == len(rows), f"{name}: the API has {now}, time travel {then}, a scan {len(rows)}"
    asked = sorted(map(repr, graph.query(PEOPLE, branch=branch).to_arrow().to_pylist()))
    read = graph.nodes("Person", branch=branch, at=head).to_arrow().to_pylist()
    told = sorted(repr({f"p.{name}": row[name] for name in ("name", "age", "note")}) for row in read)
    assert asked == told, "a query shows something else than time travel"
    assert {row["name"] for row in read} <= {value for row in here.rows["Person"] for value in row}


def _count(graph: Graph, name: str, branch: str, at: str | None) -> int:
    kind = graph.nodes if graph.schema.catalog(branch).find_node(name) is not None else graph.edges
    return len(kind(name, branch=branch, at=at).to_arrow())


def check_receipt(graph: Graph, receipt: object, shown: View) -> None:
    """Hold what a writer was told against what is there: its commit is the head, or a part of history."""
    told = getattr(receipt, "commit_id", None)
    if told is not None:
        branch = str(getattr(receipt, "branch", "main"))
        assert told in shown.branches[branch].ids, f"acknowledged as {told}, which is not there"
    commit = getattr(receipt, "commit", None)
    if commit is not None:
        assert graph.commits.get(commit.id) == commit, "the commit is not what was acknowledged"


def check_past(graph: Graph, before: View, shown: View, known: Known, *, reclaimed: bool) -> None:
    """Every head of before that a branch still has reads as it did, unless a sweep may have taken it."""
    scan = Scan(graph.store, known)
    held = {one for branch in shown.branches.values() for one in branch.ids}
    for name, branch in before.branches.items():
        if branch.ids[0] in held or name in shown.branches:
            then = scan.at(branch.ids[0])
            assert then == branch.rows or (reclaimed and then is None), (
                f"the past of {name} is not what it was"
            )


# -- nothing is in the way ---------------------------------------------------------------------------


def check_sound(graph: Graph) -> None:
    """The doctor finds nothing that anybody should do something about."""
    report = graph.doctor()
    grave = [*report.of("error"), *report.of("warning")]
    assert grave == [], "; ".join(str(one) for one in grave)


def check_next_write(graph: Graph, branches: list[str], readers: tuple[Graph, ...], name: str) -> None:
    """Write to branches, without a second attempt; every handle sees it, once."""
    for branch in branches:
        company = f"{name} {branch}"
        receipt = graph.mutate(ADD, name=company, branch=branch, message=name)
        assert receipt.attempts == 1, f"the next write on {branch} took {receipt.attempts} attempts"
        assert receipt.commit_id == graph.store.snapshot(branch).commit_id
        for reader in (graph, *readers):
            names = reader.nodes("Company", branch=branch).to_arrow()["name"].to_pylist()
            assert names.count(company) == 1, f"{company!r} is there {names.count(company)} times"


# -- a writer that came between ------------------------------------------------------------------------


def without(view: View, *writers: str) -> View:
    """Return what a graph would show if some writers, whose companies have their name, had not come."""
    tags = {name: None if rows is None else _others(rows, writers) for name, rows in view.tags.items()}
    return View({name: _without(branch, writers) for name, branch in view.branches.items()}, tags)


def _without(branch: BranchView, writers: tuple[str, ...]) -> BranchView:
    kept = [at for at, text in enumerate(branch.commits) if not text.endswith(writers)]
    return replace(
        branch,
        rows=_others(branch.rows, writers),
        commits=tuple(branch.commits[at] for at in kept),
        ids=tuple(branch.ids[at] for at in kept),
    )


def _others(content: Content, writers: tuple[str, ...]) -> Content:
    found = dict(content)
    if "Company" in found:
        found["Company"] = Rows(row for row in found["Company"] if not row[0].startswith(writers))
    return found


def times(view: View, company: str, branch: str = "main") -> int:
    """Return how often a company is there."""
    return sum(row[0] == company for row in view.branches[branch].rows["Company"])
