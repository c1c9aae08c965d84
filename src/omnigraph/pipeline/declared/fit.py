"""Fit: whether the columns of some rows can become the properties of a type.

    pipeline -> sources -> frames -> **targets** -> load

Room    pipeline.declared. Asks the code that loads rows (engine.load) about columns without any, so that a
        check and a load cannot disagree.
Given   a target, the schema of its rows as Spark has it, a catalog.
Gives   the type, or None where there is none; what does not fit is in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from omnigraph.base.errors import GraphError
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, NodeType, TableType
from omnigraph.engine.load.arrow import arrow_column, text_column
from omnigraph.engine.load.cells import ColumnMisfit
from omnigraph.engine.load.conform import LoadProblems, fixed_target, target
from omnigraph.engine.load.sources.tables import Header, read_header
from omnigraph.engine.load.texts import arrow_endpoint, endpoint_node
from omnigraph.engine.validate.relation import Violation
from omnigraph.engine.validate.values import INPUT_NAMES
from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.declared.rules import (
    COLUMN,
    COLUMN_TWICE,
    END_TYPE,
    ENDS,
    KEY,
    MISFIT,
    PROPERTY,
    REQUIRED,
    TYPE,
)
from omnigraph.pipeline.declared.spec import TargetSpec

ENTRY = "<columns>"
EVERY = 1 << 20  # problems that are kept: no type has as many columns
BY_CODE = {"unknown_property": PROPERTY, "envelope": COLUMN_TWICE}


def type_of(spec: TargetSpec, catalog: Catalog, reporter: Reporter) -> TableType | None:
    """Return the type that a target names."""
    try:
        return catalog.named(spec.type)
    except GraphError as error:
        reporter.report(TYPE, error.message, spec.places["type"], error.remedy)
        return None


def check_columns(
    spec: TargetSpec, declared: TableType, schema: StructType, catalog: Catalog, reporter: Reporter
) -> None:
    """Report every column that does not fit, and everything that has none."""
    known = _mapped(spec, schema, reporter)
    names = [known.get(name, name) for name in schema.names]
    problems = LoadProblems(EVERY)
    header = read_header(names, declared, problems, ENTRY, 1)
    place_of = _place_of(spec, known)
    for violation in problems.violations:
        _report(spec, declared, violation, place_of, reporter)
    _check_types(spec, declared, schema, catalog, header, place_of, reporter)


def _mapped(spec: TargetSpec, schema: StructType, reporter: Reporter) -> Mapping[str, str]:
    """Return the mappings of columns that are there."""
    for column in spec.columns:
        if column not in schema.names:
            said = f"the rows of {spec.rows!r} have no column {column!r}; they have {', '.join(schema.names)}"
            hint = did_you_mean(column, schema.names)
            reporter.report(COLUMN, said, spec.column_places[column], hint)
    return {column: name for column, name in spec.columns.items() if column in schema.names}


def _place_of(spec: TargetSpec, known: Mapping[str, str]) -> Callable[[str], Span]:
    """Say where the file speaks of a property: in a mapping, or else by naming the rows."""
    places = {name: spec.column_places[column] for column, name in known.items()}

    def place(name: str) -> Span:
        return places.get(name, spec.places["from"])

    return place


def _report(
    spec: TargetSpec,
    declared: TableType,
    violation: Violation,
    place_of: Callable[[str], Span],
    reporter: Reporter,
) -> None:
    name = violation.property or ""
    if violation.code != "required":
        message = violation.message.removeprefix(f"{violation.place}: ")
        reporter.report(BY_CODE[violation.code], message, place_of(name))
        return
    rule, what = _needed(declared, name)
    reporter.report(
        rule,
        f"{declared.name} needs {name!r}, {what}, and the rows of {spec.rows!r} have no such column",
        spec.places["from"],
        f"select one under that name, or map one: columns: {{COLUMN: {name}}}",
    )


def _needed(declared: TableType, name: str) -> tuple[Rule, str]:
    if isinstance(declared, EdgeType) and name in (INPUT_NAMES[end] for end in ENDPOINTS):
        return ENDS, "the id of the node where an edge starts" if name == "from" else "of that where it ends"
    key = declared.key if isinstance(declared, NodeType) else ()
    if name in (declared.name_of(identity) for identity in key):
        return KEY, "which its key has"
    return REQUIRED, "which is required and has no default"


def _check_types(
    spec: TargetSpec,
    declared: TableType,
    schema: StructType,
    catalog: Catalog,
    header: Header,
    place_of: Callable[[str], Span],
    reporter: Reporter,
) -> None:
    ends = ENDPOINTS if isinstance(declared, EdgeType) else ()
    for name, position in header.places.items():
        if declared.find(name) is None and name != ID and name not in ends:
            continue  # reported as unknown
        try:
            _convert(name, schema[position], catalog, declared)
        except ColumnMisfit as misfit:
            rule = END_TYPE if name in ends else MISFIT
            given = INPUT_NAMES[name] if name in ends else name
            reporter.report(rule, str(misfit), place_of(given), f"cast it: {_cast(spec, schema[position])}")


def _convert(name: str, field: StructField, catalog: Catalog, declared: TableType) -> None:
    """Convert a column of the type without rows, as a load would one with rows."""
    try:
        values = pa.nulls(0, to_arrow_type(field.dataType, timezone="UTC"))
    except PySparkException:
        raise ColumnMisfit(
            f"column {field.name!r} is {field.dataType.simpleString()}, which no property can hold"
        ) from None
    member = declared.find(name)
    if member is not None:
        arrow_column(values, target(declared, member))
    elif isinstance(declared, EdgeType) and name != ID:
        goal = fixed_target(declared, INPUT_NAMES[name])
        arrow_endpoint(values, goal, endpoint_node(catalog, declared, name))
    else:
        text_column(values, fixed_target(declared, name))


def _cast(spec: TargetSpec, field: StructField) -> str:
    return f"select cast({field.name} as ...) from {spec.rows}"
