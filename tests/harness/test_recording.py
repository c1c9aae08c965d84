"""A request is counted under the object it is about, and the object's class is its place in the layout."""

from __future__ import annotations

import pytest

from tests.support.recording import classify, identify


@pytest.mark.parametrize(
    ("key", "klass"),
    [
        ("g/__manifest/_versions/18446744073709551614.manifest", "manifest"),
        ("g/__manifest/_transactions/0-a.txn", "manifest"),
        ("g/__manifest/tree/01J9/_versions/1.manifest", "manifest"),
        ("__manifest/_versions/", "manifest"),
        ("g/__refs/_versions/1.manifest", "refs"),
        ("g/__schema/ab12.json", "schema"),
        ("g/tables/7/data/0101.lance", "data"),
        ("g/tables/7/data/0101/00.blob", "data"),
        ("g/tables/7/_versions/d9223372036854775809.manifest", "versions"),
        ("g/tables/7/_versions", "versions"),
        ("g/tables/7/_transactions/1-b.txn", "transactions"),
        ("g/tables/7/_deletions/0-1-2.arrow", "deletions"),
        ("g/tables/7/_indices/5f/index.idx", "indices"),
        ("tables/of/data/tables/7/_versions/1.manifest", "versions"),
        ("tables/7/people.csv", "other"),
        ("g/tables/7", "other"),
        ("g/data/0101.lance", "other"),
        ("", "other"),
    ],
)
def test_class_follows_from_the_place_in_the_layout(key: str, klass: str) -> None:
    assert classify(key) == klass


@pytest.mark.parametrize(
    ("request_line", "body", "expected"),
    [
        (("GET", "/bucket/g/a%20b%2Bc"), b"", ("GET", "g/a b+c")),
        (("GET", "/bucket?list-type=2&prefix=g%2F__refs%2F&delimiter=%2F"), b"", ("LIST", "g/__refs/")),
        (("GET", "/bucket/"), b"", ("LIST", "")),
        (("GET", "/bucket?location"), b"", ("GET", "")),
        (("GET", "/"), b"", ("GET", "")),
        (("HEAD", "/bucket/k"), b"", ("HEAD", "k")),
        (("POST", "/bucket/big?uploads"), b"", ("POST", "big")),
        (("PUT", "/bucket/big?partNumber=1&uploadId=u"), b"", ("PUT", "big")),
        (("DELETE", "/bucket/big?uploadId=u"), b"", ("DELETE", "big")),
        (
            ("POST", "/bucket?delete"),
            b"<Key>g/tables/7/data/a&amp;b</Key>",
            ("DELETE", "g/tables/7/data/a&b"),
        ),
        (
            ("POST", "/bucket?delete="),
            b"<Key>g/tables/7/data/a</Key><Key>g/tables/7/data/b</Key>",
            ("DELETE", "g/tables/7/data"),
        ),
    ],
)
def test_request_is_counted_under_what_it_asks_for(
    request_line: tuple[str, str], body: bytes, expected: tuple[str, str]
) -> None:
    assert identify(*request_line, body) == expected
