"""Fill: `graph.embed`: vectors for the texts that have none, as one commit.

    one snapshot -> texts -> embedder -> spool        (hours, perhaps; nobody waits for it)
    newest state -> rows whose text is in the spool -> **one commit**

The second half looks at the graph again, as often as it loses a race. It takes the vector of a row from the
spool by the digest of the text that the row has *then*, so no row ever gets the vector of another text: one
whose text changed meanwhile is left, and reported. It is an ordinary write: judged, published once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, StaleVersion
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, NodeType
from omnigraph.engine.change import Catalogs, ChangeSet, TypeChange
from omnigraph.engine.embed.asking import Conversation, TextCounts
from omnigraph.engine.embed.request import (
    SHOWN,
    EmbeddedProperty,
    EmbedListener,
    EmbedProgress,
    EmbedReport,
    EmbedTarget,
    FillMode,
    FillRequest,
    Mask,
    lacks_text,
    wanted,
)
from omnigraph.engine.embed.spool import VectorSpool, digest_of, forget_old, spool_name, usual_folder
from omnigraph.engine.options import WriteOptions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import NODES, ChangeWrite, Draft, ExecutorFor
from omnigraph.execution.search.embedding import Embedder
from omnigraph.storage.cost import measured
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PublishPlan, WriteTxn

BATCH_ROWS, BATCH_BYTES = 2_048, 16 << 20
EMBEDDED = "embedded"  # the label under which a commit keeps which model made which vectors
REFUSED = "the fill was refused"


@dataclass(frozen=True, eq=False)
class Fills:
    """Fills the vectors of one graph."""

    store: GraphStore
    catalogs: Catalogs
    embedder: Embedder | None
    executor: ExecutorFor = LocalExecutor

    def fill(
        self,
        request: FillRequest,
        options: WriteOptions,
        folder: str | os.PathLike[str] | None = None,
        batch: int = 128,
        progress: EmbedListener | None = None,
    ) -> EmbedReport:
        """Make the vectors that a request wants, or remove them.

        Spools lie in the folder, or in the usual place; a request has so many texts at most.
        """
        listener = progress or (lambda now: None)
        with measured() as meter, ExitStack() as closing:
            report = _Run(self, request, options, folder, batch, listener, closing).run()
        return replace(report, cost=meter.cost)


class _Run:
    """One call of `embed`."""

    def __init__(
        self,
        filling: Fills,
        request: FillRequest,
        options: WriteOptions,
        folder: str | os.PathLike[str] | None,
        batch: int,
        progress: EmbedListener,
        closing: ExitStack,
    ) -> None:
        self._filling = filling
        self._request = request
        self._options = options
        self._named_folder = None if folder is None else Path(folder)
        self._batch = batch
        self._progress = progress
        self._closing = closing
        self._snapshot = filling.store.snapshot(options.branch)
        self._targets = request.targets(filling.catalogs.get(self._snapshot.schema))
        self._spools: dict[str, VectorSpool] = {}  # by property id
        self._asked: dict[str, TextCounts] = {}

    def run(self) -> EmbedReport:
        """Ask for what is missing, and publish."""
        request, options = self._request, self._options
        if not options.dry_run and request.mode is not FillMode.CLEAN and self._targets:
            self._ask_for_all(self._embedder())
        draft = FillDraft(request, self._targets, self._spools, self._closing)
        intent = replace(options.intent, message=options.message or self._message())
        if options.dry_run:
            return self._rehearsed(draft)
        self._progress(EmbedProgress("writing"))
        write = FillWrite(draft, self._filling.catalogs, self._filling.executor, self._label())
        done = self._filling.store.publish(options.branch, write, intent)
        for spool in self._spools.values():
            spool.delete()
        self._progress(EmbedProgress("done"))
        report = self._report(draft.outcome)
        return replace(report, commit=done.commit, attempts=done.attempts, warnings=done.warnings)

    def _embedder(self) -> Embedder:
        embedder = self._filling.embedder
        if embedder is None:
            raise InvalidRequest(
                "vectors are made by an embedder, and none is configured",
                remedy="Open the graph with embedding=, or set OMNIGRAPH_EMBED_PROVIDER or the key of a "
                "provider (OPENROUTER_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY)",
            )
        for target in self._targets:
            if target.embed.model is not None:
                embedder.check_model(target.embed.model)
        return embedder

    # -- asking ------------------------------------------------------------------------------------

    def _ask_for_all(self, embedder: Embedder) -> None:
        folder = self._folder(embedder)
        for target in self._targets:
            spool = self._spool(folder, target, embedder)
            self._spools[target.vector.id] = spool
            self._asked[target.vector.id] = self._ask(embedder, target, spool)

    def _folder(self, embedder: Embedder) -> Path:
        """Return where spools lie; where nobody says which model it is, none may be taken up later."""
        folder = self._named_folder or usual_folder()
        if folder is None or embedder.model is None:
            temporary = TemporaryDirectory(prefix="omnigraph-embed-", ignore_cleanup_errors=True)
            return Path(self._closing.enter_context(temporary))
        forget_old(folder, self._filling.store.clock)
        return folder

    def _spool(self, folder: Path, target: EmbedTarget, embedder: Embedder) -> VectorSpool:
        uri, size = self._filling.store.location.uri, target.size
        name = spool_name(uri, target.declared.id, target.vector.id, embedder.provider, embedder.model, size)
        spool = VectorSpool(folder / name, size)
        self._closing.callback(spool.close)
        return spool

    def _ask(self, embedder: Embedder, target: EmbedTarget, spool: VectorSpool) -> TextCounts:
        total = self._snapshot.pin(target.declared.table_id).rows
        rows_read = 0

        def answered(asked: TextCounts) -> None:
            self._progress(
                EmbedProgress("embedding", target.name, rows_read, total, asked.asked, asked.reused)
            )

        def batches() -> Iterator[pa.Table]:
            nonlocal rows_read
            columns = (ID, target.source.column, target.vector.column)
            chooser = self._request.chooser(target.declared)
            handle = self._filling.store.table(self._snapshot, target.declared.table_id)
            for rows in scanned(handle, (*columns, *chooser.values)):
                rows_read += rows.num_rows
                yield rows.filter(pa.array(chooser.mask(rows)))

        conversation = Conversation(embedder, spool, target, self._request.mode, self._batch, answered)
        with self._filling.store.reading(self._snapshot.state, tables=(target.declared.table_id,)):
            return conversation.run(batches())

    # -- what is told ------------------------------------------------------------------------------

    def _rehearsed(self, draft: FillDraft) -> EmbedReport:
        """Count what there is to do, on the snapshot; nobody is asked for anything."""
        catalog = self._filling.catalogs.get(self._snapshot.schema)
        handles = {
            target.declared.id: self._filling.store.table(self._snapshot, target.declared.table_id)
            for target in self._targets
        }
        with self._filling.store.reading(self._snapshot.state, tables=tuple(handles)):
            draft.count(handles, catalog)
        return replace(self._report(draft.outcome), dry_run=True)

    def _report(self, outcome: Mapping[str, EmbeddedProperty]) -> EmbedReport:
        embedder = None if self._request.mode is FillMode.CLEAN else self._filling.embedder
        parts = []
        for target in self._targets:
            part = outcome[target.vector.id]
            asked = self._asked.get(target.vector.id)
            if asked is not None:
                part = replace(
                    part,
                    asked=asked.asked,
                    reused=asked.reused,
                    characters=asked.characters,
                )
            parts.append(part)
        return EmbedReport(
            branch=self._options.branch,
            mode=self._request.mode.value,
            provider=None if embedder is None else embedder.provider,
            model=None if embedder is None else embedder.model,
            properties=tuple(parts),
        )

    def _message(self) -> str:
        names = ", ".join(target.name for target in self._targets)
        embedder = self._filling.embedder
        if self._request.mode is FillMode.CLEAN or embedder is None:
            return f"embed: remove the vectors of {names}"
        return f"embed {names} by {embedder.provider}" + (f", {embedder.model}" if embedder.model else "")

    def _label(self) -> dict[str, str]:
        """Return what the commit keeps: the storage format has no place for it on the property itself."""
        embedder = self._filling.embedder
        if self._request.mode is FillMode.CLEAN or embedder is None:
            return {}
        made_by = {"provider": embedder.provider, "model": embedder.model}
        return {EMBEDDED: json.dumps({target.name: made_by for target in self._targets})}


def scanned(handle: Handle, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield some columns of all rows, a bounded number at a time."""
    scan = scanner(
        handle, columns=list(dict.fromkeys(columns)), batch_size=BATCH_ROWS, batch_size_bytes=BATCH_BYTES
    )
    for batch in scan.to_batches():
        yield pa.Table.from_batches([batch])


