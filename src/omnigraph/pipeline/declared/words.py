"""Words: what Spark says of an error, in one line, and told once.

Room    pipeline.declared. Errors of Spark have codes, plans and traces in them, and PySpark logs each one at
        length as it is raised. Here they are answers to questions, so they are not logged.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from omnigraph.pipeline.bulk.load_task import cause_of

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")


def spark_words(error: Exception) -> str:
    """Return what an error says, without its code, plan and trace."""
    if not isinstance(error, PySparkException):
        cause = getattr(error, "java_exception", None)  # what Java raised and Spark has no words for
        return (str(error) if cause is None else str(cause.toString())).partition("\n")[0]
    said = error.getMessage() or str(error)
    if "Traceback" in said:
        return cause_of(error)
    line = said.removeprefix(f"[{error.getCondition()}]").strip().partition("\n")[0]
    return STATE.sub("", line)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging what it raises in this thread."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]  # a plain logger would not take its calls
    for one in loggers:
        one.addFilter(passes)
    try:
        yield
    finally:
        for one in loggers:
            one.removeFilter(passes)
