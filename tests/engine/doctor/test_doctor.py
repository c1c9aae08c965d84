"""Each thing that can be wrong with a graph is found, alone and by its code; a clean graph has no finding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, GraphNotFound
from omnigraph.engine.doctor import checks, indexes
from omnigraph.engine.doctor.examination import Examination
from omnigraph.engine.doctor.report import DoctorFinding, DoctorReport
from tests.engine.doctor.damaged import newest_data_file, put_rows
from tests.formats.make_graph import FIRST, write
from tests.support import everything
from tests.support.people import company, knows, person, works
from tests.support.places import Place
from tests.support.stores import nothing_written


def codes(report: DoctorReport, severity: str = "error") -> set[str]:
    return {finding.code for finding in report.findings if finding.severity == severity}


def broken(report: DoctorReport) -> set[str]:
    return codes(report) | codes(report, "warning")


# -- clean graphs ------------------------------------------------------------------------------------


@pytest.fixture
def lived_in(place: Place) -> Iterator[Graph]:
    """A graph with branches, tags, merges, deletes, schema changes, vectors and indexes."""
    with og.init(place.address, FIRST, durability="os", **place.kwargs) as graph:
        write(graph)
        yield graph


@pytest.mark.parametrize("deep", [False, True])
def test_a_graph_that_has_lived_has_no_finding(lived_in: Graph, place: Place, deep: bool) -> None:
    with nothing_written(place):
        report = lived_in.doctor(deep=deep)
    assert (report.ok, broken(report), report.deep) == (True, set(), deep)
    assert [check.name for check in report.checks] == [check.name for check in checks.CHECKS]


@pytest.mark.parametrize("deep", [False, True])
def test_values_of_every_kind_and_blobs_have_no_finding(tmp_path: Path, deep: bool) -> None:
    with everything.make(tmp_path / "g.og") as graph:
        graph.ensure_indexes()
        report = graph.doctor(deep=deep)
    assert broken(report) == set()


def test_progress_names_every_check_and_counts_what_it_looks_at(peopled: Graph) -> None:
    told: list[checks.DoctorProgress] = []

    report = peopled.doctor(progress=told.append)

    looked_at = {now.check: now.looked_at for now in told}
    assert looked_at == {check.name: check.looked_at for check in report.checks}
    assert [now.checks_done for now in told] == sorted(now.checks_done for now in told)
    assert {now.checks for now in told} == {len(report.checks)}


def test_an_empty_graph_has_no_finding(graph: Graph) -> None:
    assert graph.doctor(deep=True).findings == ()


# -- rows --------------------------------------------------------------------------------------------


@pytest.fixture
def peopled(graph: Graph) -> Graph:
    """People, companies and edges between them."""
    graph.load([person("Ada", age=30, email="ada@x"), person("Bob"), company("Acme")], mode="append")
    graph.load([knows("Ada", "Bob"), works("Ada", "Acme")], mode="append")
    return graph


WRONG_ROWS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    # code -> the table, a row that breaks it, and the row that the finding names
    "duplicate_id": ("Person", {"id": "Ada", "name": "Ada"}, "Ada"),
    "dangling_edge": ("Knows", {"id": "e1", "src": "Ada", "dst": "Nobody"}, "e1"),
    "wrong_id": ("Person", {"id": "Eve", "name": "Eva"}, "Eve"),
    "range": ("Person", {"id": "Eve", "name": "Eve", "age": 500}, "Eve"),
    "required": ("Thing", {"id": "t1", "value": None}, "t1"),
    "unique": ("Person", {"id": "Eve", "name": "Eve", "email": "ada@x"}, "Ada"),
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("code", WRONG_ROWS)
def test_a_row_that_breaks_a_rule_is_found_and_nothing_else(peopled: Graph, code: str, deep: bool) -> None:
    table, row, named = WRONG_ROWS[code]
    put_rows(peopled, table, [row])
    report = peopled.doctor(deep=deep)
    assert broken(report) == {code}
    (finding,) = report.of("error")
    assert (finding.where.type, finding.where.branch, finding.where.row) == (table, "main", named)
    assert finding.where.commit == peopled.store.snapshot().commit_id


def test_too_many_edges_of_one_node_are_found(peopled: Graph) -> None:
    put_rows(peopled, "WorksAt", [{"id": f"w{n}", "src": "Ada", "dst": "Acme"} for n in range(3)])
    assert broken(peopled.doctor()) == {"cardinality"}


def test_a_wrong_part_of_a_composite_key_is_found(peopled: Graph) -> None:
    wrong, right = {"id": '["1","2"]', "day": 1, "row": 3}, {"id": '["4","5"]', "day": 4, "row": 5}
    put_rows(peopled, "Slot", [wrong, right])
    assert [finding.where.row for finding in peopled.doctor().of("error")] == ['["1","2"]']


def test_a_row_that_is_wrong_on_a_branch_alone_is_found_there(peopled: Graph) -> None:
    peopled.branches.create("b")
    put_rows(peopled, "Knows", [{"id": "e1", "src": "Nobody", "dst": "Ada"}], branch="b")
    assert [finding.where.branch for finding in peopled.doctor().of("error")] == ["b"]
    assert peopled.doctor(branch="main").ok
    assert not peopled.doctor(branch="b").ok


def test_many_wrong_rows_are_told_by_the_first_ones_and_a_number(peopled: Graph) -> None:
    put_rows(peopled, "Knows", [{"id": f"e{n:03}", "src": "Ada", "dst": f"x{n}"} for n in range(50)])
    found = peopled.doctor().of("error")
    assert len(found) == 21
    assert found[-1].what.startswith("30 more rows")


# -- one broken thing hides no other -----------------------------------------------------------------


def test_several_broken_things_are_all_found(peopled: Graph) -> None:
    put_rows(peopled, "Person", [{"id": "Bob", "name": "Bob"}])
    put_rows(peopled, "Thing", [{"id": "t1", "value": None}])
    newest_data_file(peopled, "WorksAt").unlink()
    report = peopled.doctor()
    assert broken(report) == {"duplicate_id", "required", "file_missing"}


def test_an_exception_inside_a_check_is_a_finding_and_stops_nothing(
    peopled: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(exam: Any, unit: Any) -> Iterator[Any]:
        yield DoctorFinding("seen", "info", unit[1].name, "")
        if unit[1].name == "Company":
            raise RuntimeError("a bug")

    broken_check = checks.HealthCheck("broken", "never", Examination.declared, fails)
    monkeypatch.setattr(checks, "CHECKS", (broken_check, *checks.CHECKS))
    put_rows(peopled, "Person", [{"id": "Bob", "name": "Bob"}])
    report = peopled.doctor()
    assert broken(report) == {"check_failed", "duplicate_id"}
    (failed,) = [finding for finding in report.findings if finding.code == "check_failed"]
    assert (failed.where.type, "a bug" in failed.what) == ("Company", True)
    seen = {finding.what for finding in report.findings if finding.code == "seen"}
    assert seen == {"Person", "Company", "Thing", "Slot", "Knows", "WorksAt"}


def test_a_check_that_cannot_even_begin_is_a_finding(peopled: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(exam: Any) -> Any:
        raise RuntimeError("no units")

    broken_check = checks.HealthCheck("broken", "never", nothing, checks.CHECKS[0].run)
    monkeypatch.setattr(checks, "CHECKS", (broken_check, *checks.CHECKS))
    assert broken(peopled.doctor()) == {"check_failed"}


def test_words_that_are_asked_for_together_share_no_text() -> None:
    postings = {"a": [1, 2, 3], "b": [1], "c": [2], "d": [3, 4], "e": [4]}
    asked = list(indexes._apart(postings))
    assert sorted(word for words in asked for word in words) == sorted(postings)
    for words in asked:
        rows = [row for word in words for row in postings[word]]
        assert len(rows) == len(set(rows))
    assert len(asked) < len(postings)


# -- what is asked for -------------------------------------------------------------------------------


def test_a_branch_that_is_not_there_and_a_graph_that_is_not_there_are_refused(graph: Graph) -> None:
    with pytest.raises(BranchNotFound):
        graph.doctor(branch="nope")
    for file in sorted(Path(graph.uri).rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    with pytest.raises(GraphNotFound):
        graph.doctor()


def test_a_report_is_plain_json(peopled: Graph) -> None:
    put_rows(peopled, "Person", [{"id": "Bob", "name": "Bob"}])
    document = json.loads(json.dumps(peopled.doctor().to_json()))
    assert document["counts"] == {"error": 1, "warning": 0, "info": len(peopled.doctor().of("info"))}
    assert document["findings"][0]["where"]["row"] == "Bob"
    assert (document["ok"], document["repairs"]) == (False, [])
