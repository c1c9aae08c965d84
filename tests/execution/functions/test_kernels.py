"""What kernels promise besides their values: failures, choices, items of lists, durations, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.base.times import LAST_DAY, read_day, read_instant, read_period, write_day, write_instant
from omnigraph.execution.functions import (
    NotComputable,
    all_items,
    any_item,
    apply,
    items_of,
    merge,
    operate,
    shift,
)

I64, F64, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
INTEGERS = pa.list_(pa.field("item", I64))
BIG = 2**63 - 1


def days(*texts: str) -> pa.Array:
    """Return dates."""
    return pa.array([read_day(text) for text in texts], pa.int32()).view(pa.date32())


def instants(*texts: str) -> pa.Array:
    """Return times."""
    return pa.array([read_instant(text) for text in texts], I64).view(pa.date64())


# -- failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "reason", "row", "message"),
    [
        (
            lambda: operate("+", [pa.array([None, 1, BIG]), pa.scalar(1)], I64),
            "overflow",
            2,
            f"{BIG} + 1: overflow",
        ),
        (
            lambda: operate("-", [pa.array([0, 1], pa.uint64()), pa.scalar(1, pa.uint64())], pa.uint64()),
            "overflow",
            0,
            "0 - 1: overflow, the result is outside U64",
        ),
        (
            lambda: operate("/", [pa.array([1, 2]), pa.array([1, 0])], I64),
            "division_by_zero",
            1,
            "2 / 0: division",
        ),
        (
            lambda: operate("%", [pa.array([1.5, 2]), pa.array([1.0, -0.0])], F64),
            "division_by_zero",
            1,
            "2.0 % -0.0: division",
        ),
        (lambda: operate("/", [pa.array([0.0]), pa.scalar(0.0)], F64), "division_by_zero", 0, "0.0 / 0.0"),
        (
            lambda: operate("*", [pa.array([1e200, 1e200]), pa.array([1.0, 1e200])], F64),
            "not_finite",
            1,
            "1e+200 * 1e+200: the result is not a finite number",
        ),
        (lambda: operate("negate", [pa.array([-BIG - 1])], I64), "overflow", 0, f"-(-{BIG + 1})"),
        (lambda: apply("sqrt", [pa.array([4, -1])], F64), "not_finite", 1, "sqrt(-1)"),
        (lambda: apply("round", [pa.array([1.5]), pa.scalar(16)], F64), "bad_value", 0, "round(1.5, 16)"),
        (
            lambda: apply("substring", [pa.array([None, "ab"]), pa.scalar(-1)], TEXT),
            "bad_value",
            1,
            'substring("ab", -1)',
        ),
        (
            lambda: apply("split", [pa.array(["a"]), pa.scalar("")], pa.list_(TEXT)),
            "bad_value",
            0,
            'split("a", "")',
        ),
        (lambda: apply("to_int", [pa.array(["1", "12x"])], I64), "bad_value", 1, 'to_int("12x")'),
        (lambda: apply("to_int", [pa.array([1.0, 1e19])], I64), "overflow", 1, "to_int(1e+19)"),
        (lambda: apply("to_bool", [pa.array(["yes"])], BOOL), "bad_value", 0, 'to_bool("yes")'),
        (
            lambda: apply("to_date", [pa.array(["2026-02-30"])], pa.date32()),
            "bad_value",
            0,
            'to_date("2026-02-30")',
        ),
        (
            lambda: apply("least", [pa.array([2**64 - 1], pa.uint64()), pa.scalar(1)], I64),
            "overflow",
            0,
            str(2**64 - 1),
        ),
        (
            lambda: apply("matches", [pa.array([], TEXT), pa.scalar("(")], BOOL),
            "bad_value",
            0,
            'matches(null, "(")',
        ),
        (
            lambda: apply("matches", [pa.array(["a", "b"]), pa.array(["a", "["])], BOOL),
            "bad_value",
            1,
            'matches("b", "[")',
        ),
    ],
)
def test_a_failure_names_the_operation_and_the_first_row(
    call: Any, reason: str, row: int, message: str
) -> None:
    with pytest.raises(NotComputable) as refused:
        call()
    error = refused.value
    assert (error.code, error.reason, error.row) == ("bad_request", reason, row)
    assert error.message.startswith(message)
    assert error.remedy


def test_a_long_value_is_cut_in_a_message() -> None:
    with pytest.raises(NotComputable) as refused:
        apply("to_int", [pa.array(["x" * 10_000])], I64)
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("operator", "left", "right", "kind"),
    [
        ("/", [None, 1], [0, 1], I64),
        ("%", [None, 1], [0, 1], I64),
        ("/", [None, 1.0], [0.0, 1.0], F64),
        ("+", [BIG, 1], [None, 1], I64),
    ],
)
def test_nothing_fails_beside_a_null(
    operator: str, left: list[Any], right: list[Any], kind: pa.DataType
) -> None:
    result = operate(operator, [pa.array(left, kind), pa.array(right, kind)], kind)
    assert result.to_pylist()[0] is None
    assert result.to_pylist()[1] is not None


# -- shapes --------------------------------------------------------------------------------------------


def test_scalars_alone_give_one_row_of_the_type_of_the_result() -> None:
    result = apply("coalesce", [pa.scalar(None), pa.scalar(1, pa.int32())], I64)
    assert (result.type, result.to_pylist()) == (I64, [1])
    assert operate("<", [pa.scalar(1), pa.scalar(2.5)], BOOL).to_pylist() == [True]
    assert apply("size", [pa.scalar([1, 2], INTEGERS)], I64).to_pylist() == [2]


def test_a_bare_null_is_of_every_type() -> None:
    null, lists = pa.scalar(None), pa.array([[1], [], None], INTEGERS)
    assert operate("in", [null, lists], BOOL).to_pylist() == [None, False, None]
    assert operate("in", [pa.array([1, 2]), null], BOOL).to_pylist() == [None, None]
    assert operate("or", [null, pa.array([True, False])], BOOL).to_pylist() == [True, None]
    assert operate("=", [null, pa.array([1])], BOOL).to_pylist() == [None]
    assert apply("if", [null, null, pa.array([1])], I64).to_pylist() == [1]
    assert apply("upper", [null], TEXT).to_pylist() == [None]
    assert apply("upper", [pa.nulls(2)], TEXT).to_pylist() == [None, None]
    assert apply("nullif", [pa.array([1]), null], I64).to_pylist() == [1]


def test_a_column_of_f32_meets_a_number_at_its_own_precision() -> None:
    column = pa.array([0.1, 0.2], pa.float32())
    assert operate("=", [column, pa.scalar(0.1)], BOOL).to_pylist() == [True, False]
    assert operate("in", [column, pa.scalar([0.1, 7.0])], BOOL).to_pylist() == [True, False]
    assert operate("=", [column, pa.array([0.1, 0.2])], BOOL).to_pylist() == [False, False]


@pytest.mark.parametrize("kind", [pa.int32(), I64, pa.uint64(), F64])
def test_a_list_may_hold_numbers_that_the_column_cannot(kind: pa.DataType) -> None:
    column = pa.array([0, 1, 2, None], kind)
    for listed in (
        pa.scalar([1, -(2**31) - 1, BIG], INTEGERS),
        pa.scalar([1, 2**64 - 1, 2**53 + 1], pa.list_(pa.uint64())),
        pa.scalar([1.0, 2.5, 2.0**63, 2.0**64, float("nan"), 1e300], pa.list_(F64)),
    ):
        assert operate("in", [column, listed], BOOL).to_pylist() == [False, True, False, None]
        among = apply("slice", [listed, pa.scalar(0)], listed.type)  # the same list in a column of lists
        assert operate("in", [column.slice(1, 1), among], BOOL).to_pylist() == [True]


def test_many_patterns_give_what_few_do() -> None:
    texts = pa.array([f"{n} and {n + 1}" for n in range(300)])
    patterns = pa.array([str(n + 1) for n in range(300)])
    assert all(apply("contains", [texts, patterns], BOOL).to_pylist())
    replaced = apply("replace", [texts, patterns, pa.scalar("x")], TEXT).to_pylist()
    assert replaced[200:202] == ["200 and x", "201 and x"]


# -- choices -------------------------------------------------------------------------------------------


def test_branches_computed_for_their_own_rows_are_put_together() -> None:
    choice = np.array([1, 0, -1, 1, 2])
    merged = merge(choice, [pa.array([10], pa.int32()), pa.array([20, 21]), pa.scalar(5)], I64)
    assert merged.to_pylist() == [20, 10, None, 21, 5]
    assert merge(np.array([-1, -1]), [], TEXT).to_pylist() == [None, None]
    assert merge(np.array([], np.int64), [pa.scalar("a")], TEXT).to_pylist() == []


def test_what_is_not_chosen_is_not_converted() -> None:
    large = pa.scalar(2**64 - 1, pa.uint64())
    assert merge(np.array([0, 0]), [pa.array([1, 2]), large], I64).to_pylist() == [1, 2]
    with pytest.raises(NotComputable) as refused:
        merge(np.array([0, 1]), [pa.array([1]), large], I64)
    assert refused.value.row == 1


# -- items of lists ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 3])
def test_any_and_all_are_three_valued_over_the_items(start: int) -> None:
    lists = pa.array([[9], [1, 2], [1, None], [2, None], [], None, [2, 2]], INTEGERS).slice(start)
    items, rows = items_of(lists)
    assert len(items) == len(rows)
    truths = operate("=", [items, pa.scalar(1)], BOOL)
    assert any_item(lists, truths).to_pylist() == [False, True, True, None, False, None, False][start:]
    assert all_items(lists, truths).to_pylist() == [False, False, None, False, True, None, False][start:]


# -- durations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "duration", "sign", "moved"),
    [
        ("2026-01-31", "P1M", 1, "2026-02-28"),
        ("2024-01-31", "P1M", 1, "2024-02-29"),
        ("2024-02-29", "P1Y", 1, "2025-02-28"),
        ("2026-03-31", "P1M", -1, "2026-02-28"),
        ("2026-01-31", "P1M1D", 1, "2026-03-01"),
        ("2026-01-31", "-P1M", 1, "2025-12-31"),
        ("2026-01-31", "-P2W", -1, "2026-02-14"),
        ("0001-01-31", "P9998Y11M", 1, "9999-12-31"),
        ("2026-01-31", "PT24H", 1, "2026-02-01"),
    ],
)
def test_a_duration_moves_months_first(day: str, duration: str, sign: int, moved: str) -> None:
    dates, times = days(day, day), instants(f"{day}T10:20:30.456Z")
    period = read_period(duration)
    assert [write_day(d) for d in shift(dates, period, sign).view(pa.int32()).to_pylist()] == [moved, moved]
    assert write_instant(shift(times, period, sign).view(I64)[0].as_py()) == f"{moved}T10:20:30.456Z"


def test_a_time_of_day_moves_a_time() -> None:
    period = read_period("-P1DT1H0.5S")
    assert shift(instants("2026-03-01T00:00:00Z"), period, 1).view(I64).to_pylist() == [
        read_instant("2026-02-27T22:59:59.500Z")
    ]
    assert not period.whole_days


def test_no_duration_leads_out_of_the_years_that_are_stored() -> None:
    dates = pa.array([None, 0, LAST_DAY], pa.int32()).view(pa.date32())
    with pytest.raises(
        NotComputable, match='"9999-12-31" \\+ duration\\("P1D"\\): the result is outside'
    ) as refused:
        shift(dates, read_period("P1D"), 1)
    assert (refused.value.reason, refused.value.row) == ("overflow", 2)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "1Y", "P1H", "P1M1Y", "PT1.2H", "P-1Y", "P1YT", "P99999Y", " P1Y"]
)
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration|longer than"):
        read_period(text)


def test_whole_months_end_where_adding_them_does() -> None:
    def between(unit: str, first: str, second: str) -> Any:
        return apply("date_diff", [pa.scalar(unit), days(first), days(second)], I64)[0].as_py()

    assert between("month", "2026-01-31", "2026-02-28") == 1
    assert between("month", "2026-01-31", "2026-02-27") == 0
    assert between("month", "2026-02-28", "2026-01-31") == 0
    assert between("month", "2026-02-28", "2026-01-28") == -1
    assert between("year", "2024-02-29", "2025-02-28") == 1
    assert between("week", "2026-01-01", "2026-01-14") == 1
