"""Tags: names for commits that never move, made and removed at one instant for everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.base.errors import BadTagName, BranchExists, BranchNotFound, GraphError, TagExists, TagNotFound
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from tests.support.graphs import make_graph, upsert_person
from tests.support.places import Place
from tests.support.stores import Once, again, check_error, nothing_written

pytestmark = pytest.mark.s3_when_full

AN_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"  # not a fresh one: names of tests must not differ between runs


@pytest.fixture
def impatient(place: Place) -> Iterator[GraphStore]:
    """A graph that takes every commit for one that stalled, and looks what became of it."""
    make_graph(place.address, durability="os", **place.kwargs).close()
    with again(place, RetryPolicy(confirm_after_s=0)) as store:
        yield store


def test_a_tag_that_others_removed_before_it_was_read_back_is_not_made_again(
    impatient: GraphStore, place: Place
) -> None:
    state = impatient.snapshot().state
    with again(place) as rival, armed({"tag_create.after": Once(lambda: rival.tags.delete("once"))}):
        assert impatient.tags.create("once", state).name == "once"

        assert names(rival) == []


def test_a_tag_that_others_removed_and_made_anew_is_theirs(impatient: GraphStore, place: Place) -> None:
    state = impatient.snapshot().state
    with again(place) as rival:

        def take_over() -> None:
            rival.tags.delete("name")
            rival.tags.create("name", state, message="theirs")

        with armed({"tag_create.after": Once(take_over)}):
            impatient.tags.create("name", state, message="ours")

        assert [tag.message for tag in rival.tags.list()] == ["theirs"]


def names(store: GraphStore) -> list[str]:
    return [tag.name for tag in store.tags.list()]


def test_a_tag_names_one_commit_whatever_is_committed_later(store: GraphStore, rival: GraphStore) -> None:
    state = store.snapshot().state
    made = store.tags.create(" v1 ", state, actor="ada", message="first")
    upsert_person(store, "x")

    found = rival.tags.get("v1")

    assert found == made
    assert (found.name, found.commit_id, found.actor, found.message) == ("v1", state.head, "ada", "first")
    assert (found.incarnation, found.version) == ("main", state.version)


def test_tags_are_listed_by_name_whoever_made_them(store: GraphStore, rival: GraphStore) -> None:
    assert names(rival) == []
    for number, name in enumerate(["m", "b", "z/ü", "a"]):
        one = (store, rival)[number % 2]
        one.tags.create(name, one.snapshot().state)

    assert names(store) == names(rival) == ["a", "b", "m", "z/ü"]


def test_a_tag_at_an_inherited_head_names_the_place_where_the_commit_was_made(store: GraphStore) -> None:
    store.branches.create("dev", "main")

    tag = store.tags.create("v1", store.snapshot("dev").state)

    assert (tag.incarnation, tag.version) == ("main", store.snapshot().state.version)
    store.branches.delete("dev")  # nothing of its own is tagged


def test_a_tag_at_a_control_write_names_the_version_of_the_commit(store: GraphStore) -> None:
    version = store.snapshot().state.version
    store.raise_floor("main", 1)

    assert store.tags.create("v1", store.snapshot().state).version == version


def test_a_tag_is_deleted_and_its_name_free_at_once(store: GraphStore, rival: GraphStore) -> None:
    made = store.tags.create("v1", store.snapshot().state)
    assert rival.tags.delete("v1") == made

    with pytest.raises(TagNotFound) as caught:
        store.tags.get("v1")
    check_error(caught.value, "tag_not_found", "v1")
    upsert_person(store, "x")
    assert store.tags.create("v1", store.snapshot().state).commit_id == store.snapshot().commit_id


def test_branches_and_tags_are_kept_beside_each_other(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.tags.create("v1", store.snapshot().state)
    store.branches.create("ops", "main")
    store.branches.rename("dev", "kept")

    for one in (store, rival):
        assert names(one) == ["v1"]
        assert [ref.name for ref in one.branches.list()] == ["kept", "ops"]


# -- refusals


@pytest.mark.parametrize(
    "name",
    ["", "a//b", "x" * 201, "main", "__v", "12", "v~1", "2026-05-01", "2026-05-01T12:00:00Z", AN_ID],
)
def test_a_name_that_could_mean_something_else_is_refused(place: Place, store: GraphStore, name: str) -> None:
    state = store.snapshot().state
    with nothing_written(place), pytest.raises(BadTagName) as caught:
        store.tags.create(name, state)
    assert caught.value.code == "bad_tag_name"


@pytest.mark.parametrize("name", ["v2026-05-01", "v1.0", "2026-13-01", "~1", "v~", "v~x"])
def test_a_name_that_only_looks_a_little_like_something_else_is_a_name(store: GraphStore, name: str) -> None:
    assert store.tags.create(name, store.snapshot().state).name == name


def test_a_tag_does_not_move(store: GraphStore, rival: GraphStore) -> None:
    first = store.tags.create("v1", store.snapshot().state)
    upsert_person(store, "x")

    with pytest.raises(TagExists) as caught:
        rival.tags.create("v1", rival.snapshot().state)
    check_error(caught.value, "tag_exists", "v1")
    assert store.tags.get("v1") == first


def test_a_tag_and_a_branch_do_not_share_a_name(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.tags.create("v1", store.snapshot().state)

    with pytest.raises(BranchExists):
        rival.tags.create("dev", rival.snapshot().state)
    with pytest.raises(TagExists):
        rival.branches.create("v1", "main")


def test_a_tag_and_a_branch_made_at_once_do_not_share_a_name(store: GraphStore, rival: GraphStore) -> None:
    def tag() -> None:
        rival.tags.create("x", rival.snapshot().state)

    with armed({"branch_register.before": Once(tag)}), pytest.raises(TagExists):
        store.branches.create("x", "main")

    def branch() -> None:
        rival.branches.create("y", "main")

    with armed({"tag_create.before": Once(branch)}), pytest.raises(BranchExists):
        store.tags.create("y", store.snapshot().state)


def test_a_missing_tag_is_not_deleted(place: Place, store: GraphStore) -> None:
    with nothing_written(place), pytest.raises(TagNotFound):
        store.tags.delete("v1")


# -- the branch that holds what is tagged


def test_a_branch_with_tagged_commits_of_its_own_is_not_deleted(place: Place, store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    store.tags.create("v1", store.snapshot("dev").state)
    store.tags.create("on-main", store.snapshot().state)

    with nothing_written(place), pytest.raises(GraphError) as caught:
        store.branches.delete("dev")
    check_error(caught.value, "branch_has_tags", "dev", "v1")
    assert caught.value.fields["tags"] == ["v1"]

    store.tags.delete("v1")
    store.branches.delete("dev")


def test_a_commit_of_a_branch_that_is_going_is_not_tagged(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    state = store.snapshot("dev").state

    def tag_too_late() -> None:
        with pytest.raises(BranchNotFound):
            rival.tags.create("v1", state)

    with armed({"branch_tombstone.before": Once(tag_too_late)}):
        store.branches.delete("dev")
    with pytest.raises(BranchNotFound):
        store.tags.create("v1", state)
    assert names(store) == []


def test_a_delete_that_meets_a_new_tag_is_refused(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")

    def tag() -> None:
        rival.tags.create("v1", rival.snapshot("dev").state)

    with armed({"branch_mark.before": Once(tag)}), pytest.raises(GraphError) as caught:
        store.branches.delete("dev")
    assert caught.value.code == "branch_has_tags"
    assert [ref.name for ref in store.branches.list()] == ["dev"]


# -- interrupted, and lost replies


@pytest.mark.parametrize("point", ["tag_create.before", "tag_create.after"])
def test_an_interrupted_tag_is_there_or_can_be_made(store: GraphStore, rival: GraphStore, point: str) -> None:
    state = store.snapshot().state
    with armed({point: "raise"}), pytest.raises(FailpointHit):
        store.tags.create("v1", state)

    if names(rival) == []:
        store.tags.create("v1", state)
    assert rival.tags.get("v1").commit_id == state.head
