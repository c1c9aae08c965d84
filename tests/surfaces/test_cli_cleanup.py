"""`omnigraph cleanup`: a preview by default, exact figures, and nothing destroyed without being asked."""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.support.contents import objects_at
from tests.support.desk import Desk
from tests.support.places import Place


@pytest.fixture
def address(desk: Desk) -> str:
    """A graph with a few commits."""
    where = desk.started()
    with og.connect(where, durability="os") as graph:
        for number in range(5):
            graph.load([{"type": "Person", "data": {"slug": f"p{number}"}}], mode="append")
    return where


def test_without_confirm_it_says_what_it_would_delete_and_deletes_nothing(desk: Desk, address: str) -> None:
    before = objects_at(Place(address, {}))

    ran = desk.run("cleanup", address, "--keep", "1", "--grace", "0s")

    assert ran.code == 0
    assert "node Person: " in ran.out
    assert "would delete" in ran.out
    assert "--confirm" in ran.out
    assert objects_at(Place(address, {})) == before


def test_the_run_deletes_what_the_preview_said(desk: Desk, address: str) -> None:
    line = ("cleanup", address, "--keep", "1", "--grace", "0s", "--json")

    preview = desk.run(*line).document
    done = desk.run(*line, "--confirm", "--yes").document

    assert (preview["dry_run"], done["dry_run"]) == (True, False)
    assert done["datasets"] == preview["datasets"] != []
    assert list(done) == [
        *("uri", "keep_versions", "older_than_secs", "dry_run"),
        *("files_removed", "bytes_removed", "old_versions_removed", "given_up", "datasets"),
    ]
    assert (done["uri"], done["keep_versions"], done["older_than_secs"]) == (address, 1, None)
    assert list(done["datasets"][0]) == [
        *("type_key", "files_removed", "bytes_removed", "old_versions_removed", "error")
    ]
    assert "node:Person" in [row["type_key"] for row in done["datasets"]]
    ran = desk.run(*line[:-1], "--confirm", "--yes")
    assert ran.out.strip() == "nothing to delete"
    with og.connect(address) as graph:
        assert len(graph.nodes("Person")) == 6


def test_history_that_goes_is_named_before_it_goes(desk: Desk, address: str) -> None:
    line = ("cleanup", address, "--keep", "2", "--grace", "0s")

    ran = desk.run(*line)

    assert "main: would give up 5 commits; the oldest that stays is " in ran.out
    assert "--confirm" in ran.out
    done = desk.run(*line, "--confirm", "--yes", "--json").document
    assert [(one["branch"], one["commits"]) for one in done["given_up"]] == [("main", 5)]


def test_what_was_the_head_within_the_grace_period_is_not_given_up(desk: Desk, address: str) -> None:
    ran = desk.run("cleanup", address, "--keep", "0")

    assert ran.out.strip() == "nothing to delete"


def test_ages_have_units_and_dry_run_wins_over_confirm(desk: Desk, address: str) -> None:
    before = objects_at(Place(address, {}))

    ran = desk.run("cleanup", address, "--older-than", "2w", "--confirm", "--dry-run", "--json")

    assert ran.document["older_than_secs"] == 14 * 86_400
    assert ran.document["dry_run"] is True
    assert objects_at(Place(address, {})) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "keep"),
        (("--older-than", "soon"), "length of time"),
        (("--keep", "1", "--grace", "1y"), "length of time"),
        (("--keep", "1", "--grace", "10m", "--confirm"), "--yes"),
        (("--keep", "-1"), "--keep"),
        (("--keep", "1", "--branch", "none"), None),
    ],
)
def test_what_cannot_be_meant_is_refused(
    desk: Desk, address: str, options: tuple[str, ...], text: str | None
) -> None:
    before = objects_at(Place(address, {}))

    ran = desk.run("cleanup", address, *options)

    assert ran.code == (2 if text is not None else 6)
    assert (text or "none") in ran.err
    assert objects_at(Place(address, {})) == before


def test_one_branch_can_be_cleaned(desk: Desk, address: str) -> None:
    with og.connect(address, durability="os") as graph:
        graph.branches.create("dev")
        for number in range(3):
            graph.load([{"type": "Person", "data": {"slug": f"d{number}"}}], mode="append", branch="dev")

    desk.run("cleanup", address, "--keep", "0", "--grace", "0s", "--branch", "dev", "--confirm", "--yes")

    with og.connect(address) as graph:
        assert graph.store.snapshot("dev").state.floor > 1
        assert graph.store.snapshot().state.floor == 0


@pytest.mark.s3
def test_on_an_object_store_it_asks_for_yes(desk: Desk, s3_place: Place) -> None:
    ran = desk.run("cleanup", s3_place.address, "--keep", "1", "--confirm", "--json")

    assert ran.code == 2
    assert ran.document["code"] == "confirmation_required"
