"""Records: what is written is read back, every version agrees with itself, other formats are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.base.errors import (
    FormatMismatch,
    FormatTooNew,
    FormatTooOld,
    FormatUnreadable,
    GraphError,
    IntegrityError,
    Kind,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import new_id
from omnigraph.storage.manifest.formats import FORMAT, FORMAT_KEY
from omnigraph.storage.manifest.records import (
    RECENT,
    ChainIdentity,
    CommitKind,
    CommitRecord,
    ManifestState,
    Pin,
    Sweep,
    TableChange,
    advance,
    control,
    decode,
    encode,
)

text = st.text(
    st.characters(codec="utf-8"), max_size=20
)  # anything that UTF-8 can hold, control characters too
ids = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)
versions = st.integers(1, 2**64 - 1)  # detached versions exceed int64
counts = st.integers(0, 2**40)

pins = st.builds(
    Pin,
    table_id=text,
    name=text,
    kind=st.sampled_from(["node", "edge"]),
    version=versions,
    rows=counts,
    content=ids,
)
changes = st.builds(
    TableChange,
    table_id=text,
    name=text,
    before=st.none() | versions,
    after=st.none() | versions,
    inserted=counts,
    updated=counts,
    deleted=counts,
)
commits = st.builds(
    CommitRecord,
    id=ids,
    parent=st.none() | ids,
    merged_parent=st.none() | ids,
    branch=text,
    incarnation=ids,
    kind=st.sampled_from(CommitKind),
    actor=st.none() | text,
    message=st.none() | text,
    authored_at_us=counts,
    manifest_version=counts,
    schema=text,
    tables=st.lists(changes, max_size=3).map(tuple),
    labels=st.dictionaries(text, text, max_size=3).map(FrozenMap),
)
sweeps = st.builds(
    Sweep,
    floor=counts,
    kept=st.none() | st.lists(counts, max_size=3).map(tuple),
    tables=st.lists(ids, max_size=2).map(tuple),
    condemned=st.none() | st.lists(ids, max_size=2).map(tuple),
    before_us=st.none() | counts,
)
lines = st.builds(
    ChainIdentity,
    incarnation=ids,
    parent=st.none() | ids,
    fork_version=st.none() | counts,
    created_us=counts,
)
states = st.builds(
    ManifestState,
    version=counts,
    line=lines,
    commit=commits,
    pins=st.lists(pins, max_size=4).map(lambda found: FrozenMap({pin.table_id: pin for pin in found})),
    heads=st.lists(ids, min_size=1, max_size=3).map(tuple),
    recent=st.lists(st.tuples(counts, ids), max_size=4).map(tuple),
    newest_id=ids,
    floor=counts,
    kept=st.lists(counts, max_size=3).map(tuple),
    swept=counts,
    swept_us=st.none() | counts,
    condemned=st.lists(ids, max_size=2).map(tuple),
    reclaimed=st.dictionaries(ids, counts, max_size=3).map(FrozenMap),
    tombstone=st.none() | ids,
    name=st.none() | text.filter(bool),
    seen=st.dictionaries(ids, counts, max_size=3).map(FrozenMap),
)


def commit(kind: CommitKind = CommitKind.MUTATION, base: ManifestState | None = None) -> CommitRecord:
    return CommitRecord(
        id=new_id(),
        parent=None if base is None else base.head,
        merged_parent=None,
        branch="main",
        incarnation="main",
        kind=kind,
        actor=None,
        message=None,
        authored_at_us=1,
        manifest_version=1 if base is None else base.version + 1,
        schema="s1",
    )


def genesis() -> ManifestState:
    first = commit(CommitKind.GENESIS)
    pinned = Pin("t", "T", "node", version=1, rows=0, content=first.id)
    return ManifestState(
        version=1,
        line=ChainIdentity("main"),
        commit=first,
        pins=FrozenMap({"t": pinned}),
        heads=(first.id,),
        recent=((1, first.id),),
        newest_id=first.id,
    )


def applied(content: dict[str, str], updates: dict[str, str | None]) -> dict[str, str]:
    """Return the map as the substrate leaves it after an update."""
    merged: dict[str, str | None] = {**content, **updates}
    return {key: value for key, value in merged.items() if value is not None}


# -- the encoding


@settings(max_examples=60, deadline=None)
@given(states)
def test_a_state_is_read_back_as_it_was_written(state: ManifestState) -> None:
    assert decode(state.version, encode(state), "here") == state


@settings(max_examples=40, deadline=None)
@given(states, commits, st.lists(pins, max_size=3), st.booleans())
def test_the_updates_of_a_commit_lead_to_the_state_it_promises(
    base: ManifestState, record: CommitRecord, moved: list[Pin], drop_one: bool
) -> None:
    changed: dict[str, Pin | None] = {pin.table_id: pin for pin in moved}
    if drop_one and base.pins:
        changed[next(iter(base.pins))] = None

    state, updates = advance(base, record, changed)

    assert decode(state.version, applied(encode(base), updates), "here") == state


@settings(max_examples=40, deadline=None)
@given(states, st.none() | sweeps, st.none() | ids)
def test_the_updates_of_a_control_write_lead_to_the_state_it_promises(
    base: ManifestState, sweep: Sweep | None, tombstone: str | None
) -> None:
    state, updates = control(base, sweep=sweep, tombstone=tombstone)

    assert decode(state.version, applied(encode(base), updates), "here") == state


@settings(max_examples=25, deadline=None)
@given(states)
def test_versions_are_stored_as_text_since_many_readers_hold_no_unsigned_64_bits(
    state: ManifestState,
) -> None:
    content = encode(state)

    for key, value in content.items():
        if key.startswith("table/"):
            assert isinstance(json.loads(value)["version"], str)
    for change in json.loads(content["graph_commit"])["tables"]:
        assert all(isinstance(change[side], str | None) for side in ("before", "after"))


# -- how versions follow one another


@settings(max_examples=25, deadline=None)
@given(states, commits)
def test_a_commit_is_the_next_version_and_names_its_head(base: ManifestState, record: CommitRecord) -> None:
    state, updates = advance(base, record, {})

    assert state.version == base.version + 1
    assert (state.head, updates["graph_head"]) == (record.id, record.id)
    assert json.loads(updates["graph_commit"] or "")["id"] == record.id
    assert state.recent[0] == (state.version, record.id)


@settings(max_examples=25, deadline=None)
@given(states, st.none() | sweeps, st.none() | ids)
def test_a_control_write_is_the_next_version_and_repeats_the_head(
    base: ManifestState, sweep: Sweep | None, tombstone: str | None
) -> None:
    """Otherwise a writer that stalled past a cleanup could slip through (lance-facts B9)."""
    state, updates = control(base, sweep=sweep, tombstone=tombstone)

    assert state.version == base.version + 1
    assert updates["graph_head"] == base.head
    assert (state.commit, state.pins, state.heads, state.recent) == (
        base.commit,
        base.pins,
        base.heads,
        base.recent,
    )


@settings(max_examples=25, deadline=None)
@given(states, counts)
def test_neither_the_floor_nor_a_tombstone_is_ever_taken_back(base: ManifestState, floor: int) -> None:
    state, _ = control(base, sweep=Sweep(floor=floor))

    assert state.floor == max(base.floor, floor)
    assert state.tombstone == base.tombstone
    assert advance(state, commit(base=state), {})[0].floor == state.floor


@settings(max_examples=25, deadline=None)
@given(states, sweeps)
def test_a_sweep_never_makes_files_younger_that_an_earlier_one_may_have_taken(
    base: ManifestState, sweep: Sweep
) -> None:
    state, _ = control(base, sweep=sweep)

    if base.swept and base.swept_us is None:
        assert state.swept_us is None
    elif base.swept and state.swept_us is not None:
        assert state.swept_us >= (base.swept_us or 0)
    assert all(version < state.floor for version in state.kept if sweep.kept is not None)


@settings(max_examples=25, deadline=None)
@given(states, text.filter(bool))
def test_a_rename_is_noted_until_the_next_one(base: ManifestState, name: str) -> None:
    state, updates = control(base, name=name)

    assert (state.name, json.loads(updates["control"] or "")["name"]) == (name, name)
    assert (
        control(state, sweep=Sweep(floor=1))[0].name == advance(state, commit(base=state), {})[0].name == name
    )


def test_the_first_versions_of_format_1_had_fewer_marks() -> None:
    state = ManifestState(1, ChainIdentity("main"), commit(), FrozenMap(), ("a",), (), "a")
    content = {**encode(state), FORMAT_KEY: "1"}
    marks = json.loads(content["control"])
    del marks["name"], marks["reclaimed"]

    assert decode(1, {**content, "control": json.dumps(marks)}, "here") == state


def test_every_version_of_a_history_agrees_with_itself() -> None:
    """PT-14: at every version the head, the commit record and the pins belong together."""
    state = genesis()
    content = encode(state)
    for number in range(80):
        updates: dict[str, str | None]
        if number % 9 == 8:
            state, updates = control(state, sweep=Sweep(floor=number))
        else:
            record = commit(CommitKind.MAINTENANCE if number % 5 == 4 else CommitKind.MUTATION, state)
            owner = state.pins["t"].content if record.kind is CommitKind.MAINTENANCE else record.id
            pin = Pin("t", "T", "node", version=2**63 + number, rows=number, content=owner)
            state, updates = advance(state, record, {"t": pin})
            assert record.manifest_version == state.version
        content = applied(content, updates)

        read = decode(state.version, content, "here")

        assert read == state
        assert content["graph_head"] == read.commit.id == read.head
        assert content["schema"] == read.commit.schema == read.schema
        assert read.recent[0] == (read.commit.manifest_version, read.commit.id)
        assert read.newest_id == max(read.newest_id, read.commit.id)
        assert read.pins["t"].content in read.heads


def test_maintenance_adds_a_name_for_the_same_content_and_a_content_commit_starts_anew() -> None:
    base = genesis()
    tidied, _ = advance(base, commit(CommitKind.MAINTENANCE, base), {})
    changed, _ = advance(tidied, commit(CommitKind.MUTATION, tidied), {})

    assert tidied.same_content_as(base.head)
    assert tidied.same_content_as(tidied.head)
    assert not changed.same_content_as(tidied.head)
    assert changed.same_content_as(changed.head)


def test_the_greatest_id_so_far_never_falls_though_ids_may_come_late() -> None:
    """An id is minted when its write begins, and a slow write publishes late."""
    base = genesis()
    first, _ = advance(base, replace(commit(base=base), id="Z" * 26), {})
    second, _ = advance(first, replace(commit(base=first), id="0" * 26), {})

    assert (first.newest_id, second.newest_id) == ("Z" * 26, "Z" * 26)


# -- finding one's own commit


def history(length: int) -> list[ManifestState]:
    found = [genesis()]
    for _ in range(length):
        found.append(advance(found[-1], commit(base=found[-1]), {})[0])
    return found


@pytest.mark.parametrize("behind", [1, 2, RECENT - 1, RECENT])
def test_a_commit_that_landed_recently_is_recognised(behind: int) -> None:
    states = history(RECENT + 5)
    base, landed = states[-behind - 1], states[-behind]

    assert states[-1].landed_since(base.version, landed.head) is True


@pytest.mark.parametrize("behind", [0, 1, RECENT - 1, RECENT])
def test_a_commit_that_did_not_land_is_known_to_be_absent_while_the_head_reaches_back(behind: int) -> None:
    states = history(RECENT + 5)
    base = states[-behind - 1]

    assert states[-1].landed_since(base.version, new_id()) is False


def test_beyond_what_the_head_remembers_it_says_that_it_does_not_know() -> None:
    states = history(RECENT + 5)

    assert states[-1].landed_since(states[-RECENT - 2].version, new_id()) is None


def test_a_short_history_is_known_entirely() -> None:
    states = history(RECENT - 2)

    assert states[-1].landed_since(0, new_id()) is False


def test_a_fresh_branch_knows_that_nothing_landed_on_it() -> None:
    forked = replace(history(50)[-1], version=1, recent=())

    assert forked.landed_since(1, new_id()) is False


# -- formats and damage


@pytest.mark.parametrize(
    ("stamp", "error", "code", "remedy"),
    [
        pytest.param(None, FormatUnreadable, "format_unreadable", "not a graph made by", id="missing"),
        pytest.param("", FormatUnreadable, "format_unreadable", "not a graph made by", id="empty"),
        pytest.param("one", FormatUnreadable, "format_unreadable", "not a graph made by", id="word"),
        pytest.param("-1", FormatUnreadable, "format_unreadable", "not a graph made by", id="negative"),
        pytest.param("1.5", FormatUnreadable, "format_unreadable", "not a graph made by", id="fraction"),
        pytest.param(" 1", FormatUnreadable, "format_unreadable", "not a graph made by", id="blank"),
        pytest.param("²", FormatUnreadable, "format_unreadable", "not a graph made by", id="superscript"),
        pytest.param("0", FormatTooOld, "format_too_old", "Export it with the release", id="older"),
        pytest.param("3", FormatTooNew, "format_too_new", "Upgrade this installation", id="newer"),
        pytest.param("9" * 30, FormatTooNew, "format_too_new", "Upgrade this installation", id="far-newer"),
    ],
)
def test_other_formats_are_refused_with_what_to_do(
    stamp: str | None, error: type[GraphError], code: str, remedy: str
) -> None:
    content = encode(genesis())
    del content[FORMAT_KEY]
    if stamp is not None:
        content[FORMAT_KEY] = stamp

    with pytest.raises(error) as caught:
        decode(1, content, "s3://somewhere/kb")

    found = caught.value
    assert isinstance(found, FormatMismatch)
    assert (found.code, found.kind) == (code, Kind.INVALID)
    assert found.fields["supported"] == FORMAT
    assert "s3://somewhere/kb" in str(found)
    assert remedy in str(found)


def test_the_format_is_judged_before_anything_else_is_read() -> None:
    """A newer release may have changed every other key."""
    with pytest.raises(FormatTooNew):
        decode(1, {FORMAT_KEY: str(FORMAT + 1), "graph_commit": "no longer JSON"}, "here")


JSON_KEYS = sorted(encode(genesis()).keys() - {FORMAT_KEY, "graph_head", "schema", "newest_id"})


def refused(content: dict[str, str]) -> None:
    with pytest.raises(IntegrityError) as caught:
        decode(7, content, "s3://somewhere/kb")

    assert caught.value.code == "integrity"
    assert "version 7" in str(caught.value)
    assert "s3://somewhere/kb" in str(caught.value)
    assert "restore it from a copy" in str(caught.value)


@pytest.mark.parametrize("key", JSON_KEYS)
@pytest.mark.parametrize("damage", ["{", "7", "null"])
def test_a_damaged_value_is_an_integrity_error(key: str, damage: str) -> None:
    refused({**encode(genesis()), key: damage})


@pytest.mark.parametrize("key", sorted(encode(genesis()).keys() - {FORMAT_KEY, "table/t"}))
def test_a_missing_key_is_an_integrity_error(key: str) -> None:
    content = encode(genesis())
    del content[key]

    refused(content)


@pytest.mark.parametrize("key", ["graph_head", "schema"])
def test_a_head_that_contradicts_its_commit_record_is_an_integrity_error(key: str) -> None:
    refused({**encode(genesis()), key: "something else"})
