"""Branch names: any name that people write works on any store; the rest is refused before any write."""

from __future__ import annotations

import unicodedata
from functools import partial

import pytest

from omnigraph.base.errors import BadBranchName, BranchNotFound, Kind, ReservedBranch
from omnigraph.storage.store import GraphStore
from tests.support.graphs import persons, upsert_person
from tests.support.places import Place
from tests.support.stores import again, check_error, nothing_written

GOOD = [
    "a",
    "a/b",
    "A",
    "a/b/c",
    "release-1.2_x",
    "ünïcødé",
    "分支/审查",
    "🜁",
    "with space",
    "dots...more",
    ".hidden",
    "a.lock",
    'it\'s "quoted" \\ `so`',
    "%2F",
    "a%b+c~d:e",
    "-",
    "HEAD",
    "Main",
    "x" * 200,
    "é" * 100,
    "{json}",
    "branch/x",
    "a__b",
]
BAD = {
    "empty": "",
    "blank": "   ",
    "slash first": "/a",
    "slash last": "a/",
    "empty segment": "a//b",
    "only a slash": "/",
    "dots": "..",
    "dots inside": "a/../b",
    "control character": "a\x00b",
    "line break": "a\nb",
    "escape": "a\x1bb",
    "C1 control": "a\x85b",
    "half a surrogate": "a\ud800b",
    "201 bytes": "x" * 201,
    "201 bytes of UTF-8": "é" * 100 + "x",
}
RESERVED = ["main", " main ", "__refs", "__x", "__", "__a/b"]


def test_every_legal_name_is_created_listed_written_and_deleted(place: Place, store: GraphStore) -> None:
    """All at once, so that no two of them are taken for one another."""
    for name in GOOD:
        assert store.branches.create(name, "main").name == name
    assert [ref.name for ref in again(place).branches.list()] == sorted(GOOD)

    for number, name in enumerate(GOOD[:6]):
        upsert_person(store, f"p{number}", branch=name)
    other = again(place)
    for number, name in enumerate(GOOD[:6]):
        assert set(persons(other, name)) == {"a", "b", f"p{number}"}

    for name in GOOD:
        other.branches.delete(name)
    assert store.branches.list() == ()


def test_a_bad_name_is_refused_everywhere_before_anything_is_written(place: Place, store: GraphStore) -> None:
    with nothing_written(place):
        for why, name in BAD.items():
            for use in (
                partial(store.branches.create, name, "main"),
                partial(store.branches.create, "fine", name),
                partial(store.branches.delete, name),
                partial(store.snapshot, name),
                partial(upsert_person, store, "x", branch=name),
            ):
                with pytest.raises(BadBranchName) as caught:
                    use()
                error = caught.value
                assert (error.code, error.kind) == ("bad_branch_name", Kind.INVALID), why
                assert error.fields["name"] == name
                assert error.fields["reason"]
                assert error.fields["reason"] in str(error)


def test_a_reserved_name_can_be_neither_created_nor_deleted(place: Place, store: GraphStore) -> None:
    with nothing_written(place):
        for name in RESERVED:
            for use in (partial(store.branches.create, name, "main"), partial(store.branches.delete, name)):
                with pytest.raises(ReservedBranch) as caught:
                    use()
                check_error(caught.value, "reserved_branch", name.strip())


def test_blanks_around_a_name_do_not_count(store: GraphStore) -> None:
    store.branches.create("  dev ", "main")

    assert [ref.name for ref in store.branches.list()] == ["dev"]
    assert store.snapshot(" dev").commit_id == store.snapshot("dev  ").commit_id
    store.branches.delete("\tdev")
    assert store.branches.list() == ()


def test_two_spellings_of_one_unicode_name_are_one_branch(store: GraphStore) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert unicodedata.normalize("NFD", composed) == decomposed

    store.branches.create(decomposed, "main")
    upsert_person(store, "x", branch=composed)

    assert [ref.name for ref in store.branches.list()] == [composed]
    assert set(persons(store, decomposed)) == {"a", "b", "x"}
    store.branches.delete(decomposed)
    with pytest.raises(BranchNotFound):
        store.snapshot(composed)


def test_names_that_contain_one_another_live_and_die_independently(place: Place, store: GraphStore) -> None:
    """B-05: `a`, `a/b` and `A`, in any order."""
    for name in ("a", "a/b", "A"):
        store.branches.create(name, "main")
        upsert_person(store, f"on {name}", branch=name)

    store.branches.delete("a")

    other = again(place)
    assert [ref.name for ref in other.branches.list()] == ["A", "a/b"]
    assert set(persons(other, "a/b")) == {"a", "b", "on a/b"}
    assert set(persons(other, "A")) == {"a", "b", "on A"}
    store.branches.create("a", "a/b")
    assert set(persons(other, "a")) == {"a", "b", "on a/b"}
