"""Policies are read again while a server runs; a broken file changes nothing, and is told."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from omnigraph.engine.access import Action
from omnigraph.surfaces.server.access import PolicyFiles
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.process import read_again
from omnigraph.surfaces.server.settings import ServedAddress, ServerSettings
from tests.support.inside import inside
from tests.support.served import serving
from tests.surfaces.server.clocks import HandClock
from tests.surfaces.server.conftest import make_graph

READERS = """
version: 1
groups: { people: [ada] }
rules:
  - id: read
    allow: { actors: { group: people }, actions: [read], branch_scope: any }
"""
WRITERS = READERS.replace("[read]", "[read, change]")
OF_SERVER = """
version: 1
kind: server
groups: { people: [ada] }
rules:
  - id: list
    allow: { actors: { group: people }, actions: [graph_list] }
"""
BROKEN = WRITERS.replace("actions:", "acitons:")


class Shelf:
    """A policy file of a server, and a clock that moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "policy.yaml"
        self.file.write_text(READERS)
        self.clock = HandClock()
        graphs = (ServedAddress("kb", "kb.og"), ServedAddress("other", "other.og", policy=self.file))
        self.files = PolicyFiles(ServerSettings(graphs=graphs, policies=(self.file,)), self.clock)

    def put(self, text: str) -> None:
        self.file.write_text(text)
        self.clock.seconds += 2

    def may_write(self) -> bool:
        decisions = {
            policy.decide("ada", Action.CHANGE, "main", resource=name).allowed
            for name, policy in self.files.now.graphs.items()
        }
        (decision,) = decisions  # both graphs have one policy
        return decision


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_change_is_seen_within_a_second(shelf: Shelf) -> None:
    assert not shelf.may_write()
    shelf.put(WRITERS)
    assert shelf.may_write()
    shelf.put(READERS)
    assert not shelf.may_write()


@pytest.mark.parametrize("text", [BROKEN, "", OF_SERVER.replace("graph_list", "read")])
def test_a_broken_file_leaves_the_policy_that_was_and_says_so_once(
    shelf: Shelf, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "omnigraph")
    shelf.put(WRITERS)
    assert shelf.may_write()
    shelf.put(text)
    assert [shelf.may_write() for _ in range(3)] == [True] * 3
    assert len([record for record in caplog.records if "the earlier ones stay" in record.message]) == 1
    shelf.put(READERS)
    assert not shelf.may_write()


def test_a_file_that_is_gone_leaves_the_policy_that_was(shelf: Shelf) -> None:
    shelf.file.unlink()
    shelf.clock.seconds += 2
    assert not shelf.may_write()
    assert not shelf.files.reload()
    shelf.put(WRITERS)
    assert shelf.may_write()


def test_a_reload_needs_no_second_to_pass(shelf: Shelf) -> None:
    shelf.file.write_text(WRITERS)
    assert not shelf.may_write()
    assert shelf.files.reload()
    assert shelf.may_write()


def test_a_quarantined_graph_is_tried_again(tmp_path: Path) -> None:
    place = make_graph(tmp_path)
    away = place.rename(tmp_path / "away.og")
    addresses = (ServedAddress("kb", str(place)), ServedAddress("other", str(away)))
    settings = ServerSettings(graphs=addresses, unauthenticated=True, strict=True)
    graphs = ServedGraphs.open(settings)
    app = create_app(settings, graphs)
    with inside(app) as http:

        def state() -> tuple[int, object, str]:
            ready = http.get("http://server/readyz").json()
            metric = 'og_graph_ready{graph="kb"} '
            line = next(
                one for one in http.get("http://server/metrics").text.splitlines() if one.startswith(metric)
            )
            return http.get("/branches").status_code, ready["graphs"]["kb"], line.removeprefix(metric)

        assert state() == (503, "quarantined: graph_not_found", "0.0")
        read_again(app.state.server)
        assert state()[0] == 503
        shutil.copytree(away, place)
        read_again(app.state.server)
        assert state() == (200, "ready", "1.0")
        everybody = {"query": "query all() { match { $p: Person } return { $p.name } }"}
        refused = {
            name: http.post(f"http://server/graphs/{name}/query", json=everybody) for name in ("kb", "other")
        }
        assert {name: answer.json()["code"] for name, answer in refused.items()} == dict.fromkeys(
            ("kb", "other"), "too_broad"
        )
    graphs.close()


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(300):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not become so")


@pytest.mark.slow
def test_a_signal_reads_tokens_policies_and_queries_again_in_every_worker(tmp_path: Path) -> None:
    place = make_graph(tmp_path)
    tokens, policy, queries = tmp_path / "tokens.json", tmp_path / "policy.yaml", tmp_path / "queries"
    tokens.write_text(json.dumps({"ada": "first-token"}))
    policy.write_text(READERS)
    queries.mkdir()
    told = ["--tokens", str(tokens), "--policy", str(policy), "--queries", str(queries)]
    levels = ["--log-level", "info", "--log-format", "json"]
    with serving(place, *told, "--workers", "2", *levels, authenticated=True) as server:
        tokens.write_text(json.dumps({"ada": "second-token"}))
        policy.write_text(WRITERS)
        (queries / "all.gq").write_text("query all() { match { $p: Person } return { $p.name } }")
        server.process.send_signal(signal.SIGHUP)
        for what in ("tokens", "policies", "stored queries"):
            until(lambda what=what: server.log.count(f"reloaded the {what}") == 2)  # type: ignore[misc]
        for token, status in (("first-token", 401), ("second-token", 200)):
            answer = httpx.get(f"{server.graph}/queries", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status
        assert [one["name"] for one in answer.json()["queries"]] == ["all"]
        assert server.stop() == 0
        assert all(json.loads(line)["level"] for line in server.log.splitlines())
