"""Spark's work is reported on while it runs, and stopped when whoever waits for it is."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.pipeline.progress import GROUP, StageProgress, watched

pytestmark = pytest.mark.spark
FOREVER = 100.0  # longer than any test may take


def slow_job(spark: SparkSession, tasks: int, seconds: float) -> int:
    """Run tasks that each take some time; return how many there were."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return len(spark.range(0, tasks, 1, tasks).mapInArrow(wait, "id long").collect())


def local(spark: SparkSession) -> dict[str, str | None]:
    return {name: spark.sparkContext.getLocalProperty(name) for name in GROUP}


def test_tasks_are_reported_while_they_are_done_and_all_at_the_end(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    with watched(spark, "waiting", lambda done, known: told.append((done, known)), every=0.02):
        assert slow_job(spark, 6, 0.2) == 6

    assert told[-1] == (6, 6)
    assert told == sorted(set(told)), "each number once, none taken back"
    assert any(done < known for done, known in told), "some before the end"


def test_a_block_that_asks_nothing_of_spark_reports_nothing(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    with watched(spark, "nothing", lambda done, known: told.append((done, known)), every=0.01):
        time.sleep(0.05)
    assert told == []


def test_stages_that_spark_skips_are_not_waited_for(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("skipping", "two jobs over one shuffle")
    try:
        pairs = context.parallelize(range(8), 4).map(lambda n: (n % 2, n)).reduceByKey(lambda a, b: a + b, 3)
        assert pairs.count() == pairs.count() == 2
    finally:
        for name in GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    progress = StageProgress(context, "skipping")

    for _ in range(200):  # Spark tells its own status a little later
        done, known = progress.count()
        if done == known == 10:
            break
        time.sleep(0.05)
    assert (done, known) == (10, 10), "4 + 3 tasks, then 3 with the first stage skipped"


def test_what_the_thread_had_set_is_set_again(spark: SparkSession) -> None:
    context = spark.sparkContext
    before = local(spark)
    context.setJobGroup("outer", "theirs", interruptOnCancel=False)
    outer = local(spark)
    try:
        with watched(spark, "inner"):
            assert local(spark)[GROUP[1]] == "inner"
            with watched(spark, "innermost", lambda *_: None):
                assert local(spark)[GROUP[1]] == "innermost"
            with watched(spark, "part of it"):  # whoever watches the inner one sees its tasks, too
                assert local(spark)[GROUP[1]] == "inner"
            assert local(spark)[GROUP[1]] == "inner"
        assert local(spark) == outer
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def test_an_interrupt_cancels_the_jobs_of_the_block_and_no_others(spark: SparkSession) -> None:
    ended: dict[str, object] = {}

    def run(name: str, seconds: float) -> None:
        try:
            ended[name] = slow_job(spark, 1, seconds)
        except (PySparkException, Py4JError) as error:  # Spark's errors come as either
            ended[name] = str(error)

    def begin_and_stop() -> None:
        ours.start()
        group = spark.sparkContext.getLocalProperty(GROUP[0])
        while not spark.sparkContext.statusTracker().getJobIdsForGroup(group):
            time.sleep(0.05)
        raise KeyboardInterrupt

    other = threading.Thread(target=run, args=("other", 2.0))
    other.start()
    ours = InheritableThread(target=run, args=("ours", FOREVER), session=spark)  # its group is set at start
    with pytest.raises(KeyboardInterrupt), watched(spark, "interrupted"):
        begin_and_stop()
    ours.join()
    other.join()

    assert "cancelled" in str(ended["ours"])
    assert ended["other"] == 1


def test_a_report_that_fails_ends_the_work_with_its_own_error(spark: SparkSession) -> None:
    def report(done: int, known: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"), watched(spark, "reported", report, every=0.05):
        slow_job(spark, 1, FOREVER)
    assert slow_job(spark, 1, 0.0) == 1, "Spark goes on"


def test_an_error_of_the_work_is_raised_as_it_is(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), watched(spark, "failing", lambda done, known: None):
        raise ZeroDivisionError


SCRIPT = """
import time
from omnigraph.pipeline import spark_session
from omnigraph.pipeline.progress import watched

spark = spark_session("local[1]")
spark.sparkContext.setLogLevel("OFF")

def wait(batches):
    for batch in batches:
        time.sleep(100)
        yield batch

try:
    with watched(spark, "waiting", lambda done, known: print("watching", flush=True), every=0.05):
        spark.range(1).mapInArrow(wait, "id long").collect()
except KeyboardInterrupt:
    tracker = spark.sparkContext.statusTracker()
    for _ in range(100):  # Spark tells a little later
        if not tracker.getActiveJobsIds():
            break
        time.sleep(0.1)
    print("interrupted", tracker.getActiveJobsIds(), spark.range(3).count(), flush=True)
"""


@pytest.mark.full
def test_ctrl_c_stops_the_work_and_leaves_spark_usable() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert said.splitlines()[-1] == "interrupted [] 3"
    finally:
        process.kill()
        process.wait()
