"""Provider: vectors of texts, asked for over HTTP with patience that has an end.

    texts -> request -> (again after a timeout, a lost connection, 429, 5xx) -> vectors, or an error that says
    whom was asked, how often, and which variable to look at

What a provider answers goes into no error but its status: answers may repeat texts, and even keys.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import finalize

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest, counted
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.execution.search.embedding import EmbeddingRefused, EmbeddingUnavailable
from omnigraph.surfaces.embedding.protocols import DOCUMENT, QUERY, Asking, NotUnderstood, protocol_of
from omnigraph.surfaces.embedding.settings import ProviderSettings

if TYPE_CHECKING:  # loaded when a provider is first asked
    import httpx

LARGEST_ANSWER = 64 << 20  # bytes; 128 vectors of 8,192 numbers take about 20 MiB as JSON
BUSY = 429


@dataclass(frozen=True)
class _Failed:
    """An attempt that may be repeated."""

    why: str
    status: int | None = None
    wait_s: float | None = None  # as the provider asks


class HttpEmbedder:
    """An embedder that asks a provider; safe for several threads."""

    def __init__(self, settings: ProviderSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._protocol = protocol_of(settings)
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()
        self.provider = settings.kind
        self.model: str | None = settings.model
        self.batch = min(settings.batch, self._protocol.most)
        self.concurrency = settings.concurrency

    def __repr__(self) -> str:
        return f"HttpEmbedder({self.provider!r}, model={self.model!r})"

    def check_model(self, model: str) -> None:
        """Refuse to compare vectors of this model with those of another."""
        if model != self.model:
            raise InvalidRequest(
                f"the stored vectors are of model {model!r}, and provider {self.provider!r} "
                f"is set to model {self.model!r}",
                remedy=f"Set OMNIGRAPH_EMBED_MODEL={model}, or change the schema and embed again",
                model=model,
                active=self.model,
            )

    def __call__(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return the vectors of texts that are searched with."""
        return self._ask(texts, size, QUERY)

    def documents(self, texts: list[str], size: int) -> Sequence[Sequence[float]]:
        """Return the vectors of texts that are searched for."""
        return self._ask(texts, size, DOCUMENT)

    # -- attempts ----------------------------------------------------------------------------------

    def _ask(self, texts: list[str], size: int, role: str) -> list[Any]:
        settings = self._settings
        if settings.wants_key and settings.api_key is None:
            raise _no_key(settings)
        asking = self._protocol.asking(texts, size, role)
        deadline = self._clock.monotonic() + settings.deadline_s
        for attempt in range(1, settings.attempts + 1):
            left = deadline - self._clock.monotonic()
            answer = self._attempt(asking, min(settings.timeout_s, left))
            if not isinstance(answer, _Failed):
                return answer
            pause = max(settings.backoff_s * 2 ** (attempt - 1), answer.wait_s or 0.0)
            if attempt == settings.attempts or self._clock.monotonic() + pause >= deadline:
                raise self._unavailable(answer, attempt)
            self._clock.sleep(pause)
        raise AssertionError("there is at least one attempt, and the last one ends here")

    def _attempt(self, asking: Asking, timeout_s: float) -> list[Any] | _Failed:
        client = self._http()
        import httpx

        limit = self._clock.monotonic() + timeout_s
        try:
            with client.stream(
                "POST",
                f"{self._settings.base_url}{asking.path}",
                json=asking.body,
                headers=self._headers(),
                timeout=timeout_s,
            ) as response:
                if response.status_code != httpx.codes.OK:
                    return self._refused(response)
                return self._read(response, limit)
        except httpx.TimeoutException:
            return _Failed("it did not answer in time")
        except httpx.TransportError as error:
            return _Failed(f"the connection failed ({type(error).__name__})")
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # never with its text: it may quote the request
            raise EmbeddingRefused(
                f"{self._name} could not be asked ({type(error).__name__})",
                remedy="Check OMNIGRAPH_EMBED_BASE_URL",
                provider=self.provider,
            ) from None

    def _read(self, response: httpx.Response, limit: float) -> list[Any] | _Failed:
        """Return the vectors of an answer; a slow one is given up, also if every piece of it is in time."""
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > LARGEST_ANSWER:
                raise self._wrong("the answer is too large")
            if self._clock.monotonic() > limit:
                return _Failed("it did not answer in time")
        try:
            return self._protocol.vectors(json.loads(bytes(body)))
        except NotUnderstood as error:
            raise self._wrong(str(error)) from None
        except (ValueError, RecursionError):
            raise self._wrong("the answer is not JSON") from None

    def _refused(self, response: httpx.Response) -> _Failed:
        status = response.status_code
        if status == BUSY or status >= 500:
            why = "it is asked too often" if status == BUSY else "it has a problem of its own"
            return _Failed(f"{why} (status {status})", status, self._retry_after(response))
        raise EmbeddingRefused(
            f"{self._name} refused the request with status {status}",
            remedy=self._remedy(status),
            provider=self.provider,
            model=self.model,
            status=status,
        )

    def _remedy(self, status: int) -> str:
        names = " or ".join(self._settings.key_variables) or "the key"
        if status in (401, 403):
            return f"Check {names}: the key is wrong, has run out, or may not use this model"
        if status == 404:
            return (
                "Check OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL: "
                "there is no such model, or no such address"
            )
        if 300 <= status < 400:
            return (
                "Set OMNIGRAPH_EMBED_BASE_URL to the address that it leads to: "
                "keys do not follow redirections"
            )
        return (
            "Check that the model can make vectors of the length in the schema, and that no text is longer "
            "than it takes (OMNIGRAPH_EMBED_MODEL chooses another)"
        )

    def _retry_after(self, response: httpx.Response) -> float | None:
        """Return how long the provider asks to wait, in seconds; it may name a number or a time."""
        text = response.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            moment = parsedate_to_datetime(text).timestamp() if text else None
        except (ValueError, OverflowError):
            return None
        return None if moment is None else max(0.0, moment - self._clock.now_us() / 1e6)

    # -- who, and what to say of it -----------------------------------------------------------------

    @property
    def _name(self) -> str:
        host = urlsplit(self._settings.base_url).hostname
        return f"embedding provider {self.provider!r} ({host}, model {self.model!r})"

    def _unavailable(self, failed: _Failed, attempts: int) -> GraphError:
        return EmbeddingUnavailable(
            f"{self._name} gave no vectors in {counted(attempts, 'attempt')}: {failed.why}",
            remedy="Try again later; what was embedded so far is kept. OMNIGRAPH_EMBED_TIMEOUT_MS, "
            "OMNIGRAPH_EMBED_DEADLINE_MS and OMNIGRAPH_EMBED_RETRY_ATTEMPTS say how long to wait",
            provider=self.provider,
            model=self.model,
            status=failed.status,
            attempts=attempts,
        )

    def _wrong(self, why: str) -> GraphError:
        return EmbeddingRefused(
            f"{self._name} gave no vectors: {why}",
            remedy="Check OMNIGRAPH_EMBED_BASE_URL and OMNIGRAPH_EMBED_PROVIDER: "
            "the address speaks another protocol",
            provider=self.provider,
            model=self.model,
        )

    def _headers(self) -> dict[str, str]:
        key = self._settings.api_key
        return {} if key is None else self._protocol.headers(key)

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = _client(self.concurrency)
                finalize(self, self._client.close)
            return self._client


def _client(concurrency: int) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise _not_installed() from error
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    return httpx.Client(follow_redirects=False, limits=limits)


def _not_installed() -> GraphError:
    return EmbeddingRefused(
        "providers of vectors are asked with httpx, which is not installed",
        remedy="pip install 'omnigraph[embed]'",
    )


def _no_key(settings: ProviderSettings) -> GraphError:
    names = " or ".join(settings.key_variables)
    return EmbeddingRefused(
        f"embedding provider {settings.kind!r} has no key",
        remedy=f"Set {names}, choose another provider with OMNIGRAPH_EMBED_PROVIDER, "
        "or give the query as a vector",
        provider=settings.kind,
        variables=settings.key_variables,
    )
