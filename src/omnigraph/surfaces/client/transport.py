"""Transport: calls to a server, repeated where a repetition is safe and may help.

    call -> request with token, id and key -> **tries** -> answer, or the error that the graph itself raises

A call may take `timeout` seconds in all, its repetitions included; where data streams, that is how long
nothing may move. Connections that are refused or lost and the answers 429, 502, 503 and 504 are tried
again: reads always, writes because they carry an idempotency key that is made once for the call, so that a
write whose reply was lost is not done twice.

The token is in a header, never in an address, a message or a `repr`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any
from urllib.parse import quote

import httpx

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import DeadlineExceeded, GraphClosed, GraphError, InvalidRequest, Unavailable
from omnigraph.base.ids import Clock, SystemClock, new_id, random_fraction
from omnigraph.language.diagnostics import SourceText
from omnigraph.surfaces.client.failures import failure_of, invalid_answer
from omnigraph.surfaces.wire import ARROW as ARROW
from omnigraph.surfaces.wire import NDJSON as NDJSON

TIMEOUT, RETRIES, CONNECT = 60.0, 3, 5.0  # seconds, repetitions, seconds
WORK = 10  # times the limit that a server may take for what it was sent, without a word
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_TOLD = 0.1, 5.0, 30.0  # seconds; the last is what a server may ask for
AGAIN = frozenset({429, 502, 503, 504})
JSON = "application/json"
Query = Mapping[str, Any]


@dataclass(frozen=True)
class Payload:
    """What a request carries: made anew for every try, always the same bytes."""

    open: Callable[[], Iterable[bytes]] | bytes
    media: str

    @property
    def content(self) -> Iterable[bytes] | bytes:
        """The bytes."""
        return self.open if isinstance(self.open, bytes) else self.open()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Payload:
        """Return a JSON document without what was not given."""
        given = {name: value for name, value in document.items() if value is not None}
        return cls(to_json(given), JSON)


@dataclass(frozen=True)
class RemoteRequest:
    """One call."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Payload | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    source: SourceText | None = None  # what errors about a text point into
    streams: bool = False  # no limit on the whole, only on the time that nothing moves

    @property
    def key(self) -> str | None:
        """The idempotency key, if the call has one."""
        return self.headers.get("Idempotency-Key")


@dataclass(frozen=True, repr=False)
class ServerAnswer:
    """A successful answer."""

    headers: Mapping[str, str]
    content: bytes
    request_id: str

    def json(self) -> dict[str, Any]:
        """Return the document."""
        try:
            document = json.loads(self.content)
        except ValueError:
            raise invalid_answer("it is not JSON", self.request_id) from None
        if not isinstance(document, dict):
            raise invalid_answer("it is not a JSON object", self.request_id)
        return document


@dataclass
class Tries:
    """How far a call has come."""

    request_id: str = field(default_factory=new_id)
    number: int = 0
    unclear: bool = False  # a try may have taken effect without telling


Settle = Callable[[GraphError], dict[str, Any] | None]


