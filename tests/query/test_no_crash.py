"""No text and no parameter crashes a query: it answers, or refuses with a typed error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, Kind
from tests.query.texts import Text, random_text
from tests.query.worlds import SCHEMA, random_world

pytestmark = pytest.mark.xdist_group("no-crash")

SEED = 20_260_314
TOKEN = re.compile(r'\s+|"[^"]*"|\$?\w+(?:\.@?\w+)?|.', re.DOTALL)
VALUES: list[Any] = [None, True, -1, 0, 2**63, 2**64, 0.5, float("nan"), float("inf"), "", "a", "2024-01-01"]
VALUES += ["\ud800", "\x00", [], [1], ["a", None], {}, {"a": 1}, [[1]], b"x", object(), (1, 2)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph with something of everything."""
    with og.init(tmp_path_factory.mktemp("fuzz") / "graph.og", SCHEMA, durability="os") as opened:
        world = random_world(Random(7))
        opened.load([*world.main, *world.branch], mode="append")
        yield opened


@pytest.mark.parametrize(
    "rounds",
    [
        1_500,
        pytest.param(20_000, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
def test_damaged_queries_answer_or_are_refused(graph: Graph, rounds: int) -> None:
    rnd = Random(SEED + rounds)
    answered = 0
    for _ in range(rounds):
        text = random_text(rnd)
        answered += _asked(graph, _damaged(text.gq, rnd), _spoilt(text, rnd))
    assert answered > rounds // 20  # else nothing beyond the parser was tried


def _asked(graph: Graph, gq: str, params: dict[str, Any]) -> bool:
    try:
        result = graph.query(gq, params)
    except Exception as error:
        if isinstance(error, GraphError) and error.kind in (Kind.INVALID, Kind.NOT_FOUND):
            return False
        raise AssertionError(f"{error!r} for\n{gq}\n{params}") from error
    assert len(result.to_json()["rows"]) == len(result)
    return True


def _damaged(gq: str, rnd: Random) -> str:
    """Exchange, drop, repeat or insert a few words, or spoil a few letters."""
    tokens = TOKEN.findall(gq)
    for _ in range(rnd.choice((0, 1, 1, 1, 2, 3))):
        at = rnd.randrange(len(tokens))
        match rnd.randrange(6):
            case 0:
                tokens[at] = ""
            case 1:
                tokens[at] *= 2
            case 2 | 3:
                tokens[at] = rnd.choice(tokens)
            case 4:
                other = rnd.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                tokens[at] += rnd.choice(
                    ['"', "{", "}", "(", "$", "\\", "é", "\x00", "9" * 30, ".5", "@id", " - "]
                )
    return "".join(tokens)


def _spoilt(text: Text, rnd: Random) -> dict[str, Any]:
    params = dict(text.params)
    if params and rnd.random() < 0.2:
        params[rnd.choice(sorted(params))] = rnd.choice(VALUES)
    return params
