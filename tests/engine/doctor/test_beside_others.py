"""Doctor beside writers, retention and hard drops: what is taken away on purpose is no damage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.doctor import checks, files
from omnigraph.engine.doctor.examination import Examination
from omnigraph.storage.durability import armed
from tests.engine.doctor.damaged import table_id
from tests.support.people import SCHEMA, knows, person
from tests.support.places import Place
from tests.support.stores import Once


def grave(graph: Graph, **options: Any) -> list[str]:
    return [finding.code for finding in graph.doctor(**options).findings if finding.severity != "info"]


@pytest.fixture
def peopled(graph: Graph) -> Graph:
    graph.load([person("Ada"), person("Bob"), knows("Ada", "Bob")], mode="append")
    return graph


def test_writers_at_work_are_no_finding(peopled: Graph) -> None:
    stop, failed = threading.Event(), []

    def write() -> None:
        with og.connect(peopled.uri, durability="os") as other:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    other.load([person(f"p{number}"), knows("Ada", f"p{number}")], mode="merge")
                    if number % 7 == 0:
                        other.mutate(f'query q() {{ delete Person where name = "p{number}" }}')
                        other.ensure_indexes()
                except Exception as error:  # noqa: BLE001 - told below
                    failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [grave(peopled, deep=deep) for deep in (False, True, False, True)]
    finally:
        stop.set()
        writer.join()
    assert (found, failed) == ([[], [], [], []], [])


@pytest.mark.parametrize("check", ["lineage", "files", "history"])
def test_a_cleanup_under_an_examination_is_no_damage(peopled: Graph, check: str) -> None:
    for number in range(5):
        peopled.load([person("Ada", note=str(number))], mode="merge")
    with og.connect(peopled.uri, durability="os") as other:
        clean = Once(lambda: other.cleanup(keep=1, grace="0s", dry_run=False))

        def at_check(now: checks.DoctorProgress) -> None:
            if now.check == check and now.looked_at == 0:
                clean()

        assert grave(peopled, deep=True, progress=at_check) == []
    assert clean.ran


def test_a_hard_drop_under_an_examination_is_no_damage(
    peopled: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = SCHEMA.replace("note: String?\n  email", "email")
    assert without != SCHEMA
    drop = Once(lambda: peopled.schema.apply(without, allow_data_loss=True))
    honest = files.files

    def while_dropping(exam: Examination, table: Any) -> Iterator[Any]:
        drop()
        return honest(exam, table)

    table = tuple(
        checks.HealthCheck(c.name, c.promise, c.units, while_dropping, c.only_deep)
        if c.name == "files"
        else c
        for c in checks.CHECKS
    )
    monkeypatch.setattr(checks, "CHECKS", table)
    assert grave(peopled, deep=True) == []
    assert drop.ran


def test_history_that_was_reclaimed_is_no_damage(peopled: Graph) -> None:
    peopled.schema.apply(SCHEMA.replace("note: String?\n  email", "email"), allow_data_loss=True)
    assert grave(peopled, deep=True) == []


def test_history_below_the_floor_is_not_looked_at_and_a_tag_there_is_told(peopled: Graph) -> None:
    peopled.tags.create("old")
    for n in range(5):
        peopled.load([person(f"p{n}")], mode="append")
    head = peopled.store.snapshot().state.version
    peopled.store.raise_floor("main", head)
    report = peopled.doctor(deep=True)
    assert [finding.code for finding in report.findings if finding.severity == "warning"] == ["tag_reclaimed"]
    assert report.ok


@pytest.mark.parametrize(
    "point", ["branch_register.before", "branch_tombstone.before", "branch_unregister.before"]
)
def test_a_change_of_names_that_was_interrupted_is_told(peopled: Graph, point: str) -> None:
    class Interrupted(Exception):
        pass

    def interrupt() -> None:
        raise Interrupted

    if not point.startswith("branch_register"):
        peopled.branches.create("b")
    with armed({point: interrupt}), pytest.raises(Interrupted):
        peopled.branches.create("b") if point.startswith("branch_register") else peopled.branches.delete("b")
    report = peopled.doctor()
    assert grave(peopled) == []
    code = "unnamed_chain" if point.startswith("branch_register") else "unfinished_branch"
    assert code in {finding.code for finding in report.findings}


@pytest.mark.s3
def test_damage_on_an_object_store_is_found(s3_place: Place) -> None:
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        graph.load([person("Ada"), person("Bob"), knows("Ada", "Bob")], mode="append")
        assert grave(graph, deep=True) == []
        table = table_id(graph, "Knows")
        objects = graph.store.location.objects
        (file,) = [key for key, _ in objects.list(f"tables/{table}/data")]
        objects.delete(file)
        (finding,) = graph.doctor().of("error")
        assert (finding.code, finding.where.file) == ("file_missing", file)
