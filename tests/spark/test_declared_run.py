"""A pipeline runs as one commit, or leaves nothing behind; and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import parquet as pq
from pyspark.sql import SparkSession

from omnigraph.base.errors import ConstraintViolation, InvalidRequest, PreconditionFailed
from omnigraph.engine.merge.conflicts import MergeConflict
from omnigraph.pipeline.declared import (
    ExpectationFailed,
    Pipeline,
    PipelineError,
    PipelineFailed,
    RunProgress,
    RunReport,
    run,
)
from tests.spark.library import BASIC, BOOKS, Library, make_template

pytestmark = pytest.mark.spark
GROWING = BASIC.replace("{header: true}}", "{header: true}, watermark: updated}")
MORE = "3,Iris,50,2026-01-03\n"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph to be copied."""
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def library(tmp_path: Path, template: Path) -> Iterator[Library]:
    """A graph with one reader, and a source with two books."""
    found = Library.at(tmp_path, template)
    yield found
    found.graph.close()


def test_all_targets_are_one_commit_with_its_report(spark: SparkSession, library: Library) -> None:
    library.write("loans.csv", "who,book,due\nAda,2,2026-02-01\nBo,1,\n")
    text = """\
message: nightly
sources:
  raw: {format: csv, path: books.csv, options: {header: true}}
  loans: {format: csv, path: loans.csv, schema: "who string, book string, due date", options: {header: true}}
transforms:
  books: {sql: "select isbn, title, cast(pages as int) as n from raw"}
  readers: {sql: "select distinct who as name from loans"}
targets:
  - {type: Book, from: books, mode: append, columns: {n: pages}}
  - {type: Reader, from: readers, mode: merge}
  - {type: Borrowed, from: loans, mode: append, columns: {who: from, book: to}}
expectations:
  - {name: every loan has a book, sql: "select * from loans where book not in (select isbn from books)"}
"""
    before = library.commits()
    done = run(spark, library.graph, library.pipeline(text), actor="ann")

    assert library.commits() == before + 1
    commit = library.graph.commits.list(limit=1).commits[0]
    assert (commit.id, commit.message, commit.actor) == (done.commit_id, "nightly", "ann")
    assert dict(commit.labels) == {"pipeline": "p"}
    assert {key: row["pages"] for key, row in library.rows().items()} == {"1": 120, "2": 384}
    assert set(library.rows("Reader")) == {"Ada", "Bo"}
    assert library.graph.edges("Borrowed").to_arrow().num_rows == 2
    assert (done.outcome, done.rows_in, done.rows_out, done.rejected) == ("published", 4, 6, 0)
    assert [(one.type, one.rows, one.inserted, one.updated) for one in done.targets] == [
        ("Book", 2, 2, 0),
        ("Reader", 2, 1, 1),
        ("Borrowed", 2, 2, 0),
    ]
    assert [(one.kind, one.name) for one in done.stages] == [
        ("check", ""),
        ("source", "raw"),
        ("source", "loans"),
        ("transforms", ""),
        ("expectation", "every loan has a book"),
        ("load", "main"),
    ]
    assert done.requests > 0
    assert done.seconds >= sum(one.seconds for one in done.stages) > 0


