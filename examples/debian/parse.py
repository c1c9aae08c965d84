"""Parse: lists of packages as Spark DataFrames, one for each type of the graph.

    lists -> **stanzas -> newest version of each package -> relations** -> edges -> load

Room    the example. Executors open the lists, one task for each, and hand columns on as Arrow: no row is ever
        a Python object of Spark's. `edges.py` is the next stage.
Given   files that every executor can read.
Gives   {type of the schema: DataFrame of its properties, for edges with `from` and `to`}.
Rule    the functions travel with the job, so workers need nothing of this folder on their path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.debian import index
from examples.debian.edges import edges
from examples.debian.index import maintainer_name, opened, relation, sort_key, stanzas_of

Batches = Iterator[pa.RecordBatch]

BATCH = 8192  # rows that a task holds before it hands them on
STANZAS = """
    package string, version string, sort_key string, architecture string, essential boolean, priority string,
    section string, installed_size bigint, maintainer string, homepage string, synopsis string,
    pre_depends string, depends string, recommends string, conflicts string, provides string
"""
# One row for each alternative of each clause; `of` counts the alternatives of its clause.
RELATIONS = """
    package string, kind string, pre boolean, clause int, of int, written string,
    name string, op string, wanted string, constraint string
"""
# Field of a stanza, the kind of its rows, and whether it must hold before the package is unpacked.
KINDS = (
    ("pre_depends", "depends", True),
    ("depends", "depends", False),
    ("recommends", "recommends", False),
    ("conflicts", "conflicts", False),
    ("provides", "provides", False),
)
ARROW = {"string": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64()}


def tables(spark: SparkSession, files: Sequence[Path]) -> dict[str, DataFrame]:
    """Return what the lists say, for each type of the schema."""
    every = stanzas(spark, files).repartition("package").persist()
    packages = newest(every).persist()
    offered = versions(every)
    return {
        "Package": packages.select(
            F.col("package").alias("name"),
            *("version", "synopsis", "priority", "essential", "installed_size", "homepage"),
        ),
        "Version": offered.select("spec", "package", "version", "architecture"),
        "Section": packages.select(F.col("section").alias("name")).distinct(),
        "Maintainer": packages.select(F.col("maintainer").alias("name")).distinct(),
        # One edge leaves each source: named after it, so that the same lists make the same edges again.
        "VersionOf": _leading(offered, "spec", "package"),
        "InSection": _leading(packages, "package", "section"),
        "MaintainedBy": _leading(packages, "package", "maintainer"),
        **edges(packages, relations(packages)),
    }


def stanzas(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Return the stanzas of lists, each list read by one task."""
    _travel()
    paths, schema = [path.resolve() for path in files], _arrow(STANZAS)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch["id"].to_pylist():
                with opened(paths[number]) as lines:
                    yield from _batches(map(_stanza, stanzas_of(lines)), schema)

    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(read, STANZAS)


def newest(every: DataFrame) -> DataFrame:
    """Return one stanza for each package: of its greatest version, and of one architecture."""
    whole, rank = F.struct(*_arrow(STANZAS).names), F.struct("sort_key", "architecture")
    return every.groupBy("package").agg(F.max_by(whole, rank).alias("one")).select("one.*")


def versions(every: DataFrame) -> DataFrame:
    """Return the versions of packages that the lists offer, `spec` as apt takes it: apt=2.6.1."""
    found = every.groupBy("package", "version").agg(F.max("architecture").alias("architecture"))
    return found.select("*", F.concat_ws("=", "package", "version").alias("spec"))


def relations(packages: DataFrame) -> DataFrame:
    """Return what packages say of others, one row for each alternative."""
    _travel()
    schema = _arrow(RELATIONS)

    def parse(batches: Batches) -> Batches:
        for batch in batches:
            yield from _batches((row for one in batch.to_pylist() for row in _relations(one)), schema)

    return packages.select("package", *(field for field, _, _ in KINDS)).mapInArrow(parse, RELATIONS)


def _leading(rows: DataFrame, source: str, target: str) -> DataFrame:
    return rows.select(F.col(source).alias("id"), F.col(source).alias("from"), F.col(target).alias("to"))


def _stanza(stanza: dict[str, str]) -> tuple[Any, ...]:
    """Return the row of a stanza, in the order of STANZAS."""
    size, description = stanza.get("Installed-Size"), stanza.get("Description")
    return (
        stanza["Package"],
        stanza["Version"],
        sort_key(stanza["Version"]),
        stanza.get("Architecture"),
        stanza.get("Essential") == "yes",
        stanza.get("Priority"),
        stanza.get("Section"),
        None if size is None else int(size),
        maintainer_name(stanza.get("Maintainer", "")) or None,
        stanza.get("Homepage"),
        None if description is None else description.partition("\n")[0],
        *(stanza.get(field) for field in ("Pre-Depends", "Depends", "Recommends", "Conflicts", "Provides")),
    )


def _relations(stanza: dict[str, str | None]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a stanza's relations, in the order of RELATIONS."""
    number = 0
    for field, kind, pre in KINDS:
        for clause in relation(stanza[field] or ""):
            number += 1
            written = " | ".join(map(str, clause))
            for one in clause:
                wanted = None if one.version is None else sort_key(one.version)
                head = (stanza["package"], kind, pre, number, len(clause), written)
                yield (*head, one.name, one.op, wanted, one.constraint)


def _batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Batches:
    """Yield rows as columns."""
    left = iter(rows)
    while chunk := list(islice(left, BATCH)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow(ddl: str) -> pa.Schema:
    pairs = (column.split() for column in ddl.split(","))
    return pa.schema([pa.field(name, ARROW[type_]) for name, type_ in pairs])


def _travel() -> None:
    for module in (index, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
