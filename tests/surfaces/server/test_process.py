"""The server as a process: how it starts, whom it serves, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_type_hints

import httpx
import pytest

from omnigraph.surfaces.cli import token
from omnigraph.surfaces.cli.app import root
from omnigraph.surfaces.cli.serve import serve
from tests.support.people import INSERT
from tests.support.served import Served, serving
from tests.surfaces.server.conftest import make_graph

DOCS = Path(__file__).parents[3] / "docs"
READ = {"query": "query all() { match { $p: Person } return { $p.name } }"}
ADD = {"query": INSERT, "params": {"name": "New", "age": 1}}
POLICY = """
version: 1
kind: graph
groups:
  readers: [rita]
  writers: [walt]
rules:
  - id: all-read
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
  - id: writers-write
    allow: { actors: { group: writers }, actions: [read, change, export], branch_scope: any }
"""
SERVER_POLICY = """
version: 1
kind: server
groups:
  admins: [walt]
rules:
  - id: admins-list
    allow: { actors: { group: admins }, actions: [graph_list, admin] }
"""
TOKENS = {"rita": "read-me", "walt": "write-me", "stranger": "who-am-i"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph(tmp_path_factory.mktemp("process"))


@pytest.fixture(scope="module")
def guarded(place: Path) -> Iterator[Served]:
    folder = place.parent
    files = {"tokens.json": json.dumps(TOKENS), "policy.yaml": POLICY, "server.yaml": SERVER_POLICY}
    for name, text in files.items():
        (folder / name).write_text(text)
    policies = [word for name in ("policy.yaml", "server.yaml") for word in ("--policy", str(folder / name))]
    with serving(place, "--tokens", str(folder / "tokens.json"), *policies, authenticated=True) as server:
        yield server


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


def test_a_token_says_who_asks_and_the_policy_what_he_may(guarded: Served) -> None:
    with guarded.client() as http:
        assert http.post("/query", json=READ, headers=bearer("rita")).status_code == 200
        denied = http.post("/mutate", json=ADD, headers=bearer("rita"))
        assert (denied.status_code, denied.json()["code"]) == (403, "forbidden")
        done = http.post("/mutate", json=ADD, headers={**bearer("walt"), "X-Actor-Id": "rita"})
        assert done.json()["actor_id"] == "walt"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic d2FsdA==", "bearer write-me"])
def test_without_a_token_nothing_is_told(guarded: Served, header: str) -> None:
    with guarded.client() as http:
        for path in ("/branches", "/nothing", f"{guarded.url}/graphs", f"{guarded.url}/graphs/none/schema"):
            answer = http.get(path, headers={"Authorization": header} if header else {})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_in_the_address_is_none(guarded: Served) -> None:
    with guarded.client() as http:
        assert http.get("/branches", params={"access_token": TOKENS["walt"]}).status_code == 401


def test_a_graph_that_an_actor_has_no_part_in_is_not_there(guarded: Served) -> None:
    with guarded.client() as http:
        denied = http.get("/branches", headers=bearer("stranger"))
        unknown = http.get(f"{guarded.url}/graphs/none/branches", headers=bearer("stranger"))
        shown = [{**answer.json(), "request_id": ""} for answer in (denied, unknown)]
        assert [answer.status_code for answer in (denied, unknown)] == [404, 404]
        assert json.dumps(shown[0]).replace("'kb'", "").replace('"kb"', "") == json.dumps(shown[1]).replace(
            "'none'", ""
        ).replace('"none"', "")


def test_the_graphs_are_listed_for_those_who_may(guarded: Served) -> None:
    answers = [httpx.get(f"{guarded.url}/graphs", headers=bearer(actor)) for actor in ("walt", "rita")]
    assert [answer.status_code for answer in answers] == [200, 403]


def test_health_is_told_to_everybody_and_metrics_on_loopback(guarded: Served) -> None:
    assert httpx.get(f"{guarded.url}/healthz").status_code == 200
    assert "graphs" not in httpx.get(f"{guarded.url}/readyz").json()
    assert httpx.get(f"{guarded.url}/readyz", headers=bearer("rita")).json()["graphs"] == {"kb": "ready"}
    metrics = httpx.get(f"{guarded.url}/metrics").text
    assert 'og_graph_ready{graph="kb"} 1.0' in metrics
    assert "og_http_requests_total" in metrics


def test_no_token_is_in_the_log(guarded: Served) -> None:
    with guarded.client() as http:
        http.post("/query", json=READ, headers=bearer("walt"))
    assert not any(token in guarded.log for token in TOKENS.values())


def test_a_program_may_print_the_tokens(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "printed.json"
    file.write_text(json.dumps(TOKENS))
    command = ("--tokens-command", f"cat {file}")
    with serving(place, *command, authenticated=True) as server, server.client() as http:
        assert http.post("/query", json=READ, headers=bearer("rita")).status_code == 200
        assert http.post("/query", json=READ).status_code == 401


@pytest.mark.parametrize("page", ["server.md", "authentication.md"])
def test_every_flag_that_the_pages_name_is_one(page: str) -> None:
    functions = (serve, root, token.new, token.list_, token.revoke)
    named = set(re.findall(r"`(--[a-z][a-z-]+)", (DOCS / page).read_text(encoding="utf-8")))

    assert named - {flag for function in functions for flag in flags(function)} == set()
    assert "--tokens-command" in named


def flags(command: Callable[..., object]) -> Iterator[str]:
    """Yield the spellings of the options of a command."""
    for hint in get_type_hints(command, include_extras=True).values():
        for note in getattr(hint, "__metadata__", ()):
            yield from (str(getattr(note, "default", "")), *(getattr(note, "param_decls", None) or ()))


def test_a_server_that_only_reads_refuses_writes(place: Path) -> None:
    with serving(place, "--read-only") as server, server.client() as http:
        assert http.post("/query", json=READ).status_code == 200
        assert http.post("/mutate", json=ADD).json()["code"] == "forbidden"


def test_it_ends_with_0_when_it_is_told_to(place: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(place) as server:
            with server.client() as http:
                assert http.get("/branches").status_code == 200
            assert server.stop(number) == 0
            assert "Traceback" not in server.log


NEVER_ENDING = """
import sys, threading
from omnigraph import Graph
from omnigraph.surfaces.cli.app import main
Graph.mutate = lambda *args, **kwargs: threading.Event().wait()
sys.exit(main(sys.argv[1:]))
"""


def test_it_ends_with_0_in_time_although_a_write_does_not(place: Path) -> None:
    code = ("-c", NEVER_ENDING)
    with serving(place, "--limit", "drain_seconds=0.2", python=code) as server, server.client() as http:
        late = http.post("/mutate", json=ADD, headers={"X-Timeout-Ms": "50"})
        assert (late.status_code, late.json()["code"]) == (504, "timeout")
        assert "goes on" in late.json()["message"]
        assert server.stop() == 0
        assert "given up" in server.log


def test_several_processes_serve_one_socket_and_a_dead_one_is_replaced(place: Path) -> None:
    with serving(place, "--workers", "2") as server, server.client() as http:
        assert http.post("/query", json=READ).status_code == 200
        workers = children(server.process.pid)
        assert len(workers) == 2
        for worker in workers:  # of those that have begun none is left: those that replace them serve
            os.kill(worker, signal.SIGKILL)
            while len(now := children(server.process.pid)) < 2 or worker in now:
                time.sleep(0.05)
        with server.client() as another:
            assert another.post("/query", json=READ).status_code == 200
        assert server.stop() == 0


def test_a_worker_that_begins_is_not_ended_by_a_reload(place: Path) -> None:
    with serving(place, "--workers", "2") as server:
        before = children(server.process.pid)
        os.kill(before[0], signal.SIGKILL)
        while not set(children(server.process.pid)) - set(before):
            time.sleep(0.01)
        server.process.send_signal(signal.SIGHUP)
        assert server.stop() == 0
        assert "ended with -1" not in server.log


def children(pid: int) -> list[int]:
    """Return the workers of a server: its child processes that serve."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # threads and children come and go while they are looked at
            found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if _is_worker(child)]


