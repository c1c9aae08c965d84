"""Integers of 64 bits keep every digit, in both directions; a caller may have them as texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.wire import NDJSON
from tests.support.inside import inside

SCHEMA = "node Count { name: String @key  signed: I64?  unsigned: U64?  small: I32?  many: [I64]? }"
ADD = """query add($name: String, $signed: I64?, $unsigned: U64?, $small: I32?, $many: [I64]?) {
  insert Count { name: $name, signed: $signed, unsigned: $unsigned, small: $small, many: $many } }"""
ALL = """query all($signed: I64) { match { $c: Count  $c.signed = $signed }
  return { $c.signed as signed, $c.unsigned as unsigned, $c.small as small, $c.many as many } }"""
NUMBERS = {"signed": -(2**63), "unsigned": 2**64 - 1, "small": 7, "many": [2**53 + 1]}
TEXTS = {"signed": str(-(2**63)), "unsigned": str(2**64 - 1), "small": 7, "many": [str(2**53 + 1)]}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    settings = ServerSettings(unauthenticated=True)
    with og.init(None, SCHEMA) as graph, inside(create_app(settings, {"kb": graph})) as http:
        yield http


def rows(http: httpx.Client, signed: Any, **headers: str) -> Any:
    body = {"query": ALL, "params": {"signed": signed}}
    answer = http.post("/query", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    if "accept" in headers:
        return [json.loads(line) for line in answer.text.splitlines()]
    return answer.json()["rows"]


@pytest.mark.parametrize("given", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_they_are_taken_as_numbers_and_as_texts(http: httpx.Client, given: dict[str, Any]) -> None:
    params = {"name": f"from {given['signed']!r}", **given}
    answer = http.post("/mutate", json={"query": ADD, "params": params})
    assert answer.status_code == 200, answer.text
    assert NUMBERS in rows(http, given["signed"])


def test_who_asks_for_texts_gets_texts(http: httpx.Client) -> None:
    http.post("/mutate", json={"query": ADD, "params": {"name": "one", **NUMBERS}})
    wanted = {"accept-integers": "string"}
    assert rows(http, NUMBERS["signed"], **wanted)[-1] == TEXTS
    assert rows(http, NUMBERS["signed"], **wanted, accept=NDJSON)[-1] == TEXTS
    assert rows(http, NUMBERS["signed"])[-1] == NUMBERS


def test_another_wish_is_refused(http: httpx.Client) -> None:
    answer = http.post("/query", json={"query": ALL}, headers={"Accept-Integers": "hex"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