# -- the write -----------------------------------------------------------------------------------------


class FillWrite(ChangeWrite):
    """A fill as a write: after a lost race it is prepared again, since the spool knows what to do."""

    def __init__(
        self, draft: FillDraft, catalogs: Catalogs, executor: ExecutorFor, label: Mapping[str, str]
    ) -> None:
        super().__init__(
            draft,
            catalogs,
            CommitKind.MUTATION,
            REFUSED,
            executor=executor,
            labels=lambda made: {**label, NODES: str(made.affected_nodes)},
        )

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to publish, on this base."""
        return replace(super().prepare(txn), replans=True)


class FillDraft:
    """The rows of a base that get a vector from the spool, or lose theirs; held in files."""

    def __init__(
        self,
        request: FillRequest,
        targets: tuple[EmbedTarget, ...],
        spools: Mapping[str, VectorSpool],
        closing: ExitStack,
    ) -> None:
        self._request = request
        self._targets = targets
        self._spools = spools
        self._rows_of_attempt = closing.enter_context(ExitStack())
        self.outcome: dict[str, EmbeddedProperty] = {}

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Return the change on this base."""
        targets = self._request.targets(catalog)
        before, now = ([target.identity for target in some] for some in (self._targets, targets))
        if before != now:
            raise StaleVersion("schema", expected=str(before), actual=str(now))
        self._rows_of_attempt.close()  # of one that lost the race
        temporary = TemporaryDirectory(prefix="omnigraph-embed-", ignore_cleanup_errors=True)
        folder = Path(self._rows_of_attempt.enter_context(temporary))
        changes = []
        for declared, of_type in _by_type(targets):
            rows = self._rows(txn.table(declared.table_id), declared, of_type, folder)
            if rows.num_rows:
                changes.append(TypeChange(declared, rows))
        nodes = sum(change.count for change in changes)
        tables = frozenset(target.declared.table_id for target in targets)
        return Draft(ChangeSet.of(catalog, changes), tables, affected_nodes=nodes)

    def count(self, handles: Mapping[str, Handle], catalog: Catalog) -> None:
        """Count what there is to do, without vectors."""
        for declared, of_type in _by_type(self._request.targets(catalog)):
            chooser = self._request.chooser(declared)
            tallies = [_Tally(target, self._request.mode) for target in of_type]
            columns = {c for t in of_type for c in (t.source.column, t.vector.column)}
            for rows in scanned(handles[declared.id], (ID, *sorted(columns), *chooser.values)):
                chosen = chooser.mask(rows)
                for tally in tallies:
                    tally.foresee(rows, chosen)
            self.outcome |= {tally.target.vector.id: tally.result() for tally in tallies}

    def _rows(self, handle: Handle, declared: NodeType, targets: list[EmbedTarget], folder: Path) -> pa.Table:
        """Return the rows of a type as they are to be, those that change."""
        schema, chooser = declared.stored_schema, self._request.chooser(declared)
        tallies = [_Tally(target, self._request.mode) for target in targets]
        path = str(folder / f"{declared.id}.arrow")
        with pa.ipc.new_file(path, schema) as file:
            for stored in scanned(handle, tuple(schema.names)):
                rows = stored.cast(schema)
                chosen = chooser.mask(rows)
                changed = np.zeros(rows.num_rows, bool)
                for tally in tallies:
                    rows, mine = tally.apply(rows, chosen, self._spools.get(tally.target.vector.id))
                    changed |= mine
                if changed.any():
                    file.write_table(rows.filter(pa.array(changed)))
        self.outcome |= {tally.target.vector.id: tally.result() for tally in tallies}
        with pa.memory_map(path) as mapped:
            return pa.ipc.open_file(mapped).read_all()


