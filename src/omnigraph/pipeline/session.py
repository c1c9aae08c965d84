"""Session: the Spark that bulk work runs on, and DataFrames whose rows tasks make.

A caller's Spark is used where there is one, through a session of our own, so that settings of ours never
reach their queries; else one is started in this process.

Given   for a new one: a master and settings. Both are ignored by a Spark that runs already.
Rule    what was found is never stopped here, and a Python that the caller chose for workers stays chosen.
        What `spark-submit`, `PYSPARK_SUBMIT_ARGS` or `spark-defaults.conf` say stays as they say it: a
        default of ours is set only where nothing is.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.util import is_remote_only

from omnigraph.base.arguments import checked
from omnigraph.base.errors import InvalidRequest
from omnigraph.pipeline.options import coded
from omnigraph.pipeline.reading.scan import Fragments, TableScan, spark_schema

JAVA = 17
MASTER = "local[*]"
_FLAGS = {  # of spark-submit, which have a setting of their own
    "--master": "spark.master",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
LOGGING = Path(__file__).with_name("log4j2.properties")
# What can only be said before Spark starts.
START = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"',
    }
)
# What a session of ours says; a session found says the rest.
OURS = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",  # names of properties may differ by case only
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # their bytes are bounded apart
    }
)


class JavaMissing(InvalidRequest):
    """Spark cannot start here, for want of a Java that it runs on."""

    code = "java_missing"


@checked
def spark_session(
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    environment: dict[str, str] | os._Environ[str] = os.environ,
) -> SparkSession:
    """Return a session with our settings: on the Spark that runs in this process, or on a new one.

    A new one has the master and the settings that the job was submitted with, `master` and `config` above
    them; where nothing says anything it runs in this process. With `SPARK_REMOTE` it is behind Spark Connect.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return own_session(running)
    if is_remote_only() or environment.get("SPARK_REMOTE"):
        return _behind_connect(config or {}, environment)
    check_java(environment)
    known = _said_before(environment)
    settings = {"spark.master": MASTER, **START}
    settings = {name: value for name, value in settings.items() if name not in known}
    settings |= {**({} if master is None else {"spark.master": master}), **(config or {})}
    if (settings.get("spark.master") or known["spark.master"]).startswith("local"):
        # Else the workers of a cluster have a Python of their own.
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        environment.setdefault("PYSPARK_DRIVER_PYTHON", environment["PYSPARK_PYTHON"])
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The JVM starts from a forked child, which runs no Python.
        warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
        return _settled(builder.getOrCreate(), config or {})


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session on the same Spark with our settings, and with nothing that the caller's has."""
    session = _settled(spark.newSession())
    if getattr(session, "_jvm", None) is None:
        close_at_exit(session)
    return session


def close_at_exit(session: SparkSession) -> None:
    """Close a client of Spark Connect when the process ends, which it would hold up otherwise.

    An open one whose server was stopped looks for it for ten minutes or more. Callers stop their own
    sessions, and know nothing of ours.
    """
    atexit.register(session.client.close)


def _behind_connect(config: Mapping[str, str], environment: Mapping[str, str]) -> SparkSession:
    """Return a session on a server that runs elsewhere, which has a master and a Java of its own."""
    if not environment.get("SPARK_REMOTE"):
        raise InvalidRequest(
            "only the client of Spark Connect is installed, and nothing says where the server is",
            remedy="Set SPARK_REMOTE, or make a session with SparkSession.builder.remote(...) first",
        )
    return _settled(SparkSession.builder.remote(environment["SPARK_REMOTE"]).getOrCreate(), config)


def _said_before(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that somebody chose before this code runs."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in environment:
        SparkContext._ensure_initialized()  # spark-submit started the JVM
        return dict(SparkConf().getAll())
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    said: dict[str, str] = {}
    for flag, value in pairwise(words):
        if flag in ("--conf", "-c"):
            name, _, text = value.partition("=")
            said[name] = text
        elif flag in _FLAGS:
            said[_FLAGS[flag]] = value
        elif flag == "--properties-file":
            said = {**_settings_in(Path(value)), **said}
    home = environment.get("SPARK_CONF_DIR") or Path(environment.get("SPARK_HOME", "")) / "conf"
    return {**_settings_in(Path(home) / "spark-defaults.conf"), **said}


def _settings_in(file: Path) -> dict[str, str]:
    """Read a file of settings; Spark itself says what is wrong with one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (re.split(r"[=\s]+", line.strip(), maxsplit=1) for line in lines if not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one for a moment: Spark asks that one whether a format exists, whichever
    session it is to be registered with, and refuses what another session of ours has.
    """
    before = SparkSession.getActiveSession()
    jvm = getattr(session, "_jvm", None)
    if before is None or before is session or jvm is None:  # behind Spark Connect each has a server side
        yield
        return
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        jvm.SparkSession.setActiveSession(before._jsparkSession)


def check_java(environment: Mapping[str, str]) -> int:
    """Return the version of the Java that Spark would start, or say what is wrong with it."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    remedy = f"Install Java {JAVA} or newer, and set JAVA_HOME or PATH"
    if program is None or not Path(program).exists():
        where = f"JAVA_HOME={home} has none" if home else "JAVA_HOME is not set and PATH has none"
        raise JavaMissing(f"Spark needs Java: {where}", remedy=remedy)
    text = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    if version is None or int(version[1]) < JAVA:
        raise JavaMissing(f"Spark needs Java {JAVA} or newer: {program} is {text.strip()!r}", remedy=remedy)
    return int(version[1])


def _settled(session: SparkSession, config: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Give a session our settings, for itself alone; what the caller said of them counts more."""
    for name, value in OURS.items():
        session.conf.set(name, config.get(name, value))
    return session


# -- tasks -------------------------------------------------------------------------------------------
#
# A DataFrame whose rows executors make, one task for each item. The one way in which work of ours becomes
# rows on Spark. A data source of Python gives the same rows more slowly: Spark plans it in processes of its
# own and takes it row by row.


Item = TypeVar("Item")


def rows_of(
    spark: SparkSession,
    items: Sequence[Item],
    make: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return the rows that are made of each item, in a task for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(items[number])

    return spark.range(0, len(items), 1, max(len(items), 1)).mapInArrow(run, schema)


def frame_of(spark: SparkSession, scan: TableScan) -> DataFrame:
    """Return the rows of a scan."""

    def rows(group: Fragments) -> Iterator[pa.RecordBatch]:
        with coded():
            yield from scan.read(group)

    return rows_of(spark, scan.groups(slots=slots(spark)), rows, spark_schema(scan.schema))


def slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time; behind Spark Connect that is not known."""
    context = getattr(spark, "sparkContext", None)
    return 1 if context is None else max(int(context.defaultParallelism), 1)
