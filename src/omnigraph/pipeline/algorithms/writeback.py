"""Write back: what an algorithm found, as a property of the nodes that it found it for.

    result -> joined with whole rows of the branch -> **one merge load** -> receipt

Room    pipeline.algorithms. A load replaces entities whole, so all properties of them are read first.
Rule    the load is made for the very commit that the rows were read from: if somebody writes to the branch
        meanwhile it is refused, so nothing of theirs is undone. Nodes that the result does not name, or that
        have the value already, stay as they are; names that the branch does not have are left out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.errors import BranchNotFound, InvalidRequest
from omnigraph.catalog.model import ID, NodeType
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.receipt import Receipt
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.bulk.door import load
from omnigraph.pipeline.scan import scan_of
from omnigraph.pipeline.tasks import frame_of
from omnigraph.storage.snapshot import PinnedSnapshot

TYPE, NEW = "type", "value to write"  # no property has a blank in its name


@checked
def write_back(
    spark: SparkSession,
    graph: Graph,
    result: DataFrame,
    property: str,
    *,
    type: str,
    branch: str = "main",
    from_branch: str | None = None,
    message: str | None = None,
    actor: str | None = None,
) -> Receipt:
    """Set a property of the nodes of one type to what a result says of them, as one commit.

    `result` has `id`, perhaps `type`, and the value: the column of the property's name, or the only other
    one. A missing branch is made from `from_branch` if that is given.
    """
    base = _base(graph, branch, from_branch)
    catalog = Catalogs(graph.store.schemas).get(base.schema)
    declared = catalog.node(type)
    _check(declared, property)
    values = _values(result, property, declared)
    rows = frame_of(spark, scan_of(graph.store.location, base, declared))
    return load(
        spark,
        graph,
        {f"node:{declared.name}": _changed(rows, values, property)},
        mode="merge",
        branch=branch,
        from_branch=from_branch,
        if_commit=base.commit_id,
        message=message,
        actor=actor,
    )


def _base(graph: Graph, branch: str, from_branch: str | None) -> PinnedSnapshot:
    """Return the commit that is built on: the head of the branch, or of that which it will be made from."""
    try:
        return graph.store.snapshot(branch)
    except BranchNotFound:
        if from_branch is None:
            raise
        return graph.store.snapshot(from_branch)


def _check(declared: NodeType, name: str) -> None:
    member = declared.find(name)
    if member is None:
        hint = did_you_mean(name, [p.name for p in declared.properties])
        raise InvalidRequest(
            f"{declared.name} has no property {name!r}" + (f"; {hint}" if hint else ""),
            remedy="Add it to the schema first",
        )
    if member.id in declared.key:
        raise InvalidRequest(
            f"{name!r} is the key of {declared.name}", remedy="Write to a property that is no key"
        )


def _changed(rows: DataFrame, values: DataFrame, name: str) -> DataFrame:
    """Return whole rows with the new values; of equal type, only where they differ."""
    joined = rows.join(values, ID)
    if rows.schema[name].dataType == values.schema[NEW].dataType:
        joined = joined.where(~f.col(NEW).eqNullSafe(f.col(name)))
    return joined.select(
        *(f.col(NEW).alias(name) if column == name else f.col(column) for column in rows.columns)
    )


def _values(result: DataFrame, name: str, declared: NodeType) -> DataFrame:
    """Return the ids of nodes of the type, and the values for them."""
    others = [column for column in result.columns if column not in (ID, TYPE)]
    column = name if name in others else others[0] if len(others) == 1 else None
    if ID not in result.columns or column is None:
        raise InvalidRequest(
            f"the result has the columns {', '.join(result.columns)}",
            remedy=f"It needs {ID!r}, may have {TYPE!r}, and one more: the values of {name!r}",
        )
    chosen = result.where(f.col(TYPE) == declared.name) if TYPE in result.columns else result
    return chosen.select(ID, f.col(column).alias(NEW))
