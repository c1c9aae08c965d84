"""Calls to a server: what is tried again, how long, with which headers, and how failures are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.base.errors import (
    AuthenticationError,
    Busy,
    DeadlineExceeded,
    GraphClosed,
    GraphError,
    InvalidRequest,
    Kind,
    Unavailable,
)
from omnigraph.surfaces.client.calls import write_headers
from omnigraph.surfaces.client.transport import Payload, RemoteRequest, Transport

URL = "http://db.example:8080/graphs/kb"
READ = RemoteRequest("GET", "/branches")
Handler = Callable[[httpx.Request], httpx.Response]


class SteppingClock:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def now_us(self) -> int:
        return int(self.now * 1e6)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Script:
    """Answers one after the other; the last one again and again."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def ok(document: Any = None) -> httpx.Response:
    return httpx.Response(200, json={} if document is None else document)


def problem(status: int, code: str, kind: Kind, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    document = {"code": code, "kind": kind.value, "message": f"it is {code}", "remedy": "wait", **more}
    return httpx.Response(status, json=document, headers=headers)


UNAVAILABLE = problem(503, "unavailable", Kind.UNAVAILABLE)
REFUSED = httpx.ConnectError("connection refused")
LOST = httpx.ReadError("connection reset by peer")


def calls(script: Handler, **options: Any) -> tuple[Transport, SteppingClock]:
    clock = SteppingClock()
    http = httpx.Client(transport=httpx.MockTransport(script))
    return Transport(URL, clock=clock, http=http, **options), clock


@pytest.mark.parametrize("failure", [REFUSED, LOST, UNAVAILABLE, httpx.Response(502), httpx.Response(504)])
def test_what_may_pass_is_tried_again(failure: Any) -> None:
    script = Script(failure, failure, failure, ok({"done": True}))
    transport, clock = calls(script)
    assert transport.ask(READ) == {"done": True}
    assert len(script.requests) == 4
    assert 0.05 <= clock.slept[0] <= 0.1 < clock.slept[2] <= 0.4


@pytest.mark.parametrize("failure", [REFUSED, LOST, UNAVAILABLE])
def test_after_three_repetitions_the_failure_is_told(failure: Any) -> None:
    script = Script(failure)
    transport, _ = calls(script)
    with pytest.raises(Unavailable):
        transport.ask(READ)
    assert len(script.requests) == 4


@pytest.mark.parametrize(
    "failure",
    [
        problem(400, "bad_request", Kind.INVALID),
        problem(409, "publish_contention", Kind.CONFLICT),
        problem(500, "internal", Kind.CORRUPT),
        problem(503, "format_too_new", Kind.INVALID),
    ],
)
def test_what_stays_wrong_is_tried_once(failure: httpx.Response) -> None:
    script = Script(failure)
    transport, _ = calls(script)
    with pytest.raises(GraphError):
        transport.ask(READ)
    assert len(script.requests) == 1


def test_the_server_says_how_long_to_wait() -> None:
    busy = problem(
        429,
        "too_many_requests",
        Kind.UNAVAILABLE,
        headers={"Retry-After": "7"},
        details={"retry_after": 7},
    )
    script = Script(busy, ok())
    transport, clock = calls(script)
    transport.ask(READ)
    assert clock.slept == [7.0]


def test_no_pause_outlasts_the_deadline() -> None:
    busy = problem(
        429, "too_many_requests", Kind.UNAVAILABLE, headers={"Retry-After": "7"}, details={"retry_after": 7}
    )
    transport, clock = calls(Script(busy), timeout=5.0)
    with pytest.raises(Busy) as caught:
        transport.ask(READ)
    assert caught.value.retry_after == 7
    assert clock.slept == []


def test_the_deadline_is_for_the_whole_call() -> None:
    transport, clock = calls(Script(REFUSED), timeout=1.0, retries=100)
    with pytest.raises((Unavailable, DeadlineExceeded)):
        transport.ask(READ)
    assert clock.now <= 1.0


def test_a_load_that_took_longer_than_the_limit_is_still_repeated() -> None:
    script = Script(LOST, ok())
    transport, clock = calls(script, timeout=1.0)

    def content() -> list[bytes]:
        clock.now += 100.0  # sending it takes so long
        return [b"{}\n"]

    headers = write_headers(None, None, dry_run=False)
    body = Payload(content, "application/x-ndjson")
    transport.ask(RemoteRequest("POST", "/load/ndjson", body=body, headers=headers, streams=True))
    assert script.bodies == [b"{}\n", b"{}\n"]


def test_a_write_has_one_key_for_all_its_tries_and_the_same_body() -> None:
    script = Script(LOST, httpx.Response(502), ok())
    transport, _ = calls(script)
    headers = write_headers(None, None, dry_run=False)
    transport.ask(RemoteRequest("POST", "/mutate", body=Payload.of({"query": "q"}), headers=headers))
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 1
    assert len({request.headers["X-Request-Id"] for request in script.requests}) == 1
    assert set(script.bodies) == {b'{"query":"q"}'}


def test_a_lost_write_says_that_it_may_have_happened_and_how_to_repeat_it() -> None:
    transport, _ = calls(Script(LOST))
    request = RemoteRequest("POST", "/mutate", headers=write_headers(None, "my-key", dry_run=False))
    with pytest.raises(Unavailable) as caught:
        transport.ask(request)
    assert caught.value.fields["may_have_written"] is True
    assert "'my-key'" in str(caught.value)


def test_a_write_that_never_reached_the_server_says_so() -> None:
    transport, _ = calls(Script(REFUSED))
    with pytest.raises(Unavailable) as caught:
        transport.ask(RemoteRequest("POST", "/mutate", headers=write_headers(None, None, dry_run=False)))
    assert caught.value.fields["may_have_written"] is False


def test_a_slow_server_is_a_deadline() -> None:
    transport, _ = calls(Script(httpx.ReadTimeout("slow")), retries=0)
    with pytest.raises(DeadlineExceeded) as caught:
        transport.ask(READ)
    assert caught.value.retryable


def test_a_refusal_after_a_lost_try_may_be_the_effect_of_that_try() -> None:
    taken = problem(409, "branch_exists", Kind.CONFLICT)
    transport, _ = calls(Script(LOST, taken))
    assert transport.ask(READ, lambda error: {"code": error.code}) == {"code": "branch_exists"}
    transport, _ = calls(Script(REFUSED, taken))  # nothing was reached: the branch is somebody else's
    with pytest.raises(og.BranchExists):
        transport.ask(READ, lambda error: {"code": error.code})


# -- errors ------------------------------------------------------------------------------------------


def raised(answer: httpx.Response) -> GraphError:
    transport, _ = calls(Script(answer), retries=0)
    with pytest.raises(GraphError) as caught:
        transport.ask(READ)
    return caught.value


def test_an_error_has_message_remedy_fields_and_the_id_of_the_request() -> None:
    answer = problem(
        412,
        "precondition_failed",
        Kind.CONFLICT,
        details={"branch": "b", "expected": "1", "actual": "2"},
        request_id="R",
    )
    error = raised(answer)
    assert isinstance(error, og.PreconditionFailed)
    assert (error.branch, error.expected, error.actual) == ("b", "1", "2")
    assert (error.message, error.remedy) == ("it is precondition_failed", "wait")
    assert error.fields["request_id"] == "R"


def test_a_code_of_a_later_release_is_kept() -> None:
    error = raised(problem(418, "tea_only", Kind.DENIED, details={"pot": "small"}))
    assert type(error) is not GraphError
    assert (error.code, error.kind, error.fields["pot"]) == ("tea_only", Kind.DENIED, "small")


def test_a_server_that_is_none_of_ours_is_named_as_such() -> None:
    error = raised(httpx.Response(404, text="<html>"))
    assert isinstance(error, og.NotFound)
    assert "Check the address" in str(error)
    assert isinstance(raised(httpx.Response(401, text="no")), AuthenticationError)
    assert isinstance(raised(httpx.Response(200, text="hello")), InvalidRequest)


def test_a_token_is_not_sent_where_a_server_redirects_to() -> None:
    script = Script(httpx.Response(302, headers={"Location": "http://elsewhere.example/"}))
    transport, _ = calls(script, token="s3cret")
    with pytest.raises(InvalidRequest, match="elsewhere"):
        transport.ask(READ)
    assert len(script.requests) == 1


# -- secrets and addresses ---------------------------------------------------------------------------


def test_the_token_is_in_a_header_and_nowhere_else() -> None:
    script = Script(LOST)
    transport, _ = calls(script, token="s3cret")
    with pytest.raises(Unavailable) as caught:
        transport.ask(READ)
    request = script.requests[0]
    assert request.headers["Authorization"] == "Bearer s3cret"
    shown = [str(request.url), repr(transport), str(caught.value), repr(caught.value.fields)]
    assert not any("s3cret" in text for text in shown)


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "Zoë"])
def test_a_token_that_is_none_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Transport(URL, token=token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://ada:pw@db/graphs/kb", "http://db/graphs/kb?token=x", "http:///graphs/kb", "http://db:port"],
)
def test_an_address_with_secrets_or_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Transport(url)
    assert "pw" not in str(caught.value)


def test_a_closed_graph_says_so() -> None:
    transport, _ = calls(Script(ok()))
    transport.close()
    with pytest.raises(GraphClosed):
        transport.ask(READ)


def test_a_short_deadline_is_told_to_the_server() -> None:
    script = Script(ok())
    transport, _ = calls(script, timeout=2.0)
    transport.ask(READ)
    assert 0 < int(script.requests[0].headers["X-Timeout-Ms"]) <= 2000


def test_parameters_are_texts_and_times_are_written_out() -> None:
    from datetime import date

    payload = Payload.of({"params": {"d": date(2026, 5, 1)}, "branch": None})
    assert json.loads(payload.open) == {"params": {"d": "2026-05-01"}}  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        Payload.of({"params": {"d": object()}})
