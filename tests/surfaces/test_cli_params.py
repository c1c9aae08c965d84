"""Parameters on a command line: every declared type from text and from JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query import BadParameters, Parameter, bind_params
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.surfaces.cli.support.params import read_params


def declared(scalar: Scalar, **more: Any) -> Parameter:
    return Parameter("x", PropertyType(scalar, **more))


def test_a_list_is_given_as_json_and_its_refusal_says_so() -> None:
    several = declared(Scalar.I32, is_list=True)
    assert bind_params([several], read_params(["x:=[1, 2]"], None, None)) == {"x": (1, 2)}
    with pytest.raises(BadParameters, match=r"x:=\["):
        bind_params([several], read_params(["x=1"], None, None))


def test_all_texts_that_are_wrong_are_named() -> None:
    both = [Parameter(name, PropertyType(Scalar.I32)) for name in ("x", "y")]
    with pytest.raises(BadParameters) as refused:
        bind_params(both, read_params(["x=a", "y=b"], None, None))
    assert len(refused.value.fields["problems"]) == 2


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.integers() | st.text()))
def test_json_comes_through_as_it_is(values: dict[str, object]) -> None:
    whole = read_params(None, json.dumps(values), None)
    single = read_params([f"{name}:={json.dumps(value)}" for name, value in values.items()], None, None)
    assert whole == single == values


@given(st.lists(st.text(), max_size=3))
def test_any_flags_are_read_or_refused(flags: list[str]) -> None:
    with suppress(InvalidRequest):
        assert len(read_params(flags, None, None)) == len(flags)
