"""What a person at a terminal sees and may type: real processes on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.desk import SCHEMA, Desk, remote_environment
from tests.support.places import Place
from tests.surfaces.loading import people

COMMAND = str(Path(sys.executable).with_name("omnigraph"))
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS = 40_000


def at_terminal(*arguments: str, typed: str | None = None, **env: str) -> tuple[int, str]:
    """Run the command with its three streams on a terminal; return its exit code and what was shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **env}
    process = subprocess.Popen(
        [COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown, answered = b"", typed is None
    try:
        while piece := _read(ours):
            shown += piece
            if not answered and b"Type yes" in shown:
                os.write(ours, f"{typed}\n".encode())
                answered = True
        return process.wait(60), ESCAPES.sub("", shown.decode())
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux tells that the other side is gone
        return b""


@pytest.fixture
def many(desk: Desk) -> str:
    lines = (f'{{"type":"Person","data":{{"slug":"p{n}","age":{n}}}}}\n' for n in range(ROWS))
    return desk.file("many.jsonl", "".join(lines))


def test_a_terminal_shows_the_stages_with_bytes_and_rows(desk: Desk, many: str) -> None:
    code, shown = at_terminal("load", desk.started(), "--data", many, "--mode", "append")

    assert code == 0
    assert f"loaded {many} into main (append): {ROWS} nodes, 0 edges" in shown
    assert all(stage in shown for stage in ("reading", "checking", "writing"))
    assert re.search(r"[0-9.]+ MB of [0-9.]+ MB", shown), "bytes read of the total"
    assert f"{ROWS:,} rows" in shown


def test_a_terminal_shows_how_far_doctor_and_cleanup_are_and_a_pipe_does_not(desk: Desk) -> None:
    graph = desk.started()
    desk.run("mutate", graph, "-e", 'query add() { insert Person { slug: "z", age: 1 } }')
    _, examined = at_terminal("doctor", graph)
    _, cleaned = at_terminal("cleanup", graph, "--keep", "0", "--grace", "0s")

    assert re.search(r"leftovers.*[0-9]+ of [0-9]+", examined)
    assert re.search(r"tracing.*[0-9]+ of [0-9]+", cleaned)
    piped = desk.run("doctor", graph)
    assert " of 23" not in piped.out + piped.err


def test_quiet_shows_no_bar(desk: Desk, many: str) -> None:
    _, shown = at_terminal("load", desk.started(), "--data", many, "--mode", "append", "--quiet")
    assert shown.startswith("loaded ")


@pytest.fixture
def remote(s3_place: Place) -> Place:
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        graph.load([{"type": "Person", "data": {"slug": "a", "age": 1}}], mode="append")
    return s3_place


@pytest.mark.s3
@pytest.mark.parametrize(("typed", "code"), [("yes", 0), ("y", 2), ("", 2)])
def test_overwriting_a_remote_graph_asks_and_only_yes_goes_on(
    desk: Desk, remote: Place, typed: str, code: int
) -> None:
    file = desk.file("data.jsonl", '{"type":"Person","data":{"slug":"b","age":2}}\n')
    line = ("load", remote.address, "--data", file, "--mode", "overwrite")
    done, shown = at_terminal(*line, typed=typed, **remote_environment(remote))

    assert done == code
    assert f"load --mode overwrite on {remote.address} destroys all rows" in shown
    with og.connect(remote.address, **remote.kwargs) as graph:
        assert people(graph) == ({"b": 2} if code == 0 else {"a": 1})


@pytest.mark.s3
@pytest.mark.parametrize("flags", [["--json"], ["--data", "-"]])
def test_nobody_is_asked_where_nobody_could_answer(desk: Desk, remote: Place, flags: list[str]) -> None:
    file = desk.file("data.jsonl", "")
    data = [] if "--data" in flags else ["--data", file]
    line = ("load", remote.address, "--mode", "overwrite", *data, *flags)
    code, shown = at_terminal(*line, **remote_environment(remote))

    assert code == 2
    assert "confirmation_required" in shown
    assert "Type yes" not in shown
