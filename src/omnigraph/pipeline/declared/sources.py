"""Sources: what a pipeline reads, by any reader that Spark has.

    pipeline -> **sources** -> frames -> targets -> load

Room    pipeline.declared. A DataFrame is made, which looks at headers and footers, or at what Spark needs to
        guess a schema; a given schema spares that.
Gives   DataFrames by name, None for those that cannot be read: the reasons are in the report.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from omnigraph.language.diagnostics import Reporter
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.declared.rules import SOURCE, WATERMARK
from omnigraph.pipeline.declared.spec import Pipeline, SourceSpec
from omnigraph.pipeline.declared.words import spark_words, unlogged
from omnigraph.pipeline.options import ADDRESS, literal_path
from omnigraph.pipeline.reading.source import OmnigraphSource, register

# Values that have one order and one text. Floats have not: NaN would be the last watermark for good.
ORDERED = (IntegralType, DecimalType, StringType, DateType, TimestampType, TimestampNTZType)
GRAPH_FORMAT = OmnigraphSource.name()


def read_sources(
    session: SparkSession, pipeline: Pipeline, reporter: Reporter
) -> dict[str, DataFrame | None]:
    """Return the sources of a pipeline."""
    return {spec.name: _read(session, pipeline, spec, reporter) for spec in pipeline.sources}


def _read(
    session: SparkSession, pipeline: Pipeline, spec: SourceSpec, reporter: Reporter
) -> DataFrame | None:
    if spec.format == GRAPH_FORMAT:
        register(session)
    paths = [_path(pipeline, spec, path) for path in spec.paths]
    try:
        with unlogged():
            reader = session.read.format(spec.format).options(**spec.options)
            if spec.schema is not None:
                reader = reader.schema(spec.schema)
            found = reader.load(paths if len(paths) > 1 else paths[0]) if paths else reader.load()
            found.schema  # noqa: B018 - behind Spark Connect nothing was looked at yet
    except Exception as error:  # noqa: BLE001 - readers are plugins: whatever one raises is about its source
        said = spark_words(error)
        span = spec.places.get("path", spec.places[""])
        reporter.report(SOURCE, f"source {spec.name!r} cannot be read: {said}", span)
        return None
    _check_watermark(spec, found, reporter)
    return found


def _path(pipeline: Pipeline, spec: SourceSpec, path: str) -> str:
    """Return a path for Spark: what looks like a pattern in the name of the folder is none."""
    if spec.format == GRAPH_FORMAT or ADDRESS.match(path) or path.startswith("/"):
        return pipeline.address(path)
    return f"{literal_path(str(pipeline.folder))}/{path}"


def _check_watermark(spec: SourceSpec, found: DataFrame, reporter: Reporter) -> None:
    if spec.watermark is None:
        return
    if spec.watermark not in found.columns:
        said = f"source {spec.name!r} has no column {spec.watermark!r}; it has {', '.join(found.columns)}"
        hint = did_you_mean(spec.watermark, found.columns)
        reporter.report(WATERMARK, said, spec.places["watermark"], hint)
    elif not isinstance(found.schema[spec.watermark].dataType, ORDERED):
        kind = found.schema[spec.watermark].dataType.simpleString()
        said = f"column {spec.watermark!r} of source {spec.name!r} is {kind}"
        hint = "a watermark is an integer, a decimal, a text, a day or a time"
        reporter.report(WATERMARK, said, spec.places["watermark"], hint)
