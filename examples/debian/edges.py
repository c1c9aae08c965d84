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


def edges(packages: DataFrame, relations: DataFrame) -> dict[str, DataFrame]:
    """Return the edges between packages, by type."""
    relations = relations.persist()
    found = resolved(relations, candidates(packages, relations)).persist()
    kind, written = F.col("kind"), F.col("written")
    # Without a choice: one package satisfies the clause, or nobody does and it names but one.
    forced = (F.col("choices") == 1) | ((F.col("choices") == 0) & (F.col("of") == 1))
    pre = F.max("pre").alias("pre")
    alternatives = F.min(F.when(F.col("of") > 1, written)).alias("alternatives")
    return {
        "Depends": merged(found.where((kind == "depends") & forced), pre),
        "DependsOneOf": merged(
            found.where((kind == "depends") & ~forced), F.min(written).alias("alternatives"), by=("clause",)
        ),
        "Recommends": merged(found.where(kind == "recommends"), alternatives),
        "Conflicts": merged(found.where(kind == "conflicts")),
    }


def candidates(packages: DataFrame, relations: DataFrame) -> DataFrame:
    """Return who may satisfy a name, with the version that counts: null where it is provided without one."""
    package = F.col("package")
    real = packages.select(package.alias("name"), package.alias("to"), F.col("sort_key").alias("has"))
    provided = relations.where(F.col("kind") == "provides")
    return real.union(provided.select("name", package.alias("to"), F.col("wanted").alias("has")))


def resolved(relations: DataFrame, candidates: DataFrame) -> DataFrame:
    """Return relations with `to`, every package that satisfies one, and `choices`, how many do the clause.

    Where nobody does, `to` is the name. A clause that the package satisfies by itself says nothing, and a
    conflict concerns neither the package itself nor what the archive does not have.
    """
    asked = relations.where(F.col("kind") != "provides").repartition("package")  # all below is by package
    tried = asked.join(F.broadcast(candidates), "name", "left")
    tried = tried.withColumn("to", F.when(_is_wanted(), F.col("to")))
    satisfying = F.collect_set("to").over(Window.partitionBy("package", "clause"))
    tried = tried.withColumn("satisfying", satisfying).withColumn("choices", F.size("satisfying"))
    to, package = F.col("to"), F.col("package")
    found, itself = to.isNotNull(), F.array_contains("satisfying", package)
    conflicting = found & (to != package)
    asking = ~itself & (found | (F.col("choices") == 0))
    kept = tried.where(F.when(F.col("kind") == "conflicts", conflicting).otherwise(asking))
    return kept.withColumn("to", F.coalesce("to", "name")).drop("satisfying")


def merged(rows: DataFrame, *more: Column, by: tuple[str, ...] = ()) -> DataFrame:
    """Return one edge for each pair of packages: what several clauses say of it is put together.

    Its id is made of what tells it apart, so that the same lists make the same edges again.
    """
    via = F.min(F.when(F.col("name") != F.col("to"), F.col("name"))).alias("via")
    constraints = F.array_sort(F.collect_set("constraint"))
    constraint = F.when(F.size(constraints) > 0, F.concat_ws(", ", constraints)).alias("constraint")
    one = rows.groupBy("package", *by, "to").agg(constraint, via, *more)
    named = F.concat_ws(" ", "package", *by, "to").alias("id")
    return one.select(named, "*").withColumnRenamed("package", "from")


def _is_wanted() -> Column:
    """Say whether the candidate has a version that will do."""
    has, wanted, op = F.col("has"), F.col("wanted"), F.col("op")
    compared = (
        F.when(op == "<<", has < wanted)
        .when(op == "<=", has <= wanted)
        .when(op == "=", has == wanted)
        .when(op == ">=", has >= wanted)
        .when(op == ">>", has > wanted)
        .otherwise(True)
    )
    return F.coalesce(compared, F.lit(False))
