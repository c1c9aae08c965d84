"""What a server refuses, and how: status, code, the detail that belongs to it, and never a 500."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pyarrow as pa
import pytest

from omnigraph.surfaces.server.bodies import is_compressed
from omnigraph.surfaces.wire import ARROW, NDJSON
from tests.support.people import INSERT, person
from tests.support.served import Served

READ = "query all() { match { $p: Person } return { $p.name } }"
PAIRS = "query pairs() { match { $p: Person  $q: Person } return { $p.name, $q.name } }"
Case = tuple[str, str, dict[str, Any], int, str]


def post(path: str, body: Any, status: int, code: str, **more: Any) -> Case:
    return "POST", path, {"json": body, **more}, status, code


def get(path: str, status: int, code: str, **more: Any) -> Case:
    return "GET", path, more, status, code


def sent(path: str, content: bytes, kind: str, status: int, code: str, **more: Any) -> Case:
    return "POST", path, {"content": content, "headers": {"Content-Type": kind}, **more}, status, code


JSON = "application/json"
ROW = json.dumps(person("New")).encode()
TEXT = {"query": READ}
CASES: dict[str, Case] = {
    # bodies
    "no JSON": sent("/query", b"{", JSON, 400, "bad_request"),
    "no UTF-8": sent("/query", b'{"query": "\xff"}', JSON, 400, "bad_request"),
    "a half surrogate": sent("/query", b'{"query": "\\ud800"}', JSON, 400, "bad_argument"),
    "very deep": sent("/query", b"[" * 100_000, JSON, 400, "bad_request"),
    "a huge number": sent("/query", b'{"query": ' + b"9" * 9_999 + b"}", JSON, 400, "bad_request"),
    "a list": post("/query", [], 400, "bad_request"),
    "nothing": post("/query", {}, 400, "bad_request"),
    "an unknown field": post("/query", {**TEXT, "actor": "eve"}, 400, "bad_request"),
    "a number as text": post("/query", {"query": 7}, 400, "bad_request"),
    "another type": sent("/query", b"query", "text/plain", 415, "unsupported_media"),
    "compressed": post("/query", TEXT, 415, "unsupported_media", headers={"Content-Encoding": "gzip"}),
    "too large": sent("/query", b" " * (1 << 20) + b"{}", JSON, 413, "resource_limit"),
    # queries
    "a syntax error": post("/query", {"query": "quarry"}, 400, "compile_error"),
    "an unknown type": post("/query", {"query": READ.replace("Person", "Peron")}, 400, "compile_error"),
    "a path": post("/query", {"query": "/etc/passwd.gq"}, 400, "compile_error"),
    "a mutation as a read": post("/query", {"query": INSERT}, 400, "bad_request"),
    "a read as a mutation": post("/mutate", TEXT, 400, "bad_request"),
    "an unknown parameter": post("/query", {**TEXT, "params": {"x": 1}}, 400, "bad_request"),
    "too little memory": post("/query", {"query": PAIRS, "memory_bytes": 1}, 413, "resource_limit"),
    "an unknown query": post("/query", {**TEXT, "name": "none"}, 404, "query_not_found"),
    "an unknown branch": post("/query", {**TEXT, "branch": "none"}, 404, "branch_not_found"),
    "a bad branch": post("/query", {**TEXT, "branch": "../etc"}, 400, "bad_branch_name"),
    "an unknown commit": post("/query", {**TEXT, "snapshot": "0" * 26}, 404, "commit_not_found"),
    "an unknown tag": post("/query", {**TEXT, "snapshot": "v9"}, 404, "tag_not_found"),
    "a bad moment": post("/query", {**TEXT, "snapshot": "x" * 999}, 400, "bad_moment"),
    # writes
    "a value out of range": post(
        "/mutate", {"query": INSERT, "params": {"name": "Old", "age": 999}}, 400, "constraint_violation"
    ),
    "a quoted head": post("/mutate", {"query": INSERT}, 400, "bad_request", headers={"If-Commit": '"a"'}),
    "any head": post("/mutate", {"query": INSERT}, 400, "bad_request", headers={"If-Commit": "*"}),
    "an empty key": post("/mutate", {"query": INSERT}, 400, "bad_request", headers={"Idempotency-Key": ""}),
    "a long key": post(
        "/mutate", {"query": INSERT}, 400, "bad_request", headers={"Idempotency-Key": "k" * 129}
    ),
    "another head": post(
        "/mutate",
        {"query": INSERT, "params": {"name": "A", "age": 1}},
        412,
        "precondition_failed",
        headers={"If-Commit": "0" * 26},
    ),
    # loads
    "a bad line": sent("/load/ndjson", b'{"type": "Person"', NDJSON, 400, "constraint_violation"),
    "no NDJSON": sent("/load/ndjson", b"\x00\xff\xfe", NDJSON, 400, "unreadable_input"),
    "compressed lines": sent("/load/ndjson", b"\x1f\x8b" + ROW, NDJSON, 415, "unsupported_media"),
    "lines as a table": sent("/load/ndjson", ROW, "text/csv", 415, "unsupported_media"),
    "no Arrow": sent("/load?type=Person", b"arrow", ARROW, 400, "bad_request"),
    "no Parquet": sent("/load?type=Person", b"PAR1", "application/parquet", 400, "bad_request"),
    "a table without type": sent("/load", b"name\nA\n", "text/csv", 400, "bad_request"),
    "a table of no type": sent("/load?type=None", b"name\nA\n", "text/csv", 404, "type_not_found"),
    "an unknown mode": sent("/load/ndjson?mode=replace", ROW, NDJSON, 400, "bad_request"),
    "no columns": sent("/load?type=Person&columns=x", b"n\nA\n", "text/csv", 400, "bad_request"),
    "no form": sent("/load", b"x", "image/png", 415, "unsupported_media"),
    "a branch from nothing": sent("/load/ndjson?branch=b2&from=none", ROW, NDJSON, 404, "branch_not_found"),
    # branches, tags, history
    "the name main": post("/branches", {"name": "main"}, 400, "reserved_branch"),
    "a reserved branch": post("/branches", {"name": "__x"}, 400, "reserved_branch"),
    "no such branch": get("/branches/none", 404, "branch_not_found"),
    "main is not deleted": ("DELETE", "/branches/main", {}, 400, "reserved_branch"),
    "merged into itself": post("/branches/merge", {"source": "main", "target": "main"}, 400, "bad_request"),
    "no resolution": post(
        "/branches/merge", {"source": "a", "resolutions": [{"type": "P"}]}, 400, "bad_request"
    ),
    "no such tag": get("/tags/none", 404, "tag_not_found"),
    "a bad tag": post("/tags", {"name": "main~1"}, 400, "bad_tag_name"),
    "no such commit": get(f"/commits/{'0' * 26}", 404, "commit_not_found"),
    "a limit of nothing": get("/commits?limit=0", 400, "bad_request"),
    "a page too large": get("/diff?from=main&limit=9999", 400, "bad_request"),
    "a token of nobody": get("/diff?from=main&page_token=abc", 400, "cursor_rejected"),
    "a cursor of nobody": get("/changes?cursor=abc", 400, "cursor_rejected"),
    "two beginnings": get("/changes?cursor=abc&start=now", 400, "bad_request"),
    "an unknown filter": get("/changes?op=upsert", 400, "bad_request"),
    "an unknown parameter of the address": get("/commits?offset=1", 400, "bad_request"),
    "one parameter twice": get("/commits?branch=main&branch=main", 400, "bad_request"),
    "no such entity type": get("/entities/None/x", 404, "type_not_found"),
    "no such kind of rows": get("/rows/table/Person", 400, "bad_request"),
    "no such column": get("/rows/node/Person?columns=x", 400, "bad_request"),
    "no receipt": get("/receipts/none", 404, "not_found"),
    # schema
    "a bad schema": post("/schema/plan", {"schema_source": "nod"}, 400, "compile_error"),
    "a schema by path": post("/schema/plan", {"schema_source": "/etc/x.pg"}, 400, "compile_error"),
    "a schema that cannot be": post(
        "/schema/apply",
        {"schema_source": "node Person { name: String @key  age: String? }"},
        409,
        "schema_unsupported",
    ),
    # paths and methods
    "an unknown route": get("/nothing", 404, "not_found"),
    "a wrong method": ("DELETE", "/query", {}, 405, "method_not_allowed"),
    "dots in a branch": get("/branches/..%2f..%2fetc", 400, "bad_branch_name"),
    "NUL in a branch": get("/branches/a%00b", 400, "bad_argument"),
    "no UTF-8 in a branch": get("/branches/%ff", 400, "bad_request"),
    "a very long path": get(f"/branches/{'b' * 9_000}", 400, "bad_request"),
    "no deadline": post("/query", TEXT, 400, "bad_request", headers={"X-Timeout-Ms": "soon"}),
}
DETAILS: dict[str, dict[str, dict[str, object]]] = {
    "too large": {"resource_limit": {"resource": "request_body", "limit": 1 << 20}},
    "a syntax error": {"position": {"line": 1, "column": 1, "snippet": "quarry"}},
    "another head": {"precondition_failure": {"expected": "0" * 26}},
    "too little memory": {"resource_limit": {"resource": "memory", "limit": 1}},
}


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_refused(http: httpx.Client, name: str) -> None:
    method, path, options, status, code = CASES[name]
    answer = http.request(method, path, **options)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["type"] == f"urn:omnigraph:error:{code}"
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert "Traceback" not in answer.text
    for field, expected in DETAILS.get(name, {}).items():
        assert expected.items() <= problem[field].items()


def test_nothing_that_was_refused_has_changed_the_graph(http: httpx.Client) -> None:
    assert len(http.get("/commits").json()["commits"]) == 2


def test_what_stands_in_the_way_is_a_conflict(http: httpx.Client) -> None:
    first = http.get("/commits").json()["commits"][-1]["graph_commit_id"]
    refused = http.get(f"/commits/{first}/changes")
    assert (refused.status_code, refused.json()["code"]) == (409, "parentless_commit")
    told = refused.json()["change_diff_refusal"]
    assert told == {"reason": "parentless_commit", "graph_commit_id": first}
    again = [http.post("/branches", json={"name": "twice"}) for _ in range(2)][1]
    assert (again.status_code, again.json()["code"]) == (409, "branch_exists")


def test_a_key_conflict_names_the_entity(http: httpx.Client) -> None:
    answer = http.post(
        "/load/ndjson?mode=append",
        content=json.dumps(person("Ada")).encode(),
        headers={"Content-Type": NDJSON},
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
    assert answer.json()["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}


def test_a_graph_that_is_not_served_is_not_found(served: Served) -> None:
    for path in ("/graphs/other/query", "/graphs/..%2Fkb/query", "/graphs/kb%00/query"):
        answer = httpx.post(f"{served.url}{path}", json=TEXT)
        assert (answer.status_code, answer.json()["code"]) == (404, "graph_not_found")


def test_a_request_id_is_echoed_or_made(http: httpx.Client) -> None:
    assert http.get("/branches", headers={"X-Request-Id": "req-7"}).headers["X-Request-Id"] == "req-7"
    made = http.get("/branches", headers={"X-Request-Id": "two words"}).headers["X-Request-Id"]
    assert len(made) == 26


def test_other_pages_are_not_told_anything(http: httpx.Client) -> None:
    answer = http.get("/branches", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert http.options("/query", headers=preflight).status_code == 405


# -- as bytes ------------------------------------------------------------------------------------------


@pytest.fixture
def line(served: Served) -> Iterator[socket.socket]:
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        yield connection


def exchanged(line: socket.socket, sent: bytes) -> bytes:
    line.sendall(sent)
    answer = b""
    while chunk := line.recv(65_536):
        answer += chunk
        if b"\r\n\r\n" in answer and answer.endswith((b"}", b"0\r\n\r\n", b"\r\n")):
            break
    return answer


def test_a_header_cannot_be_injected(line: socket.socket) -> None:
    head = b"GET /branches HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\rSet-Cookie: b\r\nConnection: close\r\n\r\n"
    answer = exchanged(line, head)
    assert b"Set-Cookie: b" not in answer.partition(b"\r\n\r\n")[0]


def test_a_length_that_is_too_large_is_refused_before_the_body(line: socket.socket) -> None:
    head = b"POST /load/ndjson HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    answer = exchanged(line, head + b"Content-Length: 999999999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


def test_chunks_without_a_length_are_counted(line: socket.socket) -> None:
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    line.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with suppress(OSError):  # the server closes the connection
        for _ in range(20):
            line.sendall(chunk)
    assert b"413" in line.recv(65_536)


def test_what_is_not_http_is_refused(line: socket.socket) -> None:
    assert exchanged(line, b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400")


# -- what grows ----------------------------------------------------------------------------------------


def _stream(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("form", ["plain", "dictionary"])
def test_compressed_arrow_is_refused(http: httpx.Client, compression: str, form: str) -> None:
    names = pa.array(["x" * 1_000] * 1_000)
    table = pa.table({"name": names.dictionary_encode() if form == "dictionary" else names})
    answer = http.post(
        "/load?type=Person", content=_stream(table, compression), headers={"Content-Type": ARROW}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media")


def test_a_message_of_garbage_is_no_crash() -> None:
    for data in (b"", b"\x00" * 64, b"\xff" * 64, bytes(range(64))):
        with suppress(struct.error, IndexError):
            is_compressed(data)