def test_a_second_run_brings_rows_up_to_date(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline()
    run(spark, library.graph, pipeline)
    library.write("books.csv", BOOKS.replace("Emma", "Emma II") + MORE)
    done = run(spark, library.graph, pipeline)

    assert library.titles() == {"1": "Odes", "2": "Emma II", "3": "Iris"}
    (target,) = done.targets
    assert (target.rows, target.inserted, target.updated + target.inserted) == (3, 1, 3)


def test_progress_tells_every_step(spark: SparkSession, library: Library) -> None:
    told: list[RunProgress] = []
    run(spark, library.graph, library.pipeline(), progress=told.append)

    steps = list(dict.fromkeys((one.step, one.steps, one.kind) for one in told))
    assert steps == [(1, 4, "check"), (2, 4, "source"), (3, 4, "transforms"), (4, 4, "load")]
    assert any(one.tasks_done for one in told)
    assert {"reading", "writing"} <= {one.detail for one in told}


def test_python_runs_in_executors_wherever_they_are(spark: SparkSession, library: Library) -> None:
    library.write(
        "steps.py",
        "from pyspark.sql.functions import udf\n"
        "def shout(text):\n    return text.upper()\n"
        "def loud(spark, books):\n    return books.withColumn('title', udf(shout)('title'))\n",
    )
    text = BASIC.replace("targets:", "  all: {python: 'steps:loud', inputs: [books]}\ntargets:")
    run(spark, library.graph, library.pipeline(text.replace("from: books,", "from: all,")))
    assert library.titles() == {"1": "ODES", "2": "EMMA"}


def test_a_dry_run_does_everything_but_write(spark: SparkSession, library: Library) -> None:
    before = library.commits()
    text = BASIC + "branch: new\nthen: {merge: main}\n"
    done = run(spark, library.graph, library.pipeline(text), dry_run=True)

    assert (done.outcome, done.commit_id, done.merge) == ("rehearsed", None, None)
    assert [(one.type, one.rows) for one in done.targets] == [("Book", 2)]
    assert library.commits() == before
    assert [one.name for one in library.graph.branches.list()] == ["main"]


# -- what stops a run ----------------------------------------------------------------------------------


def refused(
    spark: SparkSession, library: Library, text: str, error: type[Exception]
) -> tuple[pytest.ExceptionInfo[Exception], dict[str, object]]:
    """Run a pipeline that must fail and publish nothing; return the error and the report."""
    before = library.commits()
    with pytest.raises(error) as caught:
        run(spark, library.graph, library.pipeline(text), report=library.folder / "out")
    assert library.commits() == before
    assert library.titles() == {}
    report = json.loads((library.folder / "out" / "report.json").read_text())
    assert report["outcome"] == "failed"
    assert (library.folder / "out" / "report.html").read_text().startswith("<!doctype html>")
    return caught, report


def test_a_broken_expectation_publishes_nothing(spark: SparkSession, library: Library) -> None:
    library.write("books.csv", BOOKS + "".join(f"{n},,1,2026-01-04\n" for n in range(10, 20)))
    text = BASIC + (
        "expectations:\n"
        "  - {name: titles, sql: \"select * from books where title is null or title = ''\"}\n"
        "  - {name: pages, sql: select * from books where pages < 0}\n"
        "  - {name: small, sql: select isbn from books where pages > 300}\n"
    )
    caught, report = refused(spark, library, text, ExpectationFailed)

    error = caught.value
    assert isinstance(error, ExpectationFailed)
    assert error.fields["total"] == 11
    assert [one["place"] for one in error.fields["violations"]] == ["p.yaml:8"] * 5 + ["p.yaml:10"]
    assert "'titles', 'small'" in error.message
    assert 'small: {"isbn": "2"}' in error.message
    broken = {one["name"]: one["broken"] for one in report["expectations"]}  # type: ignore[attr-defined]
    assert broken == {"titles": 10, "pages": 0, "small": 1}


def test_rows_that_break_a_rule_publish_nothing(spark: SparkSession, library: Library) -> None:
    library.write("books.csv", BOOKS + "3,,5,2026-01-03\n")
    caught, _ = refused(spark, library, BASIC, ConstraintViolation)
    assert "title" in str(caught.value)


def test_a_pipeline_with_errors_does_not_begin(spark: SparkSession, library: Library) -> None:
    caught, report = refused(spark, library, BASIC.replace("title,", "titel,"), PipelineError)
    assert isinstance(caught.value, PipelineError)
    assert [one.code for one in caught.value.diagnostics] == ["PL103"]
    assert report["sources"] == []


def test_a_step_that_fails_on_spark_is_named(spark: SparkSession, library: Library) -> None:
    text = BASIC + "expectations: [{name: numbers, sql: select * from books where cast(title as int) = 1}]\n"
    caught, report = refused(spark, library, text, PipelineFailed)
    assert str(caught.value).startswith("p: expectation numbers failed: ")
    assert "'Odes'" in str(caught.value)
    assert [one["kind"] for one in report["stages"]][-1] == "expectation"  # type: ignore[attr-defined]


def test_python_that_fails_on_rows_is_told_at_its_place(spark: SparkSession, library: Library) -> None:
    library.write(
        "steps.py", "def f(spark, books):\n    assert books.count() == 0, 'too many'\n    return books\n"
    )
    text = BASIC.replace("targets:", "  all: {python: 'steps:f', inputs: [books]}\ntargets:")
    caught, _ = refused(spark, library, text.replace("from: books,", "from: all,"), PipelineError)
    assert "it raised AssertionError: too many" in str(caught.value)


def test_a_type_that_is_overwritten_has_exactly_the_rows_of_the_run(
    spark: SparkSession, library: Library
) -> None:
    pipeline = library.pipeline(BASIC.replace("mode: merge", "mode: overwrite"))
    run(spark, library.graph, pipeline)
    library.write("books.csv", BOOKS.partition("\n")[0] + "\n")
    run(spark, library.graph, pipeline)
    assert library.titles() == {}
    library.write("books.csv", BOOKS.replace("1,Odes", "9,Ode"))
    run(spark, library.graph, pipeline)
    assert library.titles() == {"9": "Ode", "2": "Emma"}


def test_rejected_rows_are_left_out_and_told(spark: SparkSession, library: Library) -> None:
    library.write("books.csv", BOOKS + "3,,5,2026-01-03\n")
    text = BASIC + "on_violation: reject\nrejects: out/rejects.parquet\n"
    done = run(spark, library.graph, library.pipeline(text), report=library.folder / "report")

    assert library.titles() == {"1": "Odes", "2": "Emma"}
    assert (done.outcome, done.rejected, done.rejects) == (
        "published",
        1,
        str(library.folder / "out" / "rejects.parquet"),
    )
    assert done.rejects is not None
    (row,) = pq.read_table(done.rejects).to_pylist()
    assert (row["type"], row["property"]) == ("Book", "title")
    assert done.rejects in (library.folder / "report" / "report.html").read_text()


# -- branches ------------------------------------------------------------------------------------------


def test_a_branch_is_made_and_merged_at_the_end(spark: SparkSession, library: Library) -> None:
    text = BASIC + "branch: import\nmessage: books\nthen: {merge: main}\n"
    done = run(spark, library.graph, library.pipeline(text), actor="ann")

    assert library.titles("import") == library.titles() == {"1": "Odes", "2": "Emma"}
    assert done.merge is not None
    assert (done.merge["outcome"], done.merge["target"]) == ("fast_forward", "main")
    newest = library.graph.commits.list(limit=1).commits[0]
    assert (newest.merged_parent, newest.actor, newest.message) == (done.commit_id, "ann", "books")
    assert [one.kind for one in done.stages][-1] == "merge"


def test_a_preview_says_what_a_merge_would_do(spark: SparkSession, library: Library) -> None:
    text = BASIC + "branch: import\nthen: {preview: main}\n"
    done = run(spark, library.graph, library.pipeline(text))

    assert library.titles() == {}
    assert done.merge is not None
    assert (done.merge["preview"], done.merge["nodes"][0]["inserted"]) == (True, 2)


def test_a_merge_that_cannot_be_keeps_the_commit_and_is_made_up_for(
    spark: SparkSession, library: Library
) -> None:
    library.graph.branches.create("import")
    library.graph.load([{"type": "Book", "data": {"isbn": "1", "title": "Other"}}], mode="append")
    pipeline = library.pipeline(GROWING + "branch: import\nthen: {merge: main}\n")
    with pytest.raises(MergeConflict) as caught:
        run(spark, library.graph, pipeline, report=library.folder / "out")

    head = library.graph.commits.list("import", limit=1).commits[0]
    assert f"The rows are on branch 'import', commit {head.id}" in str(caught.value)
    report = json.loads((library.folder / "out" / "report.json").read_text())
    assert (report["outcome"], report["graph_commit_id"]) == ("failed", head.id)

    library.graph.mutate('query q() { delete Book where isbn = "1" }')
    done = run(spark, library.graph, pipeline, since=True)
    assert (done.outcome, done.commit_id) == ("nothing_new", None)
    assert done.merge is not None
    assert library.titles() == {"1": "Odes", "2": "Emma"}


# -- from where the last run stopped -------------------------------------------------------------------


def again(spark: SparkSession, library: Library, pipeline: Pipeline, **more: object) -> RunReport:
    return run(spark, library.graph, pipeline, since=True, **more)  # type: ignore[arg-type]


def test_a_run_goes_on_where_the_last_one_stopped(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING.replace("mode: merge", "mode: append"))
    first = again(spark, library, pipeline)
    assert (first.rows_in, first.since_commit_id) == (2, None)
    commit = library.graph.commits.list(limit=1).commits[0]
    assert commit.labels["pipeline.p.watermark.raw"] == "2026-01-02"

    library.graph.mutate('query q() { insert Reader { name: "Cy" } }')  # others write too
    library.write("books.csv", BOOKS + MORE)
    second = again(spark, library, pipeline)
    assert (second.outcome, second.rows_in, second.since_commit_id) == ("published", 1, commit.id)
    (source,) = second.sources
    assert (source.since, source.watermark) == ("2026-01-02", "2026-01-03")
    assert library.titles() == {"1": "Odes", "2": "Emma", "3": "Iris"}


def test_a_run_that_finds_nothing_new_makes_no_commit(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING.replace("mode: merge", "mode: append"))
    again(spark, library, pipeline)
    before = library.commits()
    for _ in range(2):
        done = again(spark, library, pipeline, report=library.folder / "out")
        assert (done.outcome, done.rows_in, done.commit_id, done.targets) == ("nothing_new", 0, None, ())
    assert library.commits() == before
    assert "found nothing new" in (library.folder / "out" / "report.html").read_text()


def test_a_failed_run_leaves_no_watermark(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING)
    again(spark, library, pipeline)
    library.write("books.csv", BOOKS + "3,,5,2026-01-03\n")
    with pytest.raises(ConstraintViolation):
        again(spark, library, pipeline)
    library.write("books.csv", BOOKS + MORE)
    assert again(spark, library, pipeline).rows_in == 1


def test_a_source_without_new_rows_keeps_its_watermark(spark: SparkSession, library: Library) -> None:
    library.write("names.csv", "name,day\nBo,1\n")
    text = GROWING.replace(
        "transforms:",
        "  names: {format: csv, path: names.csv, schema: 'name string, day int', options: {header: true}, "
        "watermark: day}\ntransforms:\n  readers: {sql: select name from names}",
    )
    pipeline = library.pipeline(text + "  - {type: Reader, from: readers, mode: merge}\n")
    again(spark, library, pipeline)
    library.write("books.csv", BOOKS + MORE)
    assert again(spark, library, pipeline).rows_in == 1
    labels = library.graph.commits.list(limit=1).commits[0].labels
    assert labels["pipeline.p.watermark.names"] == "1"
    library.write("names.csv", "name,day\nBo,1\nCy,2\n")
    assert again(spark, library, pipeline).rows_in == 1


def test_another_pipeline_has_watermarks_of_its_own(spark: SparkSession, library: Library) -> None:
    again(spark, library, library.pipeline(GROWING, "one"))
    assert again(spark, library, library.pipeline(GROWING, "two")).rows_in == 2
    assert again(spark, library, library.pipeline(GROWING, "one")).outcome == "nothing_new"


def test_a_run_on_a_branch_is_found_from_where_it_was_merged(spark: SparkSession, library: Library) -> None:
    then = "then: {merge: main}\n"
    again(spark, library, library.pipeline(f"{GROWING}branch: monday\n{then}"))
    library.graph.mutate('query q() { insert Reader { name: "Cy" } }')
    library.write("books.csv", BOOKS + MORE)
    done = again(spark, library, library.pipeline(f"{GROWING}branch: tuesday\n{then}"))
    assert (done.rows_in, library.titles()) == (1, {"1": "Odes", "2": "Emma", "3": "Iris"})


def test_a_run_that_was_undone_is_done_again(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING)
    done = again(spark, library, pipeline)
    assert done.commit_id is not None
    library.graph.revert(done.commit_id)
    assert library.titles() == {}
    assert again(spark, library, pipeline).rows_in == 2
    assert library.titles() == {"1": "Odes", "2": "Emma"}


def when(kind: str, act: Callable[[], object]) -> Callable[[RunProgress], None]:
    """Do something once, when a step begins."""
    waiting = [act]

    def tell(now: RunProgress) -> None:
        if now.kind == kind and waiting:
            waiting.pop()()

    return tell


def test_of_two_runs_at_once_one_is_refused(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING.replace("mode: merge", "mode: append"))
    with pytest.raises(PreconditionFailed):
        again(spark, library, pipeline, progress=when("transforms", lambda: again(spark, library, pipeline)))
    assert library.titles() == {"1": "Odes", "2": "Emma"}
    assert again(spark, library, pipeline).outcome == "nothing_new"


def test_since_needs_a_watermark(spark: SparkSession, library: Library) -> None:
    with pytest.raises(InvalidRequest, match="has no source with a watermark"):
        again(spark, library, library.pipeline())


def test_since_refuses_to_replace_a_type_by_its_new_rows(spark: SparkSession, library: Library) -> None:
    pipeline = library.pipeline(GROWING.replace("mode: merge", "mode: overwrite"))
    assert run(spark, library.graph, pipeline).outcome == "published"
    with pytest.raises(InvalidRequest, match="Book would be replaced by its new rows alone"):
        again(spark, library, pipeline)
    assert library.titles() == {"1": "Odes", "2": "Emma"}
