"""Each kernel gives what a plain Python function gives row by row, for every shape of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.base.times import DAY_MS, FIRST_DAY, FIRST_INSTANT, LAST_DAY, LAST_INSTANT
from omnigraph.catalog.query.functions import FUNCTIONS, TIME_OF_DAY, UNITS
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.execution.functions import OPERATORS, NotComputable, apply, operate
from tests.execution.functions import reference as ref

LETTERS = "aAbBzZ ,.x09-+eäÄßé日𐐨𐐀İı\t\n\u00a0"
I64, U64, F64 = Scalar.I64, Scalar.U64, Scalar.F64
TEXT, BOOL, DATE, TIME = Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """Small integers, and those at the ends and around 2**53."""
    edges = [low, low + 1, high - 1, high, 2**53 + 1, 2**53 - 1, 2**31]
    return st.integers(max(low, -20), 20) | st.sampled_from([e for e in edges if low <= e <= high])


FLOATS = st.sampled_from([0.0, -0.0, 0.5, -2.5, 1e-5, 1e15, 1e16, 12345678901.5, 2.0**53, 2.0**63, 5e-324])
FLOATS |= st.sampled_from([0.49999999999999994, 1.7976931348623157e308, -1e10, 1234567.0]) | st.floats(
    -1e3, 1e3
)
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.I32: whole(-(2**31), 2**31 - 1),
    I64: whole(-(2**63), 2**63 - 1),
    Scalar.U32: whole(0, 2**32 - 1),
    U64: whole(0, 2**64 - 1),
    F64: FLOATS,
    BOOL: st.booleans(),
    TEXT: st.text(LETTERS, max_size=6),
    DATE: st.integers(-40_000, 40_000) | st.sampled_from([FIRST_DAY, LAST_DAY, 0, -1]),
    TIME: st.integers(-(10**13), 10**13) | st.sampled_from([FIRST_INSTANT, LAST_INSTANT, 0, -1]),
}
PLACES = st.integers(-3, 8) | st.sampled_from([2**31, 2**63 - 1, -(2**63)])
NUMBER_TEXTS = st.sampled_from(
    ["12", "-0", "007", "12x", "0x1F", "+5", "", "9223372036854775808", " 1", "1.5"]
)
FLOAT_TEXTS = NUMBER_TEXTS | st.sampled_from(["1e5", "nan", "inf", "-Infinity", "1e999", "-1.5E-3"])
DAY_TEXTS = st.sampled_from(["2026-01-31", "0001-01-01", "0000-01-01", "2026-02-30", "2026-1-1", "x", ""])
TIME_TEXTS = DAY_TEXTS | st.sampled_from(
    [
        "2026-01-31T10:20:30Z",
        "2026-01-31 10:20",
        "2026-01-31T23:59:59.9999+02:00",
        "1969-12-31T23:59:59.9995Z",
    ]
)


class Case:
    """A call: what is called with values of which types, and what it gives in Python."""

    def __init__(
        self,
        name: str,
        types: list[PropertyType | Scalar],
        python: Callable[..., Any],
        result: PropertyType | Scalar,
        *values: st.SearchStrategy[Any],
        fixed: tuple[Any, ...] = (),
        label: str = "",
    ) -> None:
        self.name, self.python, self.fixed = name, python, fixed
        self.types = [t if isinstance(t, PropertyType) else PropertyType(t) for t in types]
        self.result = result if isinstance(result, PropertyType) else PropertyType(result)
        given = list(values) or [VALUES[t.scalar] for t in self.types]
        self.rows = st.tuples(*(st.none() | strategy for strategy in given))
        self.label = f"{name} {' '.join(map(str, (*fixed, *self.types)))}{label}"

    def expected(self, row: tuple[Any, ...]) -> Any:
        """Return what Python makes of a row; NULL if any argument is."""
        if None in row and not isinstance(self.python, KnowsNull):
            return None
        return self.python(*self.fixed, *row)

    def call(self, columns: list[Any]) -> pa.Array:
        """Call the kernel."""
        run = apply if self.name in FUNCTIONS else operate
        return run(self.name, [*(pa.scalar(value) for value in self.fixed), *columns], self.result.arrow)


class KnowsNull:
    """A Python function that is asked of NULL, too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *row: Any) -> Any:
        return self.function(*row)


def stored(values: list[Any], kind: PropertyType) -> pa.Array:
    """Return values as a column; times are given as their numbers."""
    numbers = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
    if kind.scalar in numbers and not kind.is_list:
        return pa.array(values, numbers[kind.scalar]).view(kind.arrow)
    return pa.array(values, kind.arrow)


