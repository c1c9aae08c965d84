"""The table of functions: what may be called with what, and what a call then is."""

from __future__ import annotations

import pytest

from omnigraph.catalog.query.functions import FUNCTIONS, ArgumentType, BadCall, call_type, common_type
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.execution.functions import KERNELS

NAMES = {scalar.value: scalar for scalar in Scalar}


def typed(text: str) -> ArgumentType:
    """Read a type as schemas spell it, `null`, or `enum`."""
    if text == "null":
        return None
    nullable, name = text.endswith("?"), text.removesuffix("?")
    if name == "enum":
        return PropertyType(Scalar.STRING, nullable, enum_values=("a", "b"))
    if name == "Vector":
        return PropertyType(Scalar.VECTOR, nullable, dimension=2)
    return PropertyType(NAMES[name.strip("[]")], nullable, is_list=name.startswith("["))


def types_of(text: str) -> list[ArgumentType]:
    """Read several types."""
    return [typed(part) for part in text.split()]


def test_every_function_has_a_kernel() -> None:
    assert set(FUNCTIONS) == set(KERNELS)


def test_every_function_says_what_it_is_for_in_a_sentence() -> None:
    for function in FUNCTIONS.values():
        assert function.doc[0].isupper(), function.name
        assert function.doc.endswith("."), function.name


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("coalesce", "I32? I64", "I64"),
        ("coalesce", "I32? I32?", "I32?"),
        ("coalesce", "String? null enum", "String"),
        ("coalesce", "enum? enum", "enum(a, b)"),
        ("coalesce", "[I32]? [F32]", "[F64]"),
        ("coalesce", "Vector? Vector", "Vector(2)"),
        ("nullif", "I32 F64", "I32?"),
        ("if", "Bool? U32 U64", "U64"),
        ("if", "Bool U32 null", "U32?"),
        ("least", "I32? I32", "I32"),
        ("greatest", "U64 I32?", "I64"),
        ("upper", "enum?", "String?"),
        ("length", "String", "I64"),
        ("substring", "String U32 I64?", "String?"),
        ("split", "String String", "[String]"),
        ("abs", "F32?", "F32?"),
        ("round", "I32 I64", "I32"),
        ("power", "I32 F32", "F64"),
        ("date_part", "String Date?", "I64?"),
        ("date_trunc", "String DateTime", "DateTime"),
        ("date_diff", "String Date Date?", "I64?"),
        ("to_string", "Date", "String"),
        ("to_int", "F32?", "I64?"),
        ("to_date", "DateTime", "Date"),
        ("size", "[F32]?", "I64?"),
        ("slice", "[Date] I64 null", "[Date]?"),
    ],
)
def test_a_call_has_a_type(name: str, arguments: str, result: str) -> None:
    literals = ["month" if "date" in name else None, None, None][: len(arguments.split())]
    assert str(call_type(FUNCTIONS[name], types_of(arguments), literals)) == result


@pytest.mark.parametrize(
    ("name", "arguments", "literal", "refusal"),
    [
        ("lower", "I32", None, "T61 lower: s is a String, found I32; write lower(s)"),
        ("lower", "String String", None, "T61 lower is called with 2 arguments; write lower(s)"),
        ("coalesce", "I32", None, "T61 coalesce is called with 1 argument; write coalesce(a, b, …)"),
        (
            "coalesce",
            "I32 String",
            None,
            "T62 coalesce: I32 and String have no common type; give values of one",
        ),
        ("coalesce", "Date DateTime", None, "T62 coalesce: Date and DateTime have no common type"),
        ("if", "Bool I32 [I32]", None, "T62 if: I32 and [I32] have no common type"),
        ("contains", "[String] String", None, "T61 contains: s is a String, found [String]; write x in list"),
        ("size", "String", None, "T61 size: l is a list, found String; write length(s) for a text"),
        ("length", "[String]", None, "T61 length: s is a String, found [String]; write size(l) for a list"),
        ("to_string", "[I32]", None, "T61 to_string: x is a value that is no list, found [I32]"),
        ("to_string", "Vector", None, "T61 to_string: x is a value that is no list, found Vector(2)"),
        ("to_bool", "I32", None, "T61 to_bool: s is a String, found I32"),
        ("matches", "String String", "(", "T61 matches: '(' is no regular expression: missing )"),
        (
            "date_part",
            "String Date",
            None,
            "T61 date_part: the unit is a value that is computed; write one of",
        ),
        ("date_part", "String Date", "hour", "T61 date_part: a Date has no hour; use day or longer"),
        (
            "date_trunc",
            "String DateTime",
            "weekday",
            "T61 date_trunc: the unit is 'weekday'; write one of year",
        ),
        ("date_diff", "String Date DateTime", "day", "T62 date_diff: Date and DateTime have no common type"),
        ("least", "[I32]", None, "T61 least: a is a number, text, date, time or boolean, found [I32]"),
        ("coalesce", "Blob Blob", None, "T61 coalesce: a is a value, found Blob"),
    ],
)
def test_a_wrong_call_says_what_to_write(
    name: str, arguments: str, literal: str | None, refusal: str
) -> None:
    types = types_of(arguments)
    literals: list[str | None] = [None] * len(types)
    literals[1 if name == "matches" else 0] = literal
    with pytest.raises(BadCall) as refused:
        call_type(FUNCTIONS[name], types, literals)
    error = refused.value
    assert f"{error.code} {error.message}; {error.help}".startswith(refusal)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        ("I32 I32?", "I32?"),
        ("U32 U64", "U64"),
        ("U64 I32", "I64"),
        ("U32 F32", "F64"),
        ("F32 F64", "F64"),
        ("enum String", "String"),
        ("null null", "String?"),
        ("Bool I32", None),
        ("[I32] I32", None),
        ("[I32] [U64]?", "[I64]?"),
        ("Date DateTime", None),
    ],
)
def test_values_of_several_types_share_one(types: str, common: str | None) -> None:
    shared = common_type(types_of(types))
    assert (None if shared is None else str(shared)) == common
