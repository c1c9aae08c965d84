"""Parameters: what each declared type accepts from JSON and from the command line, and how it refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from omnigraph.catalog.query import BadParameters, Parameter, bind_params
from omnigraph.catalog.query.params import ParamText
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.query import parse_query


def declared(text: str) -> Parameter:
    """The parameter `$x` of a type."""
    (param,) = parse_query(f"query q($x: {text}) {{ insert T {{ a: 1 }} }}").queries[0].params
    return Parameter(param.name.text, PropertyType.of(param.type))


ACCEPTED = [
    ("String", "a", "a"),
    ("String", "", ""),
    ("I32", 7, 7),
    ("I32", "-12", -12),
    ("I32", "007", 7),
    ("I32", -(2**31), -(2**31)),
    ("I64", 2**63 - 1, 2**63 - 1),
    ("I64", str(-(2**63)), -(2**63)),
    ("U32", 2**32 - 1, 2**32 - 1),
    ("U64", 2**64 - 1, 2**64 - 1),
    ("U64", str(2**64 - 1), 2**64 - 1),
    ("F32", 0.1, 0.10000000149011612),
    ("F64", 0.1, 0.1),
    ("F64", 3, 3.0),
    ("Bool", True, True),
    ("Date", "1970-01-02", 1),
    ("Date", "1969-12-31", -1),
    ("Date", "1970-01-02T23:30:00-01:00", 2),
    ("DateTime", "1970-01-01T00:00:01Z", 1000),
    ("DateTime", "1970-01-01 00:00:01.5", 1500),
    ("DateTime", "1970-01-01T01:00:00.0019+01:00", 1),
    ("DateTime", "1970-01-02", 86_400_000),
    ("Blob", "base64:aGk=", "base64:aGk="),
    ("Blob", "base64:", "base64:"),
    ("Blob", "s3://bucket/key", "s3://bucket/key"),
    ("[String]", ["a", "b"], ("a", "b")),
    ("[I32]", [1, "2"], (1, 2)),
    ("[Date]", [], ()),
    ("Vector(2)", [1, 0.1], (1.0, 0.10000000149011612)),
    ("String?", None, None),
    ("[I32]?", None, None),
]

REFUSED = [
    ("String", 1, "param 'x': expected string, got number"),
    ("String", True, "expected string, got boolean"),
    ("String", ["a"], "expected string, got array"),
    ("String", {}, "expected string, got object"),
    ("String", "\ud800", "not valid Unicode"),
    ("I32", 1.0, "expected integer, got number"),
    ("I32", "1.0", "expected integer, got string '1.0'"),
    ("I32", "", "expected integer, got string ''"),
    ("I32", "+1", "expected integer"),
    ("I32", "٣", "expected integer"),
    ("I32", True, "expected integer, got boolean"),
    ("I32", 2**31, "2147483648 exceeds I32"),
    ("I64", 2**63, "exceeds I64"),
    ("I64", "9" * 5000, "exceeds I64"),
    ("I64", 10**5000, "the number exceeds I64"),
    ("U32", -1, "expected unsigned integer, got a negative number"),
    ("U32", "-1", "expected unsigned integer"),
    ("U32", 2**32, "exceeds U32"),
    ("U64", 2**64, "exceeds U64"),
    ("F64", "1.5", "expected float, got string"),
    ("F64", float("nan"), "expected float, got nan"),
    ("F64", float("inf"), "expected float, got inf"),
    ("F64", 10**400, "the number exceeds F64"),
    ("F32", 1e39, "1e+39 exceeds F32"),
    ("Bool", 1, "expected boolean, got number"),
    ("Bool", "true", "expected boolean, got string"),
    ("Date", 5, "expected date string, got number"),
    ("Date", "2026-02-30", "invalid Date literal '2026-02-30'"),
    ("DateTime", 5, "expected datetime string, got number"),
    ("DateTime", "noon", "invalid DateTime literal 'noon'"),
    ("Blob", 5, "expected blob URI string, got number"),
    ("Blob", "", "expected blob URI string, got an empty string"),
    ("Blob", "base64:?", "expected blob URI string, got invalid base64"),
    ("[String]", "a", "expected array for [String], got string"),
    ("[String]", ["a", None], "element 1: expected string, got null"),
    ("[I32]", [1, 2**31], "element 1: 2147483648 exceeds I32"),
    ("Vector(2)", [1], "expected 2 values for Vector(2), got 1"),
    ("Vector(2)", [1, "2"], "vector element is not numeric"),
    ("Vector(2)", [1, None], "vector element is not numeric: got null"),
    ("Vector(2)", [1, 1e39], "exceeds F32"),
    ("Vector(2)", "near me", "expected array for Vector(2), got string"),
    ("String", None, "param 'x': null is not accepted for non-nullable parameter"),
]


@pytest.mark.parametrize(
    ("kind", "given", "stored"), ACCEPTED, ids=[f"{kind}: {given}" for kind, given, _ in ACCEPTED]
)
def test_accepted(kind: str, given: Any, stored: Any) -> None:
    bound = bind_params([declared(kind)], {"x": given})

    assert bound == {"x": stored}
    assert type(bound["x"]) is type(stored)


@pytest.mark.parametrize(
    ("kind", "given", "message"), REFUSED, ids=[f"{kind}: {message}" for kind, _, message in REFUSED]
)
def test_refused(kind: str, given: Any, message: str) -> None:
    with pytest.raises(BadParameters) as caught:
        bind_params([declared(kind)], {"x": given})

    assert message in str(caught.value)
    assert caught.value.code == "bad_request"


def test_no_object_is_the_empty_one() -> None:
    assert bind_params([], None) == {}
    assert bind_params([declared("I32?")], None) == {"x": None}


@pytest.mark.parametrize("given", [[], "x", 3, True])
def test_only_an_object_holds_parameters(given: object) -> None:
    with pytest.raises(BadParameters, match="params must be a JSON object"):
        bind_params([], given)


def test_a_missing_required_parameter_is_an_error() -> None:
    with pytest.raises(BadParameters, match="parameter 'x' not provided"):
        bind_params([declared("String")], {})


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    parameters = [Parameter("name", PropertyType(Scalar.STRING)), Parameter("age", PropertyType(Scalar.I32))]
    with pytest.raises(BadParameters, match="unknown parameter 'nme': did you mean 'name'"):
        bind_params(parameters, {"name": "a", "age": 1, "nme": "b"})
    with pytest.raises(BadParameters, match="unknown parameter 'zzz': the query declares name, age"):
        bind_params(parameters, {"name": "a", "age": 1, "zzz": "b"})
    with pytest.raises(BadParameters, match="unknown parameter 'zzz': the query declares none"):
        bind_params([], {"zzz": "b"})


def test_all_problems_are_listed() -> None:
    parameters = [Parameter("a", PropertyType(Scalar.I32)), Parameter("b", PropertyType(Scalar.BOOL))]
    with pytest.raises(BadParameters) as caught:
        bind_params(parameters, {"a": "x", "c": 1})

    assert caught.value.fields["problems"] == (
        "param 'a': expected integer, got string 'x'",
        "parameter 'b' not provided",
        "unknown parameter 'c': the query declares a, b",
    )
    assert caught.value.summary == "param 'a': expected integer, got string 'x' (and 2 more)"


def test_values_come_in_declared_order() -> None:
    parameters = [Parameter(name, PropertyType(Scalar.I32)) for name in "cab"]

    assert list(bind_params(parameters, {"a": 1, "b": 2, "c": 3})) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("String", "29", "29"),
        ("String", "", ""),
        ("I32", "-3", -3),
        ("U64", "18446744073709551615", 2**64 - 1),
        ("F64", "1.5", 1.5),
        ("F64", "-2", -2),
        ("F64", "1e3", 1000.0),
        ("Bool", "false", False),
        ("Date", "2026-05-01", "2026-05-01"),
        ("DateTime?", "2026-05-01", "2026-05-01"),
        ("Blob", "base64:aGk=", "base64:aGk="),
    ],
)
def test_text_of_the_command_line(kind: str, text: str, value: Any) -> None:
    parameter = declared(kind)

    from_text, from_json = (bind_params([parameter], {"x": given})["x"] for given in (ParamText(text), value))

    assert from_text == from_json
    assert type(from_text) is type(from_json)
    assert from_text is not None


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("I32", "three", "param 'x': expected integer, got string 'three'"),
        ("I32", "1.0", "expected integer"),
        ("U32", "-1", "expected unsigned integer"),
        ("F64", "NaN", "must be finite"),
        ("F64", "true", "expected float, got 'true'"),
        ("F64", "x", "expected float, got 'x'"),
        ("Bool", "yes", "expected boolean, got 'yes'"),
        ("Date", "today", "invalid Date literal 'today'"),
        ("[I32]", "1", "write it as JSON: x:="),
        ("Vector(2)", "[1,2]", "write it as JSON: x:="),
    ],
)
def test_text_that_does_not_fit(kind: str, text: str, message: str) -> None:
    with pytest.raises(BadParameters, match=message):
        bind_params([declared(kind)], {"x": ParamText(text)})


def test_values_of_python_and_numpy_are_taken_for_what_json_would_write() -> None:
    day, moment = date(2026, 5, 1), datetime(2026, 5, 1, 10, 30, tzinfo=UTC)
    declared = [
        Parameter("day", PropertyType(Scalar.DATE)),
        Parameter("moment", PropertyType(Scalar.DATETIME)),
        Parameter("vector", PropertyType(Scalar.VECTOR, dimension=2)),
    ]
    given = {"day": day, "moment": moment, "vector": np.array([1.0, 2.0], np.float32)}

    written = {"day": "2026-05-01", "moment": "2026-05-01T10:30:00Z", "vector": [1.0, 2.0]}
    assert bind_params(declared, given) == bind_params(declared, written)
    with pytest.raises(BadParameters, match="date string"):
        bind_params(declared, {**given, "day": moment})