def plain(column: pa.Array) -> list[Any]:
    """Return the values of a column; times are numbers."""
    numbers = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}
    values: list[Any] = (
        column.view(numbers[column.type]).to_pylist() if column.type in numbers else column.to_pylist()
    )
    return values


def first(*values: Any) -> Any:
    """Return the first value there is."""
    return next((v for v in values if v is not None), None)


def best(choose: Callable[..., Any]) -> KnowsNull:
    """Choose among the values there are."""

    def chosen(*values: Any) -> Any:
        known = [v for v in values if v is not None]
        return choose(known, key=lambda v: v.encode() if isinstance(v, str) else v) if known else None

    return KnowsNull(chosen)


def listed(scalar: Scalar) -> PropertyType:
    """Return a type of lists."""
    return PropertyType(scalar, is_list=True)


def lists_of(scalar: Scalar) -> st.SearchStrategy[list[Any]]:
    """Return lists without NULLs."""
    return st.lists(VALUES[scalar], max_size=4)


CASES = [
    *(
        Case(op, [t, t], lambda a, b, op=op, n=n: ref.integer_arithmetic(op, a, b, n), t)
        for op in "+-*/%"
        for t, n in ((I64, "I64"), (U64, "U64"))
    ),
    *(
        Case(op, [a, b], lambda x, y, op=op: ref.float_arithmetic(op, x, y), F64)
        for op in "+-*/%"
        for a, b in ((F64, F64), (I64, F64), (F64, Scalar.U32))
    ),
    Case("+", [U64, Scalar.I32], lambda a, b: ref.whole(ref.whole(a) + b), I64),
    Case("negate", [I64], lambda a: ref.whole(-a), I64),
    Case("negate", [Scalar.U32], lambda a: -a, I64),
    Case("negate", [F64], lambda a: -a, F64),
    *(
        Case(op, [a, b], lambda x, y, op=op: ref.compared(op, x, y), BOOL)
        for op in ("=", "!=", "<", "<=", ">", ">=")
        for a, b in ((I64, F64), (F64, U64), (I64, U64), (U64, Scalar.I32), (Scalar.U32, I64), (TEXT, TEXT))
    ),
    *(
        Case(op, [t, t], lambda x, y, op=op: ref.compared(op, x, y), BOOL)
        for op in ("=", "<")
        for t in (BOOL, DATE, TIME, F64, U64)
    ),
    Case("||", [TEXT, TEXT], lambda a, b: a + b, TEXT),
    Case(
        "||", [listed(TEXT), listed(TEXT)], lambda a, b: a + b, listed(TEXT), lists_of(TEXT), lists_of(TEXT)
    ),
    Case(
        "||",
        [listed(I64), listed(F64)],
        lambda a, b: [float(x) for x in a] + b,
        listed(F64),
        st.lists(st.integers(-9, 9), max_size=3),
        lists_of(F64),
    ),
    Case("coalesce", [I64, I64, I64], KnowsNull(first), I64),
    Case("coalesce", [U64, I64], KnowsNull(lambda a, b: b if a is None else ref.whole(a)), I64),
    Case(
        "if", [BOOL, I64, U64], KnowsNull(lambda c, a, b: a if c else b if b is None else ref.whole(b)), I64
    ),
    Case("coalesce", [TEXT, TEXT], KnowsNull(first), TEXT),
    Case(
        "coalesce",
        [listed(TEXT), listed(TEXT)],
        KnowsNull(first),
        listed(TEXT),
        lists_of(TEXT),
        lists_of(TEXT),
    ),
    Case("nullif", [I64, F64], KnowsNull(lambda a, b: None if b is not None and a == b else a), I64),
    Case("nullif", [TEXT, TEXT], KnowsNull(lambda a, b: None if b is not None and a == b else a), TEXT),
    Case(
        "nullif",
        [listed(I64), listed(I64)],
        KnowsNull(lambda a, b: None if b is not None and a == b else a),
        listed(I64),
        lists_of(I64),
        lists_of(I64),
    ),
    Case("if", [BOOL, TEXT, TEXT], KnowsNull(lambda c, a, b: a if c else b), TEXT),
    Case(
        "if",
        [BOOL, listed(I64), listed(I64)],
        KnowsNull(lambda c, a, b: a if c else b),
        listed(I64),
        st.booleans(),
        lists_of(I64),
        lists_of(I64),
    ),
    *(Case("least", [t, t, t], best(min), t) for t in (I64, F64, TEXT, BOOL, DATE, TIME, U64)),
    *(Case("greatest", [t, t], best(max), t) for t in (I64, F64, TEXT, BOOL, DATE, TIME)),
    Case("lower", [TEXT], ref.by_letter(str.lower), TEXT, st.text("aAäÄß日𐐨𐐀", max_size=6)),
    Case("upper", [TEXT], ref.by_letter(str.upper), TEXT, st.text("aAäÄ日𐐨𐐀ŉ", max_size=6)),
    Case("trim", [TEXT], str.strip, TEXT),
    Case("length", [TEXT], len, I64),
    Case("substring", [TEXT, I64], ref.substring, TEXT, VALUES[TEXT], PLACES),
    Case("substring", [TEXT, U64, I64], ref.substring, TEXT, VALUES[TEXT], VALUES[U64], PLACES),
    Case(
        "replace",
        [TEXT, TEXT, TEXT],
        lambda s, a, b: s.replace(a, b) if a else s,
        TEXT,
        *[st.text("aäb", max_size=4)] * 3,
    ),
    Case("split", [TEXT, TEXT], ref.split, listed(TEXT), *[st.text("aä,", max_size=5)] * 2),
    *(
        Case(
            name, [TEXT, TEXT], python, BOOL, st.text("aä日\u65e5𐐨", max_size=6), st.text("aä日𐐨", max_size=2)
        )
        for name, python in (
            ("contains", lambda s, t: t in s),
            ("starts_with", lambda s, t: s.startswith(t)),
            ("ends_with", lambda s, t: s.endswith(t)),
        )
    ),
    Case(
        "matches", [TEXT, TEXT], ref.matches, BOOL, VALUES[TEXT], st.sampled_from(["^a", "[äA]", "x|日$", ""])
    ),
    Case("abs", [I64], lambda x: ref.whole(abs(x)), I64),
    Case("abs", [Scalar.I32], lambda x: ref.whole(abs(x), "I32"), Scalar.I32),
    Case("abs", [F64], abs, F64),
    Case("abs", [U64], abs, U64),
    Case("floor", [F64], ref.floor, F64),
    Case("ceil", [F64], lambda x: -ref.floor(-x), F64),
    Case("floor", [U64], int, U64),
    Case("round", [F64], ref.rounded, F64),
    Case("round", [F64, I64], ref.rounded, F64, FLOATS, st.integers(-1, 16)),
    Case("round", [F64, U64], ref.rounded, F64, FLOATS, VALUES[U64]),
    Case("round", [I64, I64], ref.rounded, I64, VALUES[I64], st.integers(-1, 16)),
    Case("sqrt", [F64], lambda x: ref.finite(lambda: math.sqrt(x)), F64),
    Case("sqrt", [I64], lambda x: ref.finite(lambda: math.sqrt(x)), F64),
    Case("power", [F64, F64], ref.power, F64, FLOATS, st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.5])),
    *(
        Case("date_part", [t], lambda u, v, d=d: ref.date_part(u, v, d), I64, fixed=(unit,))
        for t, d in ((DATE, True), (TIME, False))
        for unit in FUNCTIONS["date_part"].units
        if not (d and unit in TIME_OF_DAY)
    ),
    *(
        Case("date_trunc", [t], lambda u, v, d=d: ref.date_trunc(u, v, d), t, fixed=(unit,))
        for t, d in ((DATE, True), (TIME, False))
        for unit in UNITS
        if not (d and unit in TIME_OF_DAY)
    ),
    *(
        Case("date_diff", [t, t], lambda u, a, b, d=d: ref.date_diff(u, a, b, d), I64, fixed=(unit,))
        for t, d in ((DATE, True), (TIME, False))
        for unit in UNITS
        if not (d and unit in TIME_OF_DAY)
    ),
    *(
        Case("to_string", [t], lambda x, n=t.value: ref.to_string(x, n), TEXT)
        for t in (I64, U64, F64, BOOL, DATE, TIME, TEXT)
    ),
    Case("to_string", [Scalar.F32], repr, TEXT, st.floats(-1e6, 1e6, width=32)),
    Case("abs", [Scalar.F32], abs, Scalar.F32, st.floats(-1e6, 1e6, width=32)),
    Case(
        "to_string",
        [DATE],
        lambda x: ref.to_string(x, "Date"),
        TEXT,
        st.integers(-(2**31), 2**31 - 1),
        label=" far",
    ),
    Case(
        "to_string",
        [TIME],
        lambda x: ref.to_string(x, "DateTime"),
        TEXT,
        st.integers(-(10**17), 10**17),
        label=" far",
    ),
    Case("to_int", [TEXT], ref.to_int, I64, NUMBER_TEXTS),
    Case("to_int", [F64], ref.to_int, I64),
    Case("to_int", [U64], ref.to_int, I64),
    Case("to_float", [TEXT], lambda x: read_float(x), F64, FLOAT_TEXTS),
    Case("to_float", [U64], float, F64),
    Case("to_bool", [TEXT], ref.to_bool, BOOL, st.sampled_from(["true", "false", "True", "", "1"])),
    Case("to_date", [TEXT], ref.day, DATE, TIME_TEXTS),
    Case("to_date", [TIME], lambda x: x // DAY_MS, DATE),
    Case("to_datetime", [TEXT], ref.instant, TIME, TIME_TEXTS),
    Case("to_datetime", [DATE], lambda x: x * DAY_MS, TIME),
    Case("size", [listed(TEXT)], len, I64, lists_of(TEXT)),
    Case("slice", [listed(TEXT), I64], ref.piece, listed(TEXT), lists_of(TEXT), PLACES),
    Case("slice", [listed(I64), I64, I64], ref.piece, listed(I64), lists_of(I64), PLACES, PLACES),
    Case("slice", [listed(TEXT), U64], ref.piece, listed(TEXT), lists_of(TEXT), VALUES[U64]),
    Case("[]", [listed(TEXT), I64], ref.element, TEXT, lists_of(TEXT), PLACES),
    Case("[]", [listed(F64), U64], ref.element, F64, lists_of(F64), VALUES[U64]),
    *(
        Case(
            "in",
            [a, listed(b)],
            KnowsNull(ref.contained),
            BOOL,
            VALUES[a],
            st.lists(st.none() | VALUES[b], max_size=4),
        )
        for a, b in ((TEXT, TEXT), (I64, I64), (F64, F64), (I64, F64), (F64, I64), (U64, I64), (BOOL, BOOL))
    ),
    Case(
        "and",
        [BOOL, BOOL],
        KnowsNull(lambda a, b: False if False in (a, b) else None if None in (a, b) else True),
        BOOL,
    ),
    Case("or", [BOOL, BOOL], KnowsNull(lambda a, b: ref.any_of([a, b])), BOOL),
    Case("not", [BOOL], lambda a: not a, BOOL),
    Case("is null", [TEXT], KnowsNull(lambda a: a is None), BOOL),
    Case("is not null", [I64], KnowsNull(lambda a: a is not None), BOOL),
]


