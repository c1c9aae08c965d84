"""Edges: what packages say of each other, resolved to packages that the archive has.

    stanzas -> newest version of each package -> relations -> **edges** -> load

Room    the example; joins of Spark, no Python in the executors.
Given   packages, and relations with one row for each alternative: a name and which of its versions.
Gives   Depends, DependsOneOf, Recommends and Conflicts, with `from` and `to`.
Rule    a name stands for every package that satisfies it, as apt sees it: the package of that name and those
        that provide it, if their version is a wanted one. A clause that nobody satisfies keeps its names as
        they are written: such an edge has no end, and whoever loads it is told.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CLAUSE = ("package", "kind", "clause")


def edges(packages: DataFrame, relations: DataFrame) -> dict[str, DataFrame]:
    """Return the edges between packages, by type."""
    relations = relations.persist()
    found = resolved(relations, candidates(packages, relations)).persist()
    needed = found.where(F.col("kind") == "depends")
    # Without a choice: one package satisfies the clause, or nobody does and it names but one.
    forced = (F.col("choices") == 1) | ((F.col("choices") == 0) & (F.col("of") == 1))
    return {
        "Depends": merged(needed.where(forced), F.max("pre").alias("pre")),
        "DependsOneOf": merged(needed.where(~forced), _first("written", "alternatives"), by=["clause"]),
        "Recommends": merged(
            found.where(F.col("kind") == "recommends"),
            F.min(F.when(F.col("of") > 1, F.col("written"))).alias("alternatives"),
        ),
        "Conflicts": merged(found.where((F.col("kind") == "conflicts") & (F.col("choices") > 0))),
    }


def candidates(packages: DataFrame, relations: DataFrame) -> DataFrame:
    """Return who may satisfy a name, with the version that counts: null where it is provided without one."""
    real = packages.select(
        F.col("package").alias("name"), F.col("package").alias("to"), F.col("sort_key").alias("has")
    )
    provided = relations.where(F.col("kind") == "provides")
    return real.union(provided.select("name", F.col("package").alias("to"), F.col("wanted").alias("has")))


def resolved(relations: DataFrame, candidates: DataFrame) -> DataFrame:
    """Return relations with `to`: every package that satisfies one, of those that nobody does the name.

    `choices` counts the packages that satisfy the clause. A clause that the package satisfies by itself says
    nothing, and a conflict never means the package itself.
    """
    clause = Window.partitionBy(*CLAUSE)
    tried = relations.where(F.col("kind") != "provides").join(candidates, "name", "left")
    tried = tried.withColumn("to", F.when(_satisfied(), F.col("to")))
    tried = tried.withColumn("choices", F.size(F.collect_set("to").over(clause)))
    own = F.coalesce(F.max(F.col("to") == F.col("package")).over(clause), F.lit(False))
    tried = tried.withColumn("own", own)
    kept = tried.where(F.col("to").isNotNull() | (F.col("choices") == 0))
    kept = kept.where(
        F.when(F.col("kind") == "conflicts", ~F.col("to").eqNullSafe(F.col("package"))).otherwise(
            ~F.col("own")
        )
    )
    return kept.withColumn("to", F.coalesce("to", "name")).drop("own")


def merged(rows: DataFrame, *more: Column, by: list[str] | None = None) -> DataFrame:
    """Return one edge for each pair of packages: what several clauses say of it is put together."""
    by = by or []
    via = F.min(F.when(F.col("name") != F.col("to"), F.col("name"))).alias("via")
    constraints = F.array_sort(F.collect_set("constraint"))
    constraint = F.when(F.size(constraints) > 0, F.concat_ws(", ", constraints)).alias("constraint")
    one = rows.groupBy("package", *by, "to").agg(constraint, via, *more)
    name = F.concat_ws(" ", "package", *by, "to").alias("id")
    return one.select(name, F.col("package").alias("from"), *[c for c in one.columns if c != "package"])


def _satisfied() -> Column:
    """Is the candidate's version a wanted one?"""
    has, wanted, op = F.col("has"), F.col("wanted"), F.col("op")
    comparisons = {
        "<<": has < wanted,
        "<=": has <= wanted,
        "=": has == wanted,
        ">=": has >= wanted,
        ">>": has > wanted,
    }
    met = F.lit(None).cast("boolean")
    for spelt, holds in comparisons.items():
        met = F.when(op == spelt, holds).otherwise(met)
    return F.col("to").isNotNull() & F.coalesce(F.when(op.isNull(), F.lit(True)).otherwise(met), F.lit(False))


def _first(column: str, alias: str) -> Column:
    return F.min(column).alias(alias)
