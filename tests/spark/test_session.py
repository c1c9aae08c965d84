"""A session is found or made, and nobody else's settings change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.session import OURS, JavaMissing, check_java, spark_session


@pytest.mark.spark
def test_a_running_spark_is_used_through_a_session_of_our_own(spark: SparkSession) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    ours = spark_session("local[7]", {"spark.sql.shuffle.partitions": "9"})

    assert ours.sparkContext is spark.sparkContext
    assert {name: ours.conf.get(name) for name in OURS} == dict(OURS)
    assert theirs.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


@pytest.mark.spark
def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    """S6: else they run whatever python3 is on PATH, which has no Arrow."""
    import pyarrow as pa

    found = spark.range(1).mapInArrow(
        lambda batches: (pa.RecordBatch.from_pydict({"p": [sys.executable]}) for _ in batches), "p string"
    )

    assert found.collect()[0].p == sys.executable


@pytest.mark.full  # a JVM of its own
@pytest.mark.spark
def test_a_spark_that_is_started_here_says_nothing_of_the_machine() -> None:
    code = "from omnigraph.pipeline import spark_session; print(spark_session('local[1]').range(3).count())"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == "3\n"
    # The line is Java's own: Spark starts it with a module that is not final yet.
    assert [line for line in ran.stderr.splitlines() if "incubator modules" not in line] == []


SUBMITTED = """
import json, sys
from omnigraph.pipeline import spark_session
spark = spark_session()
names = ("spark.ui.enabled", "spark.driver.extraJavaOptions", "spark.sql.session.timeZone")
conf = spark.sparkContext.getConf()
with open(sys.argv[1], "w") as file:
    told = [spark.sparkContext.master, *(conf.get(name) for name in names), spark.conf.get(names[2])]
    json.dump(told, file)
"""


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("master", ["local[1]", "local-cluster[1,1,1024]"])
def test_a_job_runs_where_and_as_it_was_submitted(tmp_path: Path, master: str) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    (tmp_path / "job.py").write_text(SUBMITTED)
    said = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.extraJavaOptions": "-Dmine=1",
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }
    flags = [word for name, value in said.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(home / "bin" / "spark-submit"),
        "--master",
        master,
        *flags,
        "job.py",
        "told",
    ]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}

    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)

    # The time zone is ours for our own session alone.
    where, pages, options, *zones = json.loads((tmp_path / "told").read_text())
    assert (where, pages, zones) == (master, "true", ["Asia/Tokyo", "UTC"])
    assert options.endswith("-Dmine=1")  # after those of Spark itself
    assert "log4j2" not in options


def test_what_was_said_before_is_known_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.master  spark://there:7077\nspark.ui.enabled=true\nspark.app.name My job\n"
    )
    words = "--master yarn --driver-memory 3g -c spark.x=a=b --conf 'spark.y=two words' pyspark-shell"
    code = "import json, os, omnigraph.pipeline.session as s; print(json.dumps(s._said_before(os.environ)))"
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": words}

    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)

    assert json.loads(ran.stdout) == {
        "spark.master": "yarn",
        "spark.ui.enabled": "true",
        "spark.app.name": "My job",
        "spark.driver.memory": "3g",
        "spark.x": "a=b",
        "spark.y": "two words",
    }


def java(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return folder


def test_a_java_that_is_new_enough_is_accepted(tmp_path: Path) -> None:
    home = java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    assert check_java({"JAVA_HOME": str(home)}) == 21
    assert check_java({"PATH": str(home / "bin")}) == 21


@pytest.mark.parametrize("says", ['java version "1.8.0_392"', "no such thing"])
def test_a_java_that_is_too_old_or_broken_is_named(says: str, tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"17 or newer.*bin/java"):
        check_java({"JAVA_HOME": str(java(tmp_path, says))})


def test_no_java_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is not set.*Install Java"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match="JAVA_HOME="):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_the_pipeline_imports_without_java_and_says_what_is_missing_without_pyspark() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None\nimport omnigraph, omnigraph.surfaces.cli.app\n"
    ran = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PATH": ""}, capture_output=True, text=True, check=False
        )
        for code in ("import omnigraph.pipeline.session", hidden, hidden + "import omnigraph.pipeline")
    ]

    assert [one.returncode for one in ran] == [0, 0, 1], [one.stderr for one in ran]
    assert "pip install 'omnigraph[spark]'" in ran[2].stderr


def test_the_pipeline_imports_where_only_the_client_of_spark_connect_is_installed() -> None:
    """The package pyspark-client has no `pyspark.core`, and does not need py4j."""
    code = """
import importlib, pkgutil, sys
sys.modules["pyspark.core"] = sys.modules["py4j"] = None
import omnigraph.pipeline
for module in pkgutil.walk_packages(omnigraph.pipeline.__path__, "omnigraph.pipeline."):
    importlib.import_module(module.name)
try:
    omnigraph.pipeline.spark_session()
except omnigraph.GraphError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "SPARK_REMOTE" in ran.stdout


CLIENT = """
from pyspark.sql.connect.session import SparkSession
from omnigraph.pipeline.session import close_at_exit
close_at_exit(SparkSession("sc://localhost:1"))  # as when the caller has stopped the server
"""


def test_a_session_of_ours_does_not_keep_the_process_from_ending() -> None:
    """Left open, a client of Spark Connect looks for its server at exit for ten minutes."""
    pytest.importorskip("grpc")

    ran = subprocess.run(
        [sys.executable, "-c", CLIENT], capture_output=True, text=True, check=False, timeout=60
    )

    assert ran.returncode == 0, ran.stderr
