"""Inputs: what a bulk load is given, and the Spark jobs that read it.

Room    pipeline.bulk. Files are cut into pieces that executors open for themselves; a DataFrame is read
        partition by partition.
Gives   outcomes in the order of the input: by type name for a mapping, then pieces, then rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.load.block import Source
from omnigraph.engine.load.door import REFUSED
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.header import read_header, renamed
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.load.sources.splitting import PIECE_BYTES, split
from omnigraph.pipeline.bulk.piece import Job, Outcome, in_order, run_partition, run_source
from omnigraph.pipeline.bulk.stage import for_each, for_each_partition

Columns = Mapping[str, Mapping[str, str]]  # type name -> column of the input -> property
Path = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Frame:
    """A DataFrame of one type."""

    type: str
    frame: DataFrame
    columns: Mapping[str, str] = FrozenMap()


@dataclass(frozen=True, eq=False)
class Files:
    """Sources that executors open."""

    pieces: tuple[Source, ...]


Input = Frame | Files


def open_inputs(
    data: Any,
    catalog: Catalog,
    now_ms: int,
    *,
    type: str | None = None,
    format: str | None = None,
    columns: Columns | None = None,
) -> list[Input]:
    """Recognise an input; nothing but heads and footers of files is read."""
    wanted = columns or {}
    if isinstance(data, DataFrame):
        if type is None:
            raise InvalidRequest(
                "a DataFrame does not say of which type its rows are", remedy="Give type=, or {type: frame}"
            )
        data = {type: data}
    if not isinstance(data, Mapping):
        mapped = wanted.get(type, {}) if type is not None else {}
        return [_files(data, catalog, now_ms, type, format, mapped)]
    unknown = [name for name in wanted if name not in data]
    if unknown:
        raise InvalidRequest(f"columns are mapped for {unknown[0]!r}, which is not loaded")
    found: list[Input] = []
    for name, one in data.items():
        catalog.named(name)  # a misspelt type is said before anything is read
        mapped = wanted.get(name, {})
        if isinstance(one, DataFrame):
            _check_columns(one, catalog.named(name), mapped)
            found.append(Frame(name, one, dict(mapped)))
        else:
            found.append(_files(one, catalog, now_ms, name, format, mapped))
    return found


def read_inputs(
    spark: SparkSession | None, job: Job, inputs: Sequence[Input]
) -> list[tuple[Source | None, Outcome]]:
    """Read everything, and return what came of each piece; with the source, where it can be read again."""
    found: list[tuple[Source | None, Outcome]] = []
    files = [piece for one in inputs if isinstance(one, Files) for piece in one.pieces]
    outcomes = iter(for_each(spark, files, partial(run_source, job)))
    for one in inputs:
        if isinstance(one, Files):
            found += [(piece, next(outcomes)) for piece in one.pieces]
        else:
            found += [(None, outcome) for outcome in _partitions(job, one)]
    return found


def _partitions(job: Job, given: Frame) -> list[Outcome]:
    """Read a DataFrame."""
    names = tuple(given.frame.columns)
    work = partial(run_partition, job, given.type, names, given.columns)
    return list(in_order(for_each_partition(given.frame, work)))


def _check_columns(frame: DataFrame, declared: TableType, columns: Mapping[str, str]) -> None:
    """Say at once what is wrong with the names of columns; each task would say it again."""
    origin, report = f"<{declared.name}>", Problems()
    read_header(renamed(frame.columns, columns, origin), declared, report, origin, 1)
    report.findings().refuse(REFUSED)


def _files(
    data: Any, catalog: Catalog, now_ms: int, type: str | None, format: str | None, columns: Mapping[str, str]
) -> Files:
    source = open_source(data, catalog=catalog, now_ms=now_ms, type=type, format=format, columns=columns)
    return Files(tuple(split(source, PIECE_BYTES)))
