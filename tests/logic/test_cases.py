"""The format of logic tests: what is not understood is an error, and a wrong expectation fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logic.cases import BadCase, parse, same, same_rows
from tests.logic.surfaces import Embedded, Way
from tests.logic.test_logic import run

WORLD = """
schema
  node One { name: String @key }
data
  One {"name": "x"}
"""
ASK = """
title: asked
query
  match { $o: One } return { $o.name }
"""


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(ASK + "expect\n  1\n", id="no-world"),
        pytest.param(WORLD + ASK, id="nothing-expected"),
        pytest.param(WORLD + ASK + "expects\n  1\n", id="unknown-word"),
        pytest.param(WORLD + ASK + "expect\n  one\n", id="rows-that-are-not-json"),
        pytest.param(WORLD + ASK + "expect\n", id="no-rows-but-not-said-so"),
        pytest.param(WORLD + ASK + "expect no rows\n  1\n", id="rows-after-no-rows"),
        pytest.param(WORLD + ASK + "wrote 1 node, 0 edges\n", id="a-query-writes-nothing"),
        pytest.param(WORLD + "title: t\nexpect\n  1\n", id="no-step"),
        pytest.param(WORLD + "data\n  One name x\n", id="no-record"),
        pytest.param("  indented\n", id="nothing-above"),
    ],
)
def test_a_text_that_is_not_understood_is_an_error(wrong: str) -> None:
    with pytest.raises(BadCase, match="wrong:"):
        parse(wrong, "wrong")


@pytest.mark.parametrize(
    "claim",
    [
        'expect\n  "y"\n',
        "expect no rows\n",
        'expect\n  "x"\n  "x"\n',
        'columns name\nexpect\n  "x"\n',
        "refuse T1\n",
    ],
)
def test_a_wrong_expectation_fails(claim: str, tmp_path: Path) -> None:
    [case] = parse(WORLD + ASK + claim, "claim")
    graph = Embedded(tmp_path, case.world, Way())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(case, graph)
    graph.close()


def test_a_refusal_is_judged_by_code_and_text(tmp_path: Path) -> None:
    [right, code, text] = parse(
        WORLD
        + "".join(
            f"title: t\nquery\n  match {{ $o: Two }} return {{ 1 }}\n{claim}\n"
            for claim in ("refuse T1\n  Two", "refuse T2", "refuse T1\n  Three")
        ),
        "claim",
    )
    graph = Embedded(tmp_path, right.world, Way())
    run(right, graph)
    for wrong in (code, text):
        with pytest.raises(AssertionError):
            run(wrong, graph)
    graph.close()


def test_json_values_are_compared_with_their_kinds() -> None:
    assert same(1, 1)
    assert not same(1, 1.0)
    assert not same(1, True)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same("~0.5", 0.5000000001)
    assert not same("~0.5", 0.51)
    assert same("*", "anything")
    assert not same("*", None)
    assert not same_rows([[1]], [[1], [1]])
