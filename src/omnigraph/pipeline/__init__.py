"""Pipeline: bulk work on Spark. Importing it starts nothing and needs no Java; PySpark is an extra.

Everything that users need is here: `from omnigraph.pipeline import load, spark_session`; algorithms and
pipelines in YAML are in packages of their own, `analytics` and `declared`.
"""

try:
    import pyspark as pyspark  # first, so that its absence is reported together with what installs it
except ImportError as error:
    raise ImportError("omnigraph.pipeline needs PySpark: pip install 'omnigraph[spark]'") from error

from omnigraph.pipeline import analytics, declared
from omnigraph.pipeline.bulk.indexes import ensure_indexes
from omnigraph.pipeline.bulk.load import load
from omnigraph.pipeline.bulk.merge import merge
from omnigraph.pipeline.bulk.optimize import optimize
from omnigraph.pipeline.reading.diff import diff
from omnigraph.pipeline.reading.export import export
from omnigraph.pipeline.reading.source import read, register
from omnigraph.pipeline.session import spark_session
from omnigraph.pipeline.streaming.sink import written
from omnigraph.pipeline.streaming.stream import Stream, stream

__all__ = [
    "Stream",
    "analytics",
    "declared",
    "diff",
    "ensure_indexes",
    "export",
    "load",
    "merge",
    "optimize",
    "read",
    "register",
    "spark_session",
    "stream",
    "written",
]