class _Tally:
    """One property of a type: changes its vectors batch by batch, and counts."""

    def __init__(self, target: EmbedTarget, mode: FillMode) -> None:
        self.target = target
        self._mode = mode
        self._records = self._selected = self._embedded = self._cleaned = self._without = self._left = 0
        self._left_ids: list[str] = []
        self._characters = 0

    def apply(self, rows: pa.Table, chosen: Mask, spool: VectorSpool | None) -> tuple[pa.Table, Mask]:
        """Return the rows with new vectors, and which of them changed."""
        mask = self._wanted(rows, chosen)
        if not mask.any():
            return rows, mask
        if self._mode is FillMode.CLEAN:
            self._cleaned += int(mask.sum())
            return self._with_vectors(rows, {}, mask), mask
        assert spool is not None
        places = np.flatnonzero(mask)
        texts = rows[self.target.source.column].take(pa.array(places)).to_pylist()
        digests = dict(zip(places.tolist(), map(digest_of, texts), strict=True))
        vectors = spool.get(digests.values())
        made = {at: vectors[digest] for at, digest in digests.items() if digest in vectors}
        left = [at for at in digests if at not in made]
        self._embedded += len(made)
        self._left += len(left)
        self._left_ids += rows[ID].take(pa.array(left[: SHOWN - len(self._left_ids)], pa.int64())).to_pylist()
        changed = np.zeros(rows.num_rows, bool)
        changed[list(made)] = True
        return self._with_vectors(rows, made, changed), changed

    def foresee(self, rows: pa.Table, chosen: Mask) -> None:
        """Count the rows that there is something to do with, and how long their texts are."""
        mask = self._wanted(rows, chosen)
        if self._mode is FillMode.CLEAN:
            self._cleaned += int(mask.sum())
            return
        self._embedded += int(mask.sum())
        texts = rows[self.target.source.column].filter(pa.array(mask))
        self._characters += pc.sum(pc.utf8_length(texts)).as_py() or 0

    def _wanted(self, rows: pa.Table, chosen: Mask) -> Mask:
        self._records += rows.num_rows
        self._selected += int(chosen.sum())
        self._without += int((lacks_text(self._mode, rows, self.target) & chosen).sum())
        return wanted(self._mode, rows, self.target) & chosen

    def _with_vectors(self, rows: pa.Table, made: Mapping[int, np.ndarray], changed: Mask) -> pa.Table:
        """Return the rows with new vectors in some places; a changed one without is null."""
        column = self.target.vector.column
        stored = rows[column].combine_chunks()
        size = self.target.size
        numbers = np.zeros((rows.num_rows, size), np.float32)
        present = stored.is_valid().to_numpy(zero_copy_only=False)
        numbers[present] = stored.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
        for at, vector in made.items():
            numbers[at] = vector
        null = ~present
        null[changed] = True
        null[list(made)] = False
        kind = rows.schema.field(column)
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(numbers.reshape(-1)), type=kind.type, mask=pa.array(null)
        )
        return rows.set_column(rows.schema.get_field_index(column), kind, vectors)

    def result(self) -> EmbeddedProperty:
        """Return what came of it."""
        return EmbeddedProperty(
            type=self.target.declared.name,
            property=self.target.vector.name,
            source=self.target.source.name,
            dimension=self.target.size,
            records=self._records,
            selected=self._selected,
            characters=self._characters,
            embedded=self._embedded,
            cleaned=self._cleaned,
            without_text=self._without,
            left=self._left,
            left_ids=tuple(self._left_ids),
        )


def _by_type(targets: tuple[EmbedTarget, ...]) -> Iterator[tuple[NodeType, list[EmbedTarget]]]:
    by_id: dict[str, list[EmbedTarget]] = {}
    for target in targets:
        by_id.setdefault(target.declared.id, []).append(target)
    for of_type in by_id.values():
        yield of_type[0].declared, of_type
