"""Stored queries are listed, called by name, and looked at again when their folder changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.people import INSERT
from tests.support.served import Served, serving
from tests.surfaces.server.conftest import make_graph

ADULTS = """query adults($least: I32) {
  match { $p: Person  $p.age >= $least }
  return { $p.name as name }
  order { $p.name asc }
}
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("stored")
    queries = folder / "queries"
    queries.mkdir()
    (queries / "people.gq").write_text(ADULTS)
    (queries / "add.gq").write_text(INSERT)
    with serving(make_graph(folder), "--queries", str(queries)) as served:
        yield served, queries


@pytest.fixture
def http(stored: tuple[Served, Path]) -> Iterator[httpx.Client]:
    with stored[0].client() as client:
        yield client


def test_they_are_listed_with_their_parameters(http: httpx.Client) -> None:
    entries = {entry["name"]: entry for entry in http.get("/queries").json()["queries"]}
    assert list(entries) == ["add", "adults"]
    assert [entries[name]["mutation"] for name in entries] == [True, False]
    assert entries["adults"]["params"] == [{"name": "least", "kind": "int", "nullable": False}]


def test_a_read_and_a_mutation_are_called_by_name(http: httpx.Client) -> None:
    read = http.post("/queries/adults", json={"params": {"least": 40}}).json()
    assert read["rows"] == [{"name": "Bob"}]
    http.post("/branches", json={"name": "called"})
    called = {"params": {"name": "Zoe", "age": 50}, "branch": "called", "expect_mutation": True}
    first = http.post("/queries/add", json=called, headers={"Idempotency-Key": "z"}).json()
    again = http.post("/queries/add", json=called, headers={"Idempotency-Key": "z"})
    assert again.json()["commit"] == first["commit"]
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("none", None, 404, "query_not_found"),
        ("adults", None, 400, "bad_request"),
        ("adults", {"params": {"least": 1}, "expect_mutation": True}, 400, "bad_request"),
        ("adults", {"params": {"least": 1}, "message": "why"}, 400, "bad_request"),
        ("add", {"params": {"name": "a", "age": 1}, "snapshot": "main~0"}, 400, "bad_request"),
    ],
)
def test_a_wrong_call_is_refused(http: httpx.Client, name: str, body: object, status: int, code: str) -> None:
    answer = http.post(f"/queries/{name}", json=body) if body else http.post(f"/queries/{name}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_change_of_the_folder_is_noticed_and_a_faulty_one_is_not_taken(
    http: httpx.Client, stored: tuple[Served, Path]
) -> None:
    _, queries = stored
    file = queries / "later.gq"
    file.write_text("query later() { match { $c: Company } return { $c.name as name } }")
    while http.post("/queries/later").status_code != 200:
        pass
    file.write_text("query later() { match { $c: Nothing } return { $c.name } }")
    os.utime(file, (1, 1))
    while "were not reloaded" not in stored[0].log:
        http.get("/queries")
    assert http.post("/queries/later").json()["rows"] == [{"name": "Acme"}]


def test_a_query_that_does_not_fit_the_schema_keeps_a_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "bad.gq").write_text("query bad() { match { $c: Nothing } return { $c.name } }")
    server = serving(make_graph(tmp_path), "--queries", str(tmp_path))
    with pytest.raises(AssertionError, match="Nothing"):
        server.__enter__()
