"""Written: rows that other processes put into files of a table before anybody decides to publish them.

Room    storage.tables. Bulk work writes data files in many processes and hands over what it wrote; `Append`,
        `Replace` and `Overwrite` take it from there. Nothing names the files until a manifest does.
Given   a handle at the version that the writers agreed on; rows that fit its columns.
Gives   fragments as values that travel as text, and versions that hold nothing but them, for checking.
Rule    only what a writer reports counts: attempts that failed leave files behind that nobody ever names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK, Offsets, data_files

ROWS_PER_FILE = 1 << 20
COMMIT_RETRIES = 5


@dataclass(frozen=True, eq=False)
class Written:
    """Rows that lie in files of the table already."""

    fragments: tuple[FragmentMetadata, ...]
    since: int  # the version of the branch before the first file was written: a later sweep may take them

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @property
    def nbytes(self) -> int:
        """How large the files are."""
        return sum(file.file_size_bytes or 0 for part in self.fragments for file in part.files)

    def files(self) -> Iterator[str]:
        """Yield what must be durable before the rows are published, relative to the table."""
        for fragment in self.fragments:
            for path in data_files(fragment):
                yield f"data/{path}"
                yield f"data/{path.removesuffix('.lance')}/"


def write_rows(base: Handle, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Write rows as new files beside those of a version; return the fragments as texts that travel."""
    schema = base.schema
    ordered = (batch.select(schema.names).cast(schema) for batch in batches)
    rows = pa.RecordBatchReader.from_batches(schema, ordered)
    with durable(Step.TABLE_DATA):
        new = write_fragments(rows, base, schema=schema, mode="append", max_rows_per_file=ROWS_PER_FILE)
    return [json.dumps(fragment.to_json()) for fragment in new]


def fragments_of(texts: Iterable[str]) -> tuple[FragmentMetadata, ...]:
    """Return fragments that came as texts."""
    return tuple(FragmentMetadata.from_json(text) for text in texts)


def alone(base: Handle, written: Written) -> Handle:
    """Return a version that has these rows and no others; nothing ever pins it."""
    operation = LanceOperation.Update(
        removed_fragment_ids=sorted(fragment.fragment_id for fragment in base.get_fragments()),
        new_fragments=list(written.fragments),
        update_mode="rewrite_rows",
    )
    return _detached(base, operation)


def without(handle: Handle, fragment_id: int, offsets: Sequence[int]) -> list[str]:
    """Write the rows of a fragment anew, but for some."""
    gone = pa.array(sorted(offsets), pa.uint64())
    scan = handle.scanner(fragments=[handle.get_fragment(fragment_id)], with_row_address=True)

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in scan.to_batches():
            places = pa.compute.bit_wise_and(batch[ADDRESS], pa.scalar(OFFSET_MASK, pa.uint64()))
            left = batch.filter(pa.compute.invert(pa.compute.is_in(places, value_set=gone)))
            yield left.drop_columns([ADDRESS])

    return write_rows(handle, kept())


def rewritten(handle: Handle, written: Written, anew: Mapping[int, Iterable[str]]) -> Written:
    """Return written rows with some fragments of the version that has them alone made anew."""
    fragments: list[FragmentMetadata] = []
    numbers = sorted(one.fragment_id for one in handle.get_fragments())  # in the order they were written
    for number, fragment in zip(numbers, written.fragments, strict=True):
        fragments += fragments_of(anew[number]) if number in anew else [fragment]
    return Written(tuple(fragments), written.since)


def drop_rows(handle: Handle, fragment_id: int, offsets: Offsets) -> str | None:
    """Write a deletion file for rows of a fragment; return the fragment as it is then, None if empty."""
    with durable(Step.TABLE_DELETIONS):
        left = handle.get_fragment(fragment_id).delete_rows(offsets.tolist())
    return None if left is None else json.dumps(left.to_json())


def _detached(base: Handle, operation: Any) -> Handle:
    with durable(Step.TABLE_COMMIT):
        return LanceDataset.commit(
            base, operation, read_version=base.version, detached=True, max_retries=COMMIT_RETRIES
        )
