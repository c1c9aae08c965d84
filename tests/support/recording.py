"""What a request was about: its name, its place in the graph's layout, and what it cost.

Room    test support; values and pure functions, apart from the recorder that collects them.
Given   the request line as it went over the wire.
Gives   `Request`, one for each answered (or abandoned) request, with a class that cost gates can count.

    {root}/__manifest/...                                          manifest
    {root}/__refs/...                                              refs
    {root}/__schema/...                                            schema
    {root}/tables/{id}/data/...                                    data
    {root}/tables/{id}/{_versions,_transactions,_deletions,_indices}/...   the same name, without "_"
"""

from __future__ import annotations

import html
import posixpath
import re
import threading
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

GRAPH_FOLDERS = {"__manifest": "manifest", "__refs": "refs", "__schema": "schema"}
TABLE_FOLDERS = {
    "data": "data",
    "_versions": "versions",
    "_transactions": "transactions",
    "_deletions": "deletions",
    "_indices": "indices",
}

# A GET of a bucket with any other parameter asks about the bucket itself (?location, ?versioning, ...).
LISTING_PARAMETERS = {
    "list-type",
    "prefix",
    "delimiter",
    "max-keys",
    "continuation-token",
    "start-after",
    "marker",
    "encoding-type",
    "fetch-owner",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the store's client experienced it.

    `status` is 0 when the proxy gave no answer. Bytes are those of the bodies, without headers and chunk
    framing. `started` and `ended` are readings of `time.perf_counter`.
    """

    method: str
    key: str
    klass: str
    status: int
    bytes_up: int
    bytes_down: int
    started: float
    ended: float


def classify(key: str) -> str:
    """Return the class of an object key, or of a listing's prefix.

    >>> classify("team/people.og/tables/7/_versions/1.manifest")
    'versions'
    """
    segments = key.split("/")
    for segment in segments:
        if segment in GRAPH_FOLDERS:
            return GRAPH_FOLDERS[segment]
    # From the right, since the root's own path may well contain a folder called "tables".
    for at in range(len(segments) - 3, -1, -1):
        if segments[at] == "tables" and segments[at + 2] in TABLE_FOLDERS:
            return TABLE_FOLDERS[segments[at + 2]]
    return "other"


def identify(method: str, target: str, body: bytes = b"") -> tuple[str, str]:
    """Return the method and object key that a request should be counted under.

    Listings become LIST with their prefix. A bulk delete becomes DELETE with the path its keys share. The
    steps of a multipart upload keep their HTTP method and carry the key of the object being built.

    >>> identify("GET", "/bucket?list-type=2&prefix=g/__refs/_versions")
    ('LIST', 'g/__refs/_versions')
    """
    path, _, query = target.partition("?")
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    parameters = parse_qs(query, keep_blank_values=True)
    if method == "GET" and bucket and not key and parameters.keys() <= LISTING_PARAMETERS:
        return "LIST", parameters.get("prefix", [""])[0]
    if method == "POST" and "delete" in parameters:
        return "DELETE", _shared_path(_keys_to_delete(body))
    return method, key


def _keys_to_delete(body: bytes) -> list[str]:
    return [html.unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode("utf-8", "replace"))]


def _shared_path(keys: list[str]) -> str:
    return posixpath.commonpath(keys) if keys else ""


class Recorder:
    """Collects requests from the proxy's thread for the tests' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self.round = 0

    def add(self, request: Request, started_in_round: int) -> None:
        """Keep a request, unless it began before the last reset: it belongs to an earlier measurement."""
        with self._lock:
            if started_in_round == self.round:
                self._requests.append(request)

    def reset(self) -> None:
        """Forget everything and begin a new round."""
        with self._lock:
            self._requests = []
            self.round += 1

    def snapshot(self) -> list[Request]:
        """Return a copy of what was recorded in this round."""
        with self._lock:
            return list(self._requests)
