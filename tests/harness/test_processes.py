"""Processes begin together, and each end is told apart: a value, an error, a signal, a time limit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.support.processes import Outcome, run_processes
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

T = TypeVar("T")

FLAVOUR_AT_IMPORT = os.environ.get("HARNESS_FLAVOUR")


class Refused(Exception):
    """An error with a code, as the engine's are."""

    code = "publish_contention"


def answer(number: int) -> tuple[int, int]:
    return number, os.getpid()


def end_as_told(how: str) -> str:
    if how == "raise":
        raise Refused("somebody else was first")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    return how


def lock_in_hand() -> object:
    return threading.Lock()


def flavours() -> tuple[str | None, str | None]:
    return FLAVOUR_AT_IMPORT, os.environ.get("HARNESS_FLAVOUR")


def span(seconds: float) -> tuple[float, float]:
    began = time.monotonic()  # comparable between processes of one machine
    time.sleep(seconds)
    return began, time.monotonic()


class DiesOnArrival:
    """An argument that ends the process which unpickles it, before its call could begin."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return os._exit, (7,)


def describe(_: object) -> str:
    return "began"


def claim_head(uri: str, options: dict[str, str], head: str) -> int:
    """Commit one value of one key, from version 1, whoever else does."""
    import lance  # imported here: the other targets start faster without it

    change = lance.LanceOperation.UpdateConfig(
        config_updates=lance.LanceOperation.UpdateMap({"graph_head": head})
    )
    base = lance.dataset(uri, version=1, storage_options=options)
    return int(lance.LanceDataset.commit(base, change, read_version=1, max_retries=0).version)


def put_object(endpoint: str, bucket: str, key: str) -> None:
    S3Server().client(endpoint).put_object(Bucket=bucket, Key=key, Body=b"x")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_values_come_back_in_order_from_separate_processes() -> None:
    outcomes = run_processes(answer, [(10,), (20,)])

    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    assert [outcome.ok for outcome in outcomes] == [True, True]
    assert [(outcome.index, outcome.exit_code) for outcome in outcomes] == [(0, 0), (1, 0)]
    assert [number for number, _ in values] == [10, 20]
    assert len({pid for _, pid in values} | {os.getpid()}) == 3


def test_every_way_to_end_is_told_apart() -> None:
    value, raised, killed, exited = run_processes(
        end_as_told, [("return",), ("raise",), ("kill",), ("exit",)]
    )

    assert ends(value) == ("return", None, None, 0)
    assert ends(raised) == (None, "Refused", "publish_contention", 1)
    assert raised.error_text == "somebody else was first"
    assert "end_as_told" in raised.trace
    assert ends(killed) == (None, None, None, -signal.SIGKILL)
    assert ends(exited) == (None, None, None, 3)
    assert [outcome.ok for outcome in (value, raised, killed, exited)] == [True, False, False, False]


def test_process_that_exceeds_the_time_limit_is_killed() -> None:
    (late,) = run_processes(span, [(600.0,)], timeout_s=1.5)

    assert ends(late) == (None, "TimeoutError", None, -signal.SIGKILL)
    assert "still running" in (late.error_text or "")


def ends(outcome: Outcome[T]) -> tuple[T | None, str | None, str | None, int | None]:
    return outcome.value, outcome.error_type, outcome.error_code, outcome.exit_code


def test_value_that_cannot_travel_is_an_error() -> None:
    (outcome,) = run_processes(lock_in_hand, [()])

    assert (outcome.error_type, outcome.value) == ("TypeError", None)
    assert "pickle" in (outcome.error_text or "")


def test_calls_overlap_when_started_together() -> None:
    outcomes = run_processes(span, [(0.5,), (0.5,), (0.5,)])

    spans = [outcome.value for outcome in outcomes if outcome.value is not None]
    assert len(spans) == 3
    assert max(began for began, _ in spans) < min(ended for _, ended in spans)
    assert all(outcome.seconds >= 0.5 for outcome in outcomes)


def test_process_that_dies_before_the_start_does_not_hold_the_others() -> None:
    died, began = run_processes(describe, [(DiesOnArrival(),), (None,)], timeout_s=60)

    assert (died.exit_code, died.value, died.ok) == (7, None, False)
    assert began.value == "began"


@pytest.mark.parametrize("start_together", [True, False])
def test_environment_is_set_before_the_target_is_imported(start_together: bool) -> None:
    (outcome,) = run_processes(flavours, [()], env={"HARNESS_FLAVOUR": "plum"}, start_together=start_together)

    assert outcome.value == ("plum", "plum")
    assert "HARNESS_FLAVOUR" not in os.environ


@pytest.mark.s3
def test_one_of_several_processes_wins_a_compare_and_swap(server: S3Server) -> None:
    import lance
    import pyarrow as pa

    server.make_bucket("race")
    options, uri = server.storage_options(), "s3://race/g/__manifest"
    lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), uri, storage_options=options)

    outcomes = run_processes(claim_head, [(uri, options, name) for name in "abc"])

    won = [outcome for outcome in outcomes if outcome.ok]
    assert [outcome.value for outcome in won] == [2]
    assert [outcome.error_type for outcome in outcomes if not outcome.ok] == ["CommitConflictError"] * 2
    head = lance.dataset(uri, storage_options=options).config()["graph_head"]
    assert head == "abc"[won[0].index]


@pytest.mark.s3
@pytest.mark.parametrize(("bucket", "deliver"), [("late", True), ("lost", False)])
def test_writer_killed_in_the_middle_of_a_request(server: S3Server, bucket: str, deliver: bool) -> None:
    """What it had already sent still arrives, as on a real network; `deliver=False` loses it instead."""
    server.make_bucket(bucket)
    with S3Proxy(server.endpoint) as proxy:
        proxy.pause(lambda method, key: method == "PUT")

        def kill_when_parked(pids: list[int]) -> None:
            proxy.wait_parked()
            os.kill(pids[0], signal.SIGKILL)

        (outcome,) = run_processes(put_object, [(proxy.endpoint, bucket, "k")], meanwhile=kill_when_parked)
        assert (outcome.exit_code, proxy.parked, proxy.count()) == (-signal.SIGKILL, 1, 0)

        proxy.resume(deliver=deliver)
        while proxy.count() == 0:
            time.sleep(0.01)
    assert server.client().list_objects_v2(Bucket=bucket)["KeyCount"] == (1 if deliver else 0)
