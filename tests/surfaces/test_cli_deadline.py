"""`--timeout`: a command that takes too long is stopped, and says truthfully whether it can have written."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.durability import ENVIRONMENT
from omnigraph.surfaces.cli.support.deadline import (
    DeadlineProgress,
    Expired,
    Stage,
    TimedOut,
    seconds_of,
    timeout_in,
    within,
)
from tests.support.desk import GROWN, SCHEMA, Desk

COMMAND = str(Path(sys.executable).with_name("omnigraph"))
PATIENCE_S = 60  # of the tests; the command itself is to be gone long before


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start the installed command."""
    return subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a command."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.fixture
def silent_store() -> Iterator[dict[str, str]]:
    """An object store that takes connections and never answers; the environment that leads to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "AWS_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }


# -- whole processes


@pytest.mark.s3
def test_a_read_from_a_store_that_does_not_answer_is_stopped_and_wrote_nothing(
    desk: Desk, silent_store: dict[str, str]
) -> None:
    code, out, err = ended(
        start("schema", "show", "s3://bucket/graph", "--timeout", "1s", "--json", **silent_store)
    )

    document = json.loads(out)
    assert (code, document["code"]) == (7, "timeout")
    assert document["details"] == {"stage": "reading", "timeout_s": 1.0, "may_have_written": False}
    assert "Nothing was written" in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(("point", "landed"), [("publish.before", False), ("publish.after", True)])
def test_a_write_that_is_stopped_took_effect_as_a_whole_or_not_at_all(
    desk: Desk, point: str, landed: bool
) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN), "--timeout", "5s")
    code, out, err = ended(start(*given, "--json", **{ENVIRONMENT: f"{point}=sleep:600"}))

    document = json.loads(out)
    assert (code, document["code"], document["details"]["may_have_written"]) == (7, "timeout", True)
    assert "as a whole or not at all" in err
    with og.connect(desk.graph) as graph:
        assert graph.schema.show() == (GROWN if landed else SCHEMA)
        assert graph.schema.apply(GROWN).applied is not landed, "it goes on as after any crash"


def test_a_command_that_is_quick_enough_is_not_disturbed(desk: Desk) -> None:
    code, out, err = ended(start("schema", "show", desk.started(), "--timeout", "10m"))
    assert (code, out, err) == (0, SCHEMA, "")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_command_that_has_a_deadline(desk: Desk) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN), "--timeout", "5m")
    process = start(*given, **{ENVIRONMENT: "publish.before=sleep:600"})
    assert process.stderr is not None
    assert "schema apply" in process.stderr.readline()
    time.sleep(0.5)  # it may be anywhere after its first word; that is what an interrupt meets

    attempts = iter(range(PATIENCE_S))  # one that comes just before a thread sleeps does not wake it up
    while process.poll() is None and next(attempts, None) is not None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)

    assert ended(process)[0] == 130


# -- the watch


def test_a_command_left_behind_can_neither_begin_to_write_nor_answer() -> None:
    progress, go_on, seen = DeadlineProgress(), threading.Event(), []

    def command() -> int:
        go_on.wait(PATIENCE_S)
        for stage in (Stage.WRITING, Stage.ANSWERED):
            try:
                progress.reach(stage)
            except Expired:
                seen.append(stage)
        return 0

    with pytest.raises(TimedOut) as caught:
        within(0.01, command, progress)
    go_on.set()
    (left,) = [thread for thread in threading.enumerate() if thread.name == "omnigraph-command"]
    left.join(PATIENCE_S)

    assert caught.value.fields["may_have_written"] is False
    assert seen == [Stage.WRITING, Stage.ANSWERED]


def test_a_command_that_is_answering_when_time_is_up_may_finish() -> None:
    progress, answering = DeadlineProgress(), threading.Event()

    def command() -> int:
        progress.reach(Stage.ANSWERED)
        answering.wait(0.2)
        return 3

    assert within(0.01, command, progress) == 3


def test_the_error_of_a_command_comes_out_of_the_watch() -> None:
    def command() -> int:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        within(10, command, DeadlineProgress())


def test_a_deadline_while_writing_says_that_it_may_have_landed() -> None:
    progress = DeadlineProgress()

    def command() -> int:
        progress.reach(Stage.WRITING)
        threading.Event().wait(0.5)
        return 0

    with pytest.raises(TimedOut) as caught:
        within(0.05, command, progress)
    assert (caught.value.fields["stage"], caught.value.fields["may_have_written"]) == ("writing", True)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("0.5s", 0.5)])
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "0s", "1d", "1m30s", "1 s", "٣s", "1e3s"])
def test_anything_else_is_no_duration_and_the_error_shows_some(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        seconds_of(text)
    assert "30s" in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "seconds"), [([], None), (["--timeout=2s"], 2), (["--timeout", "1s", "--timeout", "3s"], 3)]
)
def test_the_last_limit_counts(flags: list[str], seconds: Any) -> None:
    assert timeout_in(flags) == seconds
