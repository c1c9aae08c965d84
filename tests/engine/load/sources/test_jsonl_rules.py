"""Every rule for the lines of a data file: what is read, and what is refused with which words and where."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pytest

from omnigraph.base.ids import is_id
from omnigraph.base.times import LAST_INSTANT
from omnigraph.engine.load.conform import UnreadableInput
from tests.engine.load.sources.reading import CATALOG, edge, lines, node, read, read_good

ADA = node("Person", slug="ada")
BAD: list[Any] = [
    # the envelope
    ({"data": {}}, "envelope", "must contain exactly one of 'type' or 'edge'"),
    ({"type": "Person", "edge": "Knows"}, "envelope", "must contain exactly one of 'type' or 'edge'"),
    ({**ADA, "id": "ada"}, "envelope", "unknown top-level graph batch field 'id'"),
    ({**ADA, "from": "ada"}, "envelope", "unknown top-level graph batch field 'from'"),
    ({**ADA, "_tombstone": True}, "envelope", "reserved physical state"),
    ({**edge("Knows", "a", "b"), "_rowid": 7}, "envelope", "reserved physical state"),
    ({"type": "Person", "data": [1]}, "envelope", "'data' must be an object"),
    ({"type": "Person", "data": None}, "envelope", "'data' must be an object"),
    ({"type": 3}, "envelope", "'type' must be a string"),
    ({"type": ["Person"]}, "envelope", "'type' must be a string"),
    ("[1, 2]", "envelope", "expected an object"),
    ('"text"', "envelope", "expected an object"),
    # names
    (node("Persn", slug="ada"), "unknown_type", "no node type 'Persn'; did you mean 'Person'?"),
    (node("person", slug="ada"), "unknown_type", "no node type 'person'"),
    (node("Knows"), "unknown_type", "no node type 'Knows'"),
    (edge("Person", "a", "b"), "unknown_type", "no edge type 'Person'"),
    (
        node("Person", slug="ada", agee=3),
        "unknown_property",
        "unknown input field 'agee' for 'node:Person'; did you mean 'age'?",
    ),
    (edge("Knows", "a", "b", weight=3), "unknown_property", "unknown input field 'weight' for 'edge:Knows'"),
    (node("Person", slug="ada", _rowaddr=1), "unknown_property", "reserved physical state"),
    (node("Person", slug="ada", _row_created_at_version=1), "unknown_property", "reserved physical state"),
    (edge("Knows", "a", "b", src="c"), "unknown_property", "reserved structural state"),
    (edge("Knows", "a", "b", dst="c"), "unknown_property", "reserved structural state"),
    # endpoints
    ({"edge": "Knows", "from": "a"}, "required", "needs 'to'"),
    (edge("Knows", None, "b"), "required", "needs 'from'"),
    (edge("Knows", 3, "b"), "type", "'from' must be a string"),
    (edge("Counts", "a", 3), "type", "'to' must be a string"),
    # ids
    (node("Person", slug="ada", id="bo"), "key", "does not match its canonical @key id 'ada'"),
    (node("Person", slug="ada", id=3), "type", "expected a string, found 3"),
    (node("Slot", day=1, row=7, id="1,7"), "key", 'does not match its canonical @key id \'["1","7"]\''),
    (node("Note", text="t", id=["x"]), "type", "'id' of Note: expected a string"),
    # strict JSON
    ('{"type": "Person", "type": "Note"}', "syntax", "duplicate JSON member 'type'"),
    ('{"type": "Note", "data": {"text": "a", "text": "b"}}', "syntax", "duplicate JSON member 'text'"),
    ('{"type": "Note", "data": {"text": [{"a": {"b": 1, "b": 2}}]}}', "syntax", "duplicate JSON member 'b'"),
    ('{"type": "Note"} {"type": "Note"}', "syntax", "invalid strict JSON at line 2"),
    ('{"type": "Note", ', "syntax", "invalid strict JSON at line 2"),
    ("{'type': 'Note'}", "syntax", "invalid strict JSON at line 2"),
    ('{"type": "Gauge", "data": {"at": NaN}}', "syntax", "NaN is not a JSON value"),
    ('{"type": "Gauge", "data": {"at": -Infinity}}', "syntax", "-Infinity is not a JSON value"),
    ('{"type": "Note", "data": {"text": "a\tb"}}', "syntax", "invalid strict JSON at line 2"),
    ('{"type": "Number", "data": {"n": 1' + "0" * 5000 + "}}", "syntax", "too many digits"),
    ("[" * 100_000, "syntax", "nested too deeply"),
    ("nonsense", "syntax", "invalid strict JSON at line 2"),
    # values: required, and what each type takes
    (node("Person"), "required", "non-nullable property 'slug' has null or invalid values"),
    (node("Person", slug=None), "required", "non-nullable property 'slug' has null or invalid values"),
    (node("Note"), "required", "non-nullable property 'text'"),
    (node("Person", slug=3), "type", "Person.slug: expected a string, found 3"),
    (node("Person", slug="\ud800"), "type", "half of a surrogate pair"),
    (node("Person", slug="a", age="thirty"), "type", "Person.age: expected an integer (I32), found 'thirty'"),
    (node("Person", slug="a", age=3_000_000_000), "type", "3000000000 exceeds Int32 range"),
    (node("Person", slug="a", age=3.0), "type", "expected an integer (I32), found 3.0"),
    (node("Person", slug="a", age=True), "type", "expected an integer (I32), found True"),
    (node("Person", slug="a", age="3"), "type", "expected an integer (I32), found '3'"),
    (node("Every", name="e", j=2**63), "type", "exceeds Int64 range"),
    (node("Every", name="e", u=-1), "type", "-1 exceeds UInt32 range"),
    (node("Every", name="e", v=2**64), "type", "exceeds UInt64 range"),
    (node("Every", name="e", b=1), "type", "expected true or false"),
    (node("Every", name="e", b="true"), "type", "expected true or false"),
    (node("Every", name="e", f=1e39), "type", "1e+39 exceeds Float32 range"),
    (node("Every", name="e", g="1.5"), "type", "expected a number (F64)"),
    (node("Every", name="e", g=10**400), "type", "exceeds Float64 range"),
    ('{"type": "Every", "data": {"name": "e", "g": 1e999}}', "type", "must be a finite number, not inf"),
    (node("Every", name="e", d="2026-13-01"), "type", "expected a day such as"),
    (node("Every", name="e", d="5.1.2026"), "type", "expected a day such as"),
    (node("Every", name="e", d=2**31), "type", "exceeds Int32 range"),
    (node("Every", name="e", d=1.5), "type", "expected a day such as"),
    (node("Every", name="e", d=True), "type", "expected a day such as"),
    (node("Every", name="e", t="yesterday"), "type", "expected a time such as"),
    (node("Every", name="e", t="2026-01-05T25:00:00"), "type", "expected a time such as"),
    (node("Every", name="e", t=2**63), "type", "exceeds Int64 range"),
    (node("Every", name="e", x=[1, 2]), "type", "Every.x: expected 3 numbers, found 2"),
    (node("Every", name="e", x=[1, None, 3]), "type", "item 1 is null"),
    (node("Every", name="e", x=[1, "2", 3]), "type", "item 1: expected a number"),
    (node("Every", name="e", x=[1, True, 3]), "type", "item 1: expected a number"),
    (node("Every", name="e", x=[1, 2, 1e39]), "type", "item 2: 1e+39 exceeds Float32 range"),
    (node("Every", name="e", x={"0": 1}), "type", "expected an array of 3 numbers"),
    ('{"type": "Every", "data": {"name": "e", "x": [1e999, 2, 3]}}', "type", "element 0 must be a finite"),
    (node("Every", name="e", ls=["a", None]), "type", "item 1 is null"),
    (node("Every", name="e", ls=["a", 1]), "type", "item 1: expected a string"),
    (node("Every", name="e", ls="a"), "type", "expected an array of String"),
    (node("Every", name="e", li=[1, 2**31]), "type", "item 1: 2147483648 exceeds Int32 range"),
    (node("Every", name="e", ld=["x"]), "type", "item 0: expected a day"),
    (node("Every", name="e", o="base64:?"), "type", "malformed base64"),
    (node("Every", name="e", o="base64:YQ"), "type", "malformed base64"),
    (node("Every", name="e", o="s3://bucket/key"), "type", "external blob URIs are not allowed"),
    (node("Every", name="e", o=""), "type", 'expected "base64:..."'),
    (node("Every", name="e", s={"a": 1}), "type", "expected a string"),
    # constraints of one value
    (node("Person", slug="a", age=130), "range", "@range violation on Person.age: value 130 > max 120"),
    (node("Person", slug="a", age=-1), "range", "@range violation on Person.age: value -1 < min 0"),
    (
        node("Person", slug="a", code="ab"),
        "check",
        "@check violation on Person.code: value 'ab' does not match pattern '^[A-Z]+$'",
    ),
    (
        node("Person", slug="a", role="root"),
        "enum",
        "invalid enum value 'root' for Person.role (expected: admin, guest)",
    ),
    (edge("Knows", "a", "b", mood="sideways"), "enum", "invalid enum value 'sideways' for Knows.mood"),
]


@pytest.mark.parametrize(("record", "code", "words"), BAD, ids=[f"{n}-{b[1]}" for n, b in enumerate(BAD)])
def test_a_bad_record_is_refused_with_its_line_and_the_others_are_read(
    record: Any, code: str, words: str
) -> None:
    found = read(lines(node("Note", text="before"), record, node("Note", text="after")))

    assert [row.get("text") for row in found.rows] == ["before", "after"]
    [violation] = found.report.violations
    assert (violation.code, found.report.total) == (code, 1)
    assert words in violation.message
    assert violation.place == "<bytes>:2"
    assert (violation.origin, violation.position) == ("<bytes>", 2)
    assert violation.text == f"<bytes>:2: {violation.message}"


def test_a_uri_that_may_carry_a_secret_is_not_shown() -> None:
    found = read(lines(node("Every", name="e", o="https://user:secret@host/x")))

    assert "secret" not in repr(found.report.violations)


GOOD: list[Any] = [
    ("s", "text", "text"),
    ("s", "", ""),
    ("b", False, False),
    ("i", -(2**31), -(2**31)),
    ("j", 2**63 - 1, 2**63 - 1),
    ("u", 2**32 - 1, 2**32 - 1),
    ("v", 2**64 - 1, 2**64 - 1),
    ("f", 0.1, 0.10000000149011612),
    ("f", 3, 3.0),
    ("g", 3, 3.0),
    ("g", 2**60 + 1, float(2**60)),
    ("ls", [], []),
    ("ls", ["a", ""], ["a", ""]),
    ("lb", [True, False], [True, False]),
    ("li", [1, 2], [1, 2]),
    ("lg", [1, 2.5], [1.0, 2.5]),
    ("x", [1, 2.5, -3], [1.0, 2.5, -3.0]),
    ("o", "base64:", b""),
    ("o", "base64:YWI=", b"ab"),
]


@pytest.mark.parametrize(("name", "given", "stored"), GOOD)
def test_each_type_takes_its_json_values(name: str, given: Any, stored: Any) -> None:
    assert read_good(lines(node("Every", name="e", **{name: given}))) == [
        {"id": "e", "name": "e", name: stored}
    ]


TIMES: list[Any] = [
    ("d", "1970-01-02", 1),
    ("d", "1969-12-31", -1),
    ("d", "1970-01-02T23:30:00-02:00", 2),  # cut to the day in UTC
    ("d", 20_458, 20_458),
    ("d", -5, -5),
    ("t", "1970-01-01T00:00:01Z", 1_000),
    ("t", "1970-01-01 00:00:01", 1_000),
    ("t", "1970-01-01T00:00:01.9999999", 1_999),
    ("t", "1969-12-31T23:59:59.9995Z", -1),
    ("t", "1970-01-01T02:00+02:00", 0),
    ("t", "1970-01-02", 86_400_000),
    ("t", -5, -5),
    ("t", LAST_INSTANT, LAST_INSTANT),
]


@pytest.mark.parametrize(("name", "given", "stored"), TIMES)
def test_days_and_times_are_stored_as_numbers(name: str, given: Any, stored: int) -> None:
    for value in (given, [given]):
        key = name if value is given else f"l{name}"
        [block] = read(lines(node("Every", name="e", **{key: value}))).blocks
        column = block.rows.column(key)
        column = column.flatten() if value is not given else column
        assert column.cast("int32" if name == "d" else "int64").to_pylist() == [stored]


def test_absent_and_null_are_the_same_and_get_the_default() -> None:
    rows = read_good(lines(ADA, node("Person", slug="bo", age=None, joined=None, level=None)))

    assert [row["level"] for row in rows] == [7, 7]
    assert [set(row) for row in rows] == [{"id", "slug", "joined", "level"}] * 2
    [block] = read(lines(ADA)).blocks
    assert block.rows.column("joined").cast("int64").to_pylist() == [1_767_603_600_123]


def test_ids_are_derived_given_or_minted_and_minted_rows_stand_apart() -> None:
    found = read(
        lines(
            node("Person", slug="ada", id="ada"),
            node("Slot", row=7, day="1970-01-03", note='"'),
            node("Note", text="first"),
            node("Note", text="second", id="n2"),
            node("Note", text="third", id=None),
            edge("Knows", "ada", "bo"),
            edge("KNOWS", "bo", "ada", id="e2", since=3),
        )
    )

    assert found.problems == []
    parts = {(b.declared.name, b.minted): b.rows.column("id").to_pylist() for b in found.blocks}
    assert parts["Person", False] == ["ada"]
    assert parts["Slot", False] == ['["2","7"]']
    assert parts["Note", False] == ["n2"]
    assert parts["Knows", False] == ["e2"]
    assert len(parts["Note", True]) == 2
    assert len(parts["Knows", True]) == 1
    assert all(is_id(minted) for minted in parts["Note", True] + parts["Knows", True])
    places = {(b.declared.name, b.minted): b.positions.to_pylist() for b in found.blocks}
    assert places["Note", True] == [3, 5]
    assert places["Knows", False] == [7]
    assert next(b for b in found.blocks if b.declared.name == "Slot").position(0) == 2


def test_blank_lines_crlf_a_mark_and_a_missing_last_line_end_are_fine() -> None:
    text = "\ufeff" + json.dumps(ADA) + "\r\n\r\n \t\n" + json.dumps(node("Person", slug="bo"))

    found = read(text.encode())

    assert [row["slug"] for row in found.rows] == ["ada", "bo"]
    assert found.blocks[0].positions.to_pylist() == [1, 4]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_empty_load(content: bytes) -> None:
    found = read(content)

    assert (found.blocks, found.problems) == ([], [])


def test_a_line_of_ten_megabytes_is_read() -> None:
    text = "é" * 5_000_000

    assert read_good(lines(ADA, node("Note", id="n", text=text), ADA | {"data": {"slug": "bo"}}))[1] == {
        "id": "n",
        "text": text,
    }


def test_the_same_lines_from_a_path_files_and_pieces_of_any_size(tmp_path: Any) -> None:
    content = lines(ADA, node("Note", id="ü", text="zwei\nZeilen"), edge("Knows", "ada", "ada", id="e"))
    path = tmp_path / "people.jsonl"
    path.write_bytes(content)
    expected = read_good(content)

    assert read_good(path) == read_good(str(path)) == expected
    assert read_good(io.BytesIO(content)) == read_good(io.StringIO(content.decode())) == expected
    with path.open("rb") as binary, path.open() as text:
        assert read_good(binary) == read_good(text) == expected
    assert read_good(content[i : i + 1] for i in range(len(content))) == expected
    assert read_good([b"", content[:5], memoryview(content[5:])]) == expected


def test_problems_are_in_the_order_of_lines_and_all_are_counted() -> None:
    records: list[Any] = [node("Person", slug=f"p{n}", age=200, role="x") for n in range(30)]
    records[3] = "nonsense"
    records[1] = node("Nobody")

    found = read(lines(*records))

    assert found.report.total == 28 * 2 + 2
    places = [str(violation.place) for violation in found.report.violations]
    assert places == [f"<bytes>:{n}" for n in (1, 1, 2, 3, 3, 4, *sorted([*range(5, 12)] * 2))]
    assert [violation.code for violation in found.report.violations[:6]] == [
        "enum",
        "range",
        "unknown_type",
        "enum",
        "range",
        "syntax",
    ]


def test_two_things_wrong_with_one_record_are_both_said_but_nothing_twice() -> None:
    found = read(lines(node("Person", slug=3, age="x", role="root")))

    assert [(v.code, v.property) for v in found.report.violations] == [
        ("type", "age"),
        ("type", "slug"),
        ("enum", "role"),
    ]


def test_broken_utf8_says_line_and_byte() -> None:
    good = lines(ADA)

    with pytest.raises(UnreadableInput, match=r"<bytes>:2: broken UTF-8 at byte") as caught:
        read(good + b'{"type": "\xff"}\n' + good)

    assert caught.value.fields["line"] == 2
    assert caught.value.fields["byte"] == len(good) + 10


# -- framed exports ----------------------------------------------------------------------------------


def framed(*records: Any, **end: Any) -> list[str]:
    """Return the lines of a framed export."""
    header = {
        "og_export": {"format": 1, "schema_digest": CATALOG.declaration_digest, "branch": "main", "types": []}
    }
    texts = [json.dumps(line) for line in (header, *records)]
    digest = hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
    last = {"lines": len(records), "sha256": digest, "last": {"type": "Person", "id": "x"}, **end}
    return [*texts, json.dumps({"og_export_end": last})]


def test_a_whole_export_is_read_with_either_line_end() -> None:
    texts = framed(ADA, node("Person", slug="bo"))

    for between in ("\n", "\r\n", "\n\n"):
        assert [row["slug"] for row in read_good(between.join(texts).encode())] == ["ada", "bo"]


def test_an_export_without_its_end_is_refused_as_truncated() -> None:
    with pytest.raises(UnreadableInput, match="truncated: its last line, og_export_end, is missing"):
        read("\n".join(framed(ADA)[:-1]).encode())


WRONG_FRAMES: list[Any] = [
    (framed(ADA)[1:], 2, "og_export_end without og_export"),
    ([*framed(ADA), json.dumps(ADA)], 4, "more after the end"),
    ([json.dumps(ADA), *framed(ADA)], 2, "can only be the first line"),
    (framed(ADA, lines=2), 3, "counts 2 records, the file has 1"),
    (framed(ADA, sha256="0" * 64), 3, "does not match the export's sha256"),
    ([line.replace(CATALOG.declaration_digest, "sha256:other") for line in framed(ADA)], 1, "another schema"),
    ([framed(ADA)[0].replace('"format": 1', '"format": 2'), *framed(ADA)[1:]], 1, "export format 2"),
]


@pytest.mark.parametrize(("texts", "line", "words"), WRONG_FRAMES)
def test_an_export_that_is_not_as_it_was_written_is_refused(texts: list[str], line: int, words: str) -> None:
    found = read("\n".join(texts).encode())

    first = found.report.violations[0]
    assert words in first.message
    assert first.place == f"<bytes>:{line}"
