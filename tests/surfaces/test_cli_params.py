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


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (declared(Scalar.STRING), "36", "36"),
        (declared(Scalar.STRING), "", ""),
        (declared(Scalar.STRING), "a=b", "a=b"),
        (declared(Scalar.I32), "-36", -36),
        (declared(Scalar.U64), "18446744073709551615", 2**64 - 1),
        (declared(Scalar.F64), "1e3", 1000.0),
        (declared(Scalar.BOOL), "true", True),
        (declared(Scalar.DATE), "2026-05-01", "2026-05-01"),
        (declared(Scalar.DATETIME), "2026-05-01T10:00:00Z", "2026-05-01T10:00:00Z"),
        (declared(Scalar.BLOB), "base64:AA==", "base64:AA=="),
    ],
)
def test_text_is_read_as_the_declared_type(parameter: Parameter, text: str, value: object) -> None:
    from_text = bind_params([parameter], read_params([f"x={text}"], None, None))
    from_json = bind_params([parameter], {"x": value})
    assert (from_text, type(from_text["x"])) == (from_json, type(from_json["x"]))


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (declared(Scalar.I32), "2147483648"),
        (declared(Scalar.I32), "1.0"),
        (declared(Scalar.BOOL), "yes"),
        (declared(Scalar.DATE), "tomorrow"),
        (declared(Scalar.F64), "NaN"),
        (declared(Scalar.STRING, is_list=True), "a"),
    ],
)
def test_text_that_is_no_such_value_is_refused(parameter: Parameter, text: str) -> None:
    with pytest.raises(BadParameters):
        bind_params([parameter], read_params([f"x={text}"], None, None))


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