def read_float(text: str) -> float:
    """Read a finite number without a leading plus."""
    if text.startswith(("+", " ")) or not math.isfinite(value := ref.read(text, float)):
        raise ref.Fails("bad_value")
    number: float = value
    return number


def outcome(case: Case, columns: list[Any]) -> Any:
    """Return the values that a kernel gives, or the row and the reason of its refusal."""
    try:
        return [shown(value) for value in plain(case.call(columns))]
    except NotComputable as error:
        return error.row, error.reason


def expected(case: Case, rows: list[tuple[Any, ...]]) -> Any:
    """Return what the plain function gives, or the first row that fails and the reason."""
    values = []
    for number, row in enumerate(rows):
        try:
            values.append(shown(case.expected(row)))
        except ref.Fails as failure:
            return number, failure.args[0]
    return values


def shown(value: Any) -> Any:
    """Tell both zeros apart."""
    return repr(value) if isinstance(value, float) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_kernel_gives_what_plain_python_gives(case: Case, data: st.DataObject) -> None:
    rows = data.draw(st.lists(case.rows, max_size=6))
    columns: list[Any] = [stored([row[n] for row in rows], kind) for n, kind in enumerate(case.types)]
    assert outcome(case, columns) == expected(case, rows)

    # The same rows again and again in the middle of a longer column, as slices and filters leave them.
    padding, often = data.draw(case.rows), rows * 4
    longer = [
        stored([*[padding[n]] * 11, *(row[n] for row in often), padding[n]], kind)
        for n, kind in enumerate(case.types)
    ]
    assert outcome(case, [column.slice(11, len(often)) for column in longer]) == expected(case, often)

    # Any of the arguments the same for all rows.
    fixed = data.draw(st.sets(st.integers(0, len(case.types) - 1)))
    shared = data.draw(case.rows)
    mixed = [pa_scalar(shared[n], k) if n in fixed else columns[n] for n, k in enumerate(case.types)]
    alike = [tuple(shared[n] if n in fixed else row[n] for n in range(len(row))) for row in rows]
    if len(fixed) == len(case.types):
        alike = [shared]
    assert outcome(case, mixed) == expected(case, alike)


def pa_scalar(value: Any, kind: PropertyType) -> pa.Scalar:
    """Return one value as a scalar."""
    return stored([value], kind)[0]


def test_every_function_and_operator_is_tried() -> None:
    tried = {case.name for case in CASES}
    assert tried == set(FUNCTIONS) | set(OPERATORS)