class Transport:
    """Calls to one address. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        clock: Clock | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self.url = _checked(url)
        self.timeout = timeout
        self.retries = retries
        self._clock = clock or SystemClock()
        headers = {"User-Agent": "omnigraph-python"}
        if token is not None:
            headers["Authorization"] = f"Bearer {_header_text(token)}"
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=20.0)
        self._http = http or httpx.Client(limits=limits)
        self._headers = headers
        self._closed = False

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def at(self, path: str) -> Transport:
        """Return calls below a path of the same server, over the same connections."""
        below = Transport.__new__(Transport)
        below.__dict__.update(self.__dict__)
        below.url = self.url + path
        return below

    def close(self) -> None:
        """Give back the connections."""
        self._closed = True
        self._http.close()

    # -- calls -------------------------------------------------------------------------------------

    def call(self, request: RemoteRequest) -> ServerAnswer:
        """Make a call and return the whole answer."""
        with self._answered(request, tries := Tries()) as (response, chunks):
            return ServerAnswer(response.headers, b"".join(chunks), tries.request_id)

    def ask(self, request: RemoteRequest, settle: Settle | None = None) -> dict[str, Any]:
        """Make a call and return its document.

        When a try was lost and a later one is refused, the refusal may come from the effect of the first:
        `settle` says what the answer was then, or None if it was a refusal indeed.
        """
        tries = Tries()
        try:
            with self._answered(request, tries) as (response, chunks):
                return ServerAnswer(response.headers, b"".join(chunks), tries.request_id).json()
        except GraphError as error:
            settled = settle(error) if settle is not None and tries.unclear else None
            if settled is None:
                raise
            return settled

    @contextmanager
    def stream(self, request: RemoteRequest) -> Iterator[tuple[Mapping[str, str], Iterator[bytes]]]:
        """Make a call and read the answer piece by piece; once it began, nothing is tried again."""
        with self._answered(replace(request, streams=True), tries := Tries()) as (response, chunks):
            yield response.headers, _unbroken(chunks, tries.request_id)

    @contextmanager
    def _answered(
        self, request: RemoteRequest, tries: Tries
    ) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """Try until there is an answer; whole answers are read within the try."""
        if self._closed:
            raise GraphClosed(self.url)
        until = self._clock.monotonic() + self.timeout
        while True:
            left = self.timeout if request.streams else until - self._clock.monotonic()
            if left <= 0:
                raise self._late(request, tries)
            try:
                response = self._sent(request, tries, left)
                try:
                    if response.status_code >= 300:
                        raise self._refusal(response, request, tries)
                    chunks = response.iter_bytes()
                    if not request.streams:
                        chunks = iter([*self._within(chunks, until)])
                    yield response, chunks
                    return
                finally:
                    response.close()
            except httpx.TransportError as error:
                failure, pause = self._lost(error, request, tries), None
            except _Repeatable as refused:
                failure, pause = refused.error, refused.pause
            tries.number += 1
            pause = self._pause(tries.number) if pause is None else pause
            too_late = not request.streams and self._clock.monotonic() + pause >= until
            if tries.number > self.retries or too_late:
                raise failure
            self._clock.sleep(pause)

    def _sent(self, request: RemoteRequest, tries: Tries, left: float) -> httpx.Response:
        headers = {**self._headers, **request.headers, "Accept": request.accept}
        headers["X-Request-Id"] = tries.request_id
        if self.timeout < TIMEOUT / 2 and not request.streams:
            headers["X-Timeout-Ms"] = str(max(1, int(left * 1000)))
        content = None
        if request.body is not None:
            headers["Content-Type"] = request.body.media
            content = request.body.content
        sent = self._http.build_request(
            request.method,
            self.url + request.path,
            params=httpx.QueryParams(_texts(request.query)),
            headers=headers,
            content=content,
            timeout=httpx.Timeout(
                left,
                connect=min(CONNECT, left),
                read=left * WORK if request.streams and request.body is not None else left,
            ),
        )
        return self._http.send(sent, stream=True, follow_redirects=False)

    def _within(self, chunks: Iterator[bytes], until: float) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            if self._clock.monotonic() > until:
                raise httpx.ReadTimeout("the answer took too long")

    def _pause(self, number: int) -> float:
        """Return how long to wait: longer each time, and not as long as others that failed together."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (number - 1))
        return longest * (0.5 + random_fraction() / 2)

    # -- failures ----------------------------------------------------------------------------------

    def _refusal(self, response: httpx.Response, request: RemoteRequest, tries: Tries) -> Exception:
        status, content = response.status_code, response.read()
        request_id = response.headers.get("X-Request-Id", tries.request_id)
        if status < 400:
            return invalid_answer(f"HTTP {status} to {response.headers.get('location', '?')}", request_id)
        error = failure_of(status, _document(content), request_id, request.source)
        if status not in AGAIN or not _may_pass(error):
            return error
        tries.unclear = tries.unclear or status != 429
        return _Repeatable(error, _told(response))

    def _lost(self, lost: httpx.TransportError, request: RemoteRequest, tries: Tries) -> GraphError:
        reached = not isinstance(lost, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        tries.unclear = tries.unclear or reached
        if isinstance(lost, httpx.TimeoutException) and reached:
            return self._late(request, tries)
        fields = _of_call(request, tries)
        return Unavailable(
            f"the server at {self.url} cannot be reached: {str(lost) or type(lost).__name__}",
            remedy=_advice(fields, "Check that it runs, and the address"),
            **fields,
        )

    def _late(self, request: RemoteRequest, tries: Tries) -> GraphError:
        fields = _of_call(request, tries)
        return DeadlineExceeded(
            f"the server at {self.url} gave no answer within {self.timeout:g} s",
            remedy=_advice(fields, "Try again, or allow more time with timeout="),
            **fields,
        )


class _Repeatable(Exception):
    """The server refused for now; `pause` is what it asks to wait, if it says so."""

    def __init__(self, error: GraphError, pause: float | None) -> None:
        super().__init__()
        self.error = error
        self.pause = pause


def _may_pass(error: GraphError) -> bool:
    """Say whether a refusal is about this moment: some answers with these statuses are for good."""
    return error.retryable or error.code in ("unavailable", "too_many_requests", "timeout", "storage")


def _told(response: httpx.Response) -> float | None:
    try:
        return min(LONGEST_TOLD, max(0.0, float(response.headers["Retry-After"])))
    except (KeyError, ValueError):
        return None


def _document(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _of_call(request: RemoteRequest, tries: Tries) -> dict[str, Any]:
    fields: dict[str, Any] = {"request_id": tries.request_id}
    if request.key is not None:
        fields |= {"idempotency_key": request.key, "may_have_written": tries.unclear}
    return fields


def _advice(fields: Mapping[str, Any], otherwise: str) -> str:
    if not fields.get("may_have_written"):
        return otherwise
    return (
        "The write took effect as a whole or not at all: repeat it with "
        f"idempotency_key={fields['idempotency_key']!r}, which does it once"
    )


def _unbroken(chunks: Iterator[bytes], request_id: str) -> Iterator[bytes]:
    try:
        yield from chunks
    except httpx.TransportError as error:
        raise Unavailable(
            f"the answer broke off: {str(error) or type(error).__name__}",
            remedy="Ask again",
            request_id=request_id,
        ) from error


# -- what goes over the wire -------------------------------------------------------------------------


def to_json(document: Any) -> bytes:
    """Return a document as bytes; times are texts, arrays are lists."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"this cannot be sent: {error}", remedy="Give values that JSON has") from None


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def segment(text: str) -> str:
    """Return a name as one segment of a path.

    >>> segment("etl/run-1")
    'etl%2Frun-1'
    """
    return quote(text, safe="")


def _texts(query: Query) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a query that were given; a list stands for several of one name."""
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                pairs.append((name, _text(item)))
    return tuple(pairs)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _header_text(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise InvalidRequest("the token is empty, or has characters that no token has", remedy="Check it")
    return token


def _checked(url: str) -> str:
    """Return an address without the slash at its end; refuse those with secrets or parameters in them."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{url!r} is no address: {error}", remedy="Write http(s)://HOST:PORT") from None
    if not parts.host:
        raise InvalidRequest(f"{url!r} names no server", remedy="Write http(s)://HOST:PORT")
    if parts.userinfo:
        raise InvalidRequest("the address has a user or password in it", remedy="Pass token= instead")
    if parts.query or parts.fragment:
        raise InvalidRequest("the address has parameters in it", remedy="End it with the id of the graph")
    return url.rstrip("/")
