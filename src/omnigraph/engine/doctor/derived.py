"""Derived files: they are undamaged, about the data files that they name, and what those files give.

No answer depends on one that is missing or damaged: whoever opens it sees that, and works it out again. One
that is undamaged and wrong is believed. So a few are worked out anew and compared; with `deep` all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.engine.doctor.examination import Examination, ExaminedTable
from omnigraph.engine.doctor.report import DoctorFinding, Gravity
from omnigraph.storage.derived.adjacency import Base, cover_in, is_adjacency
from omnigraph.storage.derived.blocks import BlockFile, Unusable
from omnigraph.storage.derived.files import DerivedFiles, folder_of, is_derived, is_unfinished
from omnigraph.storage.derived.key_hashes import SPANS_KIND, IdSpans, KeyHashes, covers_of, entries_of
from omnigraph.storage.derived.rows import field_id, holder
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.files import covers, referenced
from omnigraph.storage.tables.layout import FragmentLayout

SAMPLED_FILES = 4  # of a table that are worked out anew without `deep`
SAMPLED_ROWS = 200_000  # of a file: larger ones only with `deep`
ANEW = "Let 'omnigraph doctor --fix' write it anew, or delete it: no data is lost"
OPTIMIZE = "Run 'omnigraph optimize' when convenient; no answer depends on it"


def derived(exam: Examination, unit: tuple[ExaminedTable, TableType]) -> Iterator[DoctorFinding]:
    """Check the derived files of a table."""
    table, declared = unit
    handle = exam.handle(table)
    needed, table_id = referenced(handle), table.pin.table_id
    files, wrong = exam.store.finder.files, False
    for name in sorted(exam.files(table_id)):
        if not is_derived(name) or is_unfinished(name) or (table_id, name) in exam.seen_derived:
            continue
        if not (is_adjacency(name) or covers(needed, name)):
            continue
        exam.seen_derived.add((table_id, name))
        if not files.is_whole(table_id, name):
            wrong = True
            yield _finding(exam, table, name, "derived_damaged", "warning", "a derived file is damaged")
    yield from _compared(exam, table, declared, handle)
    heads = exam.heads_of(table)
    if not wrong and heads:
        lacking = exam.store.finder.lacking(handle, _settled(exam, handle), declared.looked_up)
        if lacking:
            exam.underived.update(heads)
            columns = sorted({column for _, column in lacking})
            what = f"data files of {declared.name!r} lack key hashes of {', '.join(columns)}"
            yield DoctorFinding("derived_missing", "info", what, OPTIMIZE, table.place())


def _finding(
    exam: Examination, table: ExaminedTable, name: str, code: str, severity: Gravity, what: str
) -> DoctorFinding:
    exam.broken_derived.add((table.pin.table_id, name))
    return DoctorFinding(code, severity, what, ANEW, table.place(name))


def _settled(exam: Examination, handle: Handle) -> list[FragmentLayout]:
    return [part for part in exam.store.reads.layout(handle).parts.values() if part.settled]


# -- worked out anew ---------------------------------------------------------------------------------


def _compared(
    exam: Examination, table: ExaminedTable, declared: TableType, handle: Handle
) -> Iterator[DoctorFinding]:
    for part in _looked_at(exam, handle):
        for name in _wrong_keys(exam, table, handle, part):
            what = "a derived file is undamaged, and not what its data file gives: look-ups may miss rows"
            yield _finding(exam, table, name, "derived_wrong", "error", what)
    if isinstance(declared, EdgeType):
        for name in _wrong_adjacency(exam, table):
            what = "a stored adjacency is undamaged, and not what the edges give: queries may be wrong"
            yield _finding(exam, table, name, "derived_wrong", "error", what)


def _looked_at(exam: Examination, handle: Handle) -> list[FragmentLayout]:
    parts = sorted(_settled(exam, handle), key=lambda part: part.metadata.id)
    if exam.deep:
        return parts
    small = [part for part in parts if part.metadata.physical_rows <= SAMPLED_ROWS]
    if len(small) > SAMPLED_FILES or len(small) < len(parts):
        exam.limits.append("derived files of some data files were worked out anew; --deep does so for all")
    return small[:SAMPLED_FILES]


def _wrong_keys(
    exam: Examination, table: ExaminedTable, handle: Handle, part: FragmentLayout
) -> Iterator[str]:
    """Yield the files of key hashes, and of spans, of one fragment that are not what its data give."""
    files, table_id = exam.store.finder.files, table.pin.table_id
    for column in handle.schema.names:
        data_file, number = holder(handle, part, column), field_id(handle, column)
        for name in () if data_file is None else (f"keys-{number}", f"spans-{number}"):
            path = f"{folder_of(str(data_file))}/{name}"
            if path not in exam.files(table_id) or (table_id, path) in exam.compared:
                continue
            exam.compared.add((table_id, path))
            about = covers_of(str(data_file), number, part.metadata.physical_rows)
            if not _is_right(files, table_id, path, about, str(data_file), column):
                yield path


def _is_right(
    files: DerivedFiles, table_id: str, path: str, about: dict[str, object], data_file: str, column: str
) -> bool:
    """Say whether a file is what the data give; one that is damaged is reported as such."""
    try:
        file: BlockFile = files.open(table_id, path)
        file.check()
    except Unusable:
        return True
    values = files.column(table_id, data_file, column)
    try:
        if file.header.kind == SPANS_KIND:
            spans, anew = IdSpans.open(file, about), IdSpans.of(values)
            return anew is not None and all(
                np.array_equal(spans.arrays[name], anew.arrays[name]) for name in spans.arrays
            )
        return np.array_equal(KeyHashes.open(file, about).whole(), entries_of(values))
    except Unusable:
        return False  # it is about other rows


def _wrong_adjacency(exam: Examination, table: ExaminedTable) -> Iterator[str]:
    """Yield the stored adjacencies that are not what the edges of their files give."""
    table_id, files = table.pin.table_id, exam.store.finder.files
    for name in sorted(exam.files(table_id)):
        if not is_adjacency(name) or is_unfinished(name) or (table_id, name) in exam.compared:
            continue
        exam.compared.add((table_id, name))
        try:
            file = files.open(table_id, name)
            file.check()
            stored, cover = Base.of_file(file), cover_in(file)
        except Unusable:
            continue
        if not exam.deep and cover.rows > SAMPLED_ROWS:
            exam.limits.append(f"{table.pin.name}: its adjacency is worked out anew only with --deep")
            continue
        if any(f"data/{data}" not in exam.files(table_id) for data in cover.edge_files):
            continue  # of files that are gone: cleanup takes it
        try:
            with ThreadPoolExecutor(2) as pool:
                anew = exam.store.reads.bases.build(table_id, cover, pool)
        except Unusable:  # files of nodes cannot be read, which is reported as what it is
            exam.limits.append(f"{table.pin.name}: its adjacency cannot be worked out anew")
            continue
        before, after = stored.to_file()[1], anew.to_file()[1]
        if not all(np.array_equal(before[part], after[part]) for part in after):
            yield name
