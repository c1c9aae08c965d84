"""CSV: fields read by the declared type, strictly, with exact line numbers."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.load.conform import UnreadableInput
from omnigraph.engine.load.sources.csv import records
from tests.engine.load.sources.reading import read, read_good

GOOD: list[Any] = [
    ("s", "plain", "plain"),
    ("s", '"a, ""b""\nc"', 'a, "b"\nc'),
    ("b", "true", True),
    ("b", "False", False),
    ("i", "-7", -7),
    ("i", "007", 7),
    ("j", "9223372036854775807", 2**63 - 1),
    ("v", "18446744073709551615", 2**64 - 1),
    ("f", "0.1", 0.10000000149011612),
    ("g", "1e3", 1000.0),
    ("g", "-.5", -0.5),
    ("g", "3", 3.0),
    ("ls", '"[""a"", ""b""]"', ["a", "b"]),
    ("li", "[]", []),
    ("x", '"[1, 2.5, 3]"', [1.0, 2.5, 3.0]),
    ("o", "base64:YWI=", b"ab"),
]


@pytest.mark.parametrize(("name", "field", "stored"), GOOD)
def test_a_field_is_read_by_the_type_of_its_property(name: str, field: str, stored: Any) -> None:
    rows = read_good(f"name,{name}\ne,{field}\n".encode(), type="Every")

    assert rows == [{"id": "e", "name": "e", name: stored}]


@pytest.mark.parametrize(
    ("name", "field", "stored"),
    [("d", "1970-01-03", 2), ("d", "-3", -3), ("t", "1970-01-01T00:00:01.5Z", 1500), ("t", "12", 12)],
)
def test_days_and_times_are_text_or_numbers(name: str, field: str, stored: int) -> None:
    [block] = read(f"name,{name}\ne,{field}\n".encode(), type="Every").blocks

    assert block.rows.column(name).cast("int32" if name == "d" else "int64").to_pylist() == [stored]


BAD: list[Any] = [
    ("i", " 7", "expected an integer (I32), found ' 7'"),
    ("i", "7.0", "expected an integer"),
    ("i", "0x10", "expected an integer"),
    ("i", "1_000", "expected an integer"),
    ("i", "+7", "expected an integer"),
    ("i", "3000000000", "3000000000 exceeds Int32 range"),
    ("j", "9" * 30, "exceeds Int64 range"),
    ("u", "-1", "-1 exceeds UInt32 range"),
    ("b", "1", "expected true or false"),
    ("b", "yes", "expected true or false"),
    ("g", "1.5 ", "expected a number"),
    ("g", "1,5", "3 fields, but the first line names 2 columns"),
    ("g", "nan", "must be a finite number, not NaN"),
    ("g", "-inf", "must be a finite number, not -inf"),
    ("f", "1e39", "exceeds Float32 range"),
    ("d", "1.1.2026", "expected a day"),
    ("t", "noon", "expected a time"),
    ("li", '"[1, ""a""]"', "item 1: expected an integer"),
    ("li", "1;2", "expected a JSON array"),
    ("x", '"[1,2]"', "expected 3 numbers, found 2"),
    ("x", '"[1,null,3]"', "item 1 is null"),
    ("o", "raw", "external blob URIs are not allowed"),
]


@pytest.mark.parametrize(("name", "field", "words"), BAD)
def test_a_bad_field_is_refused_with_its_line_and_the_others_are_read(
    name: str, field: str, words: str
) -> None:
    found = read(f"name,{name}\nbefore,\n\ne,{field}\nafter,\n".encode(), type="Every")

    assert [row["name"] for row in found.rows] == ["before", "after"]
    [violation] = found.report.violations
    assert words in violation.message
    assert violation.place == "<bytes>:4"


def test_lines_are_counted_through_quoted_line_ends_and_blank_lines() -> None:
    content = b'\xef\xbb\xbfname,i\r\n"a",1\r\n"two\r\nlines",2\r\n\r\n"b\n\n",x\r\nc,3'

    found = read(content, type="Every")

    assert [row["name"] for row in found.rows] == ["a", "two\r\nlines", "c"]
    assert found.blocks[0].positions.to_pylist() == [2, 3, 9]
    assert [violation.place for violation in found.report.violations] == ["<bytes>:6"]


def test_an_empty_field_is_null_and_gets_the_default() -> None:
    rows = read_good(b'slug,age,level,code\nada,,,""\n', type="Person")

    assert rows == [{"id": "ada", "slug": "ada", "level": 7, "joined": rows[0]["joined"]}]


@pytest.mark.parametrize("names", ["id,from,to,since", "id,src,dst,since"])
def test_edges_have_ids_and_endpoints(names: str) -> None:
    found = read(f"{names}\n,ada,bo,1970-01-02\ne2,bo,ada,\n".encode(), type="Knows")

    assert found.problems == []
    assert [(b.minted, b.rows.column("src").to_pylist()) for b in found.blocks] == [
        (False, ["bo"]),
        (True, ["ada"]),
    ]


@pytest.mark.parametrize(
    ("edge", "field", "stored"),
    [
        ("OnDay", "1970-01-03", "2"),
        ("OnDay", "2", "2"),
        ("Counts", "007", "7"),
        ("Measures", "1.50", "1.5"),
        ("Takes", '"[""2"",""7""]"', '["2","7"]'),
    ],
)
def test_an_endpoint_is_read_as_the_key_of_its_node(edge: str, field: str, stored: str) -> None:
    [row] = read_good(f"from,to\nn,{field}\n".encode(), type=edge)

    assert (row["src"], row["dst"]) == ("n", stored)


@pytest.mark.parametrize(
    ("edge", "field", "code", "words"),
    [
        ("Counts", "seven", "type", "'to' of Counts: expected an integer"),
        ("Measures", "nan", "type", "a key is a finite number, not NaN"),
        ("Counts", "", "required", "non-nullable property 'to' has null"),
    ],
)
def test_an_endpoint_that_cannot_be_an_id_is_refused(edge: str, field: str, code: str, words: str) -> None:
    [violation] = read(f"from,to\nn,{field}\n".encode(), type=edge).report.violations

    assert (violation.code, violation.property) == (code, "to")
    assert words in violation.message


@pytest.mark.parametrize(
    ("type_name", "names", "code", "words"),
    [
        ("Person", "slug,agee", "unknown_property", "unknown input field 'agee' for 'node:Person'"),
        ("Person", "slug,_rowid", "unknown_property", "reserved physical state"),
        ("Person", "slug,from", "unknown_property", "unknown input field 'from'"),
        ("Person", "age", "required", "non-nullable property 'slug' has null or invalid values: there is no"),
        ("Person", "slug,age,age", "envelope", "column 'age' stands twice"),
        ("Knows", "from,src,to", "envelope", "mean the same"),
        ("Knows", "from", "required", "non-nullable property 'to'"),
    ],
)
def test_a_wrong_first_line_is_said_once_and_nothing_is_read(
    type_name: str, names: str, code: str, words: str
) -> None:
    found = read(f"{names}\n{names}\n{names}\n".encode(), type=type_name)

    [violation] = found.report.violations
    assert (violation.code, violation.place, found.blocks) == (code, "<bytes>:1", [])
    assert words in violation.message


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "empty"),
        ('name,s\na,"open\nb,1\n', 2, "begins on line 2 is never closed"),
        ('name,s\na,"open""\nb,1\n', 2, "begins on line 2 is never closed"),
        ('name,s\na,b"c\n', 2, "a quote stands inside a field"),
        ('name,s\na,"b"c\n', 2, "followed by more than the delimiter"),
        ('name,s\nok,1\n"a\nb"x,"c"\n', 3, "followed by more than the delimiter"),
    ],
)
def test_text_that_is_not_csv_ends_the_reading_with_its_line(content: str, line: int, words: str) -> None:
    with pytest.raises(UnreadableInput, match=words) as caught:
        read(content.encode(), type="Every", format="csv")

    assert caught.value.fields["line"] == line


def test_a_field_longer_than_any_buffer_is_read() -> None:
    text = "x" * 3_000_000 + "\n" + "y" * 3_000_000

    assert read_good(f'name,s\ne,"{text}"\n'.encode(), type="Every")[0]["s"] == text


def test_tabs_separate_where_the_name_says_so() -> None:
    assert read_good(b"name\ts\ne\ta,b\n", type="Every", format="tsv")[0]["s"] == "a,b"


@given(st.lists(st.lists(st.text("ab\",\n \r'", max_size=6), min_size=2, max_size=3), max_size=5))
def test_whatever_pythons_writer_writes_is_read_back(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)

    found = [fields for _, fields in records([text.getvalue().split("\n")], ",")]

    assert found == rows
