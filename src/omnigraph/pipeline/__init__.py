"""Pipeline: bulk work on Spark. Importing it starts nothing and needs no Java; PySpark is an extra."""

try:
    import pyspark as pyspark  # asked for first, so that its absence is told by what installs it
except ImportError as error:
    raise ImportError("omnigraph.pipeline needs PySpark: pip install 'omnigraph[spark]'") from error

from omnigraph.pipeline.bulk.indexes import ensure_indexes
from omnigraph.pipeline.bulk.load import load
from omnigraph.pipeline.bulk.merge import merge
from omnigraph.pipeline.reading.diff import diff
from omnigraph.pipeline.reading.source import read, register
from omnigraph.pipeline.session import spark_session
from omnigraph.pipeline.streaming.sink import written
from omnigraph.pipeline.streaming.stream import Stream, stream

__all__ = [
    "Stream",
    "diff",
    "ensure_indexes",
    "load",
    "merge",
    "read",
    "register",
    "spark_session",
    "stream",
    "written",
]
