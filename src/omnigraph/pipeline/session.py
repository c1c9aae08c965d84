"""Session: the Spark that bulk work runs on, found or made.

Room    pipeline. A caller's Spark is used where there is one, through a session of our own, so that settings
        of ours never reach their queries; else one is started in this process.
Given   for a new one: a master and settings. Both are ignored by a Spark that runs already.
Rule    what was found is never stopped here, and a Python that the caller chose for workers stays chosen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from omnigraph.base.errors import InvalidRequest

JAVA = 17
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


def spark_session(
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    *,
    environment: dict[str, str] | os._Environ[str] = os.environ,
) -> SparkSession:
    """Return a session with our settings: on the Spark that runs in this process, or on a new one."""
    found = SparkSession.getActiveSession()
    if found is not None:
        return _settled(found.newSession())
    check_java(environment)
    if master.startswith("local"):  # else the workers of a cluster have a Python of their own
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        environment.setdefault("PYSPARK_DRIVER_PYTHON", environment["PYSPARK_PYTHON"])
    builder = SparkSession.builder.master(master)
    for name, value in {**START, **OURS, **(config or {})}.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The JVM starts from a forked child, which runs no Python.
        warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
        return builder.getOrCreate()


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
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < JAVA:
        raise JavaMissing(f"Spark needs Java {JAVA} or newer: {program} is {told.strip()!r}", remedy=remedy)
    return int(version[1])


def _settled(session: SparkSession) -> SparkSession:
    for name, value in OURS.items():
        session.conf.set(name, value)
    return session