def _is_worker(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_several_graphs_and_one_that_cannot_be_opened(place: Path, tmp_path: Path) -> None:
    config = tmp_path / "omnigraph.yaml"
    config.write_text(f"graphs:\n  one: {{ uri: {place} }}\n  gone: {{ uri: {tmp_path / 'gone.og'} }}\n")
    with serving(None, "--config", str(config)) as server:
        assert httpx.get(f"{server.url}/graphs").json() == {
            "graphs": [{"graph_id": "one", "uri": "/graphs/one"}]
        }
        ready = httpx.get(f"{server.url}/readyz")
        assert ready.status_code == 200
        assert ready.json()["graphs"] == {"gone": "quarantined: graph_not_found", "one": "ready"}
        assert httpx.post(f"{server.url}/graphs/one/query", json=READ).status_code == 200
        closed = httpx.get(f"{server.url}/graphs/gone/branches")
        assert (closed.status_code, closed.json()["code"]) == (503, "unavailable")
        assert str(tmp_path) not in closed.text
        assert httpx.post(f"{server.url}/query", json=READ).status_code == 404


REFUSALS: dict[str, Callable[[Path], list[str]]] = {
    "no tokens": lambda place: ["serve", str(place), "--bind", "127.0.0.1:0"],
    "a public address": lambda place: ["serve", str(place), "--unauthenticated", "--bind", "0.0.0.0:0"],
    "no graph": lambda place: ["serve", f"{place}x", "--unauthenticated", "--bind", "127.0.0.1:0"],
    "no address": lambda place: ["serve", str(place), "--unauthenticated", "--bind", "nowhere"],
    "a bad id": lambda place: ["serve", str(place), "--unauthenticated", "--id", "a/b"],
    "no project file": lambda place: ["serve", "--unauthenticated", "--config", f"{place}.yaml"],
    "no queries": lambda place: ["serve", str(place), "--unauthenticated", "--queries", f"{place}.no"],
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_does_not_start_wrongly(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.surfaces.cli.app import main

    assert main(REFUSALS[name](place)) in (1, 2)
    assert "LISTEN_ADDR" not in capsys.readouterr().out


def test_a_port_that_is_taken_is_told(place: Path) -> None:
    from omnigraph.surfaces.cli.app import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["serve", str(place), "--unauthenticated", "--bind", bind]) == 2
