"""Bearer tokens: where they come from, which are accepted, how they change, and that nothing shows them."""

from __future__ import annotations

import copy
import hmac
import json
import logging
import os
import pickle
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.base.errors import AuthenticationError, InvalidRequest
from omnigraph.surfaces.server.identity import LONGEST_HEADER, Identity
from omnigraph.surfaces.server.tokens import TokenSource, holder, read_tokens
from tests.surfaces.server.clocks import HandClock

ADA, BO = "ada-secret-1", "bo-secret-2"


def hashed(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def environment(tokens: Mapping[str, Any]) -> dict[str, str]:
    return {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens)}


def identity(tokens: Mapping[str, Any], clock: HandClock | None = None) -> Identity:
    source = TokenSource.from_environment(environment(tokens), clock=clock or HandClock())
    assert source is not None
    return Identity(source)


def refused(who: Identity, header: str | None) -> str:
    with pytest.raises(AuthenticationError) as raised:
        who.identify(header)
    return str(raised.value)


# -- which tokens are accepted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "presented"),
    [
        (ADA, ADA),
        (f"  {ADA}\n", ADA),
        ([ADA, "ada-newer"], ADA),
        ([ADA, "ada-newer"], "ada-newer"),
        (f"sha256:{hashed(ADA)}", ADA),
        (f"sha256:{hashed(ADA).upper()}", ADA),
        ({"sha256": hashed(ADA)}, ADA),
        ({"sha256": hashed(ADA), "id": "laptop", "expires": "2027-01-15T08:00:01Z"}, ADA),
        ({"sha256": hashed(ADA), "expires": "2027-01-15T10:00:01+02:00"}, ADA),
        ([{"sha256": hashed(ADA)}, f"sha256:{hashed('x')}", "y"], "x"),
    ],
)
def test_a_token_is_accepted_in_each_form_that_it_may_be_written_in(value: Any, presented: str) -> None:
    assert identity({"bo": BO, " ada ": value}).identify(f"Bearer {presented}") == "ada"


HEADERS = [
    *(None, "", "Bearer", "Bearer ", f"bearer {ADA}", f"Basic {ADA}", ADA, f" Bearer {ADA}"),
    *("Bearer wrong", f"Bearer {ADA}x", f"Bearer {ADA[:-1]}", f"Bearer {ADA} {BO}", f"Bearer {ADA.upper()}"),
    *(f"Bearer sha256:{hashed(ADA)}", f"Bearer {hashed(ADA)}", "Bearer ä", "Bearer \ud800", "Bearer a.b.c"),
    f"Bearer {'x' * LONGEST_HEADER}",
    f"Bearer {' ' * LONGEST_HEADER}{ADA}",
]


@pytest.mark.parametrize("header", HEADERS)
def test_everything_else_is_refused_with_one_message(header: str | None) -> None:
    who = identity({"ada": ADA, "bo": [BO, {"sha256": hashed("over"), "expires": "2027-01-15T08:00:00Z"}]})
    assert refused(who, header) == refused(who, "Bearer over")


def test_a_token_ends_when_it_says_and_not_before() -> None:
    clock = HandClock()
    who = identity({"ada": {"sha256": hashed(ADA), "expires": "2027-01-15T08:01:00Z"}}, clock)
    clock.seconds = 59.9
    assert who.identify(f"Bearer {ADA}") == "ada"
    clock.seconds = 60
    refused(who, f"Bearer {ADA}")


def test_of_one_token_written_twice_the_longer_life_counts() -> None:
    twice = [{"sha256": hashed(ADA), "expires": "2020-01-01T00:00:00Z"}, {"sha256": hashed(ADA)}]
    for order in (twice, twice[::-1]):
        assert identity({"ada": order}).identify(f"Bearer {ADA}") == "ada"


# -- what a server does not start with ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '"t"', "7", "null", "{", '{"a": "t", "a": "u"}', "[" * 100_000, "{}"),
        *('{"": "t"}', '{"  ": "t"}', '{"system:optimize": "t"}', '{"a\\nb": "t"}'),
        *(
            '{"a": ""}',
            '{"a": "  "}',
            '{"a": ["t", ""]}',
            '{"a": []}',
            '{"a": 7}',
            '{"a": null}',
            '{"a": [[]]}',
        ),
        *('{"a": "two words"}', '{"a": "ä"}', '{"a": "t\\u0000"}'),
        *('{"a": "sha256:"}', '{"a": "sha256:abc"}', '{"a": {}}', '{"a": {"sha256": 7}}'),
        json.dumps({"a": {"sha256": hashed("t"), "expires": "tomorrow"}}),
        json.dumps({"a": {"sha256": hashed("t"), "expires": "2027-01-15"}}),
        json.dumps({"a": {"sha256": hashed("t"), "expires": "2027-01-15T08:00:00"}}),
        json.dumps({"a": {"sha256": hashed("t"), "expires": "2027-13-15T08:00:00Z"}}),
        json.dumps({"a": {"sha256": hashed("t"), "expiry": "2027-01-15T08:00:00Z"}}),
        json.dumps({"a": "t", "b": "t"}),
        json.dumps({"a": "t", "b": [f"sha256:{hashed('t')}"]}),
    ],
)
def test_a_document_that_is_not_clear_keeps_a_server_from_starting(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        TokenSource.from_environment(
            {"OG_SERVER_BEARER_TOKENS_JSON": text} if text else {"X": ""},
            file=Path("-") if not text else None,
        )
    assert hashed("t") not in str(raised.value)


def test_a_refusal_quotes_no_token_even_where_names_and_tokens_were_mixed_up() -> None:
    for tokens in (
        {ADA: "system:x", "system:y": ADA},
        {"system:x": ADA},
        {"ada": [ADA, 7]},
        {"a": ADA, "b": ADA},
    ):
        with pytest.raises(InvalidRequest) as raised:
            read_tokens(json.dumps(tokens), "a test")
        assert ADA not in f"{raised.value}{raised.value!r}{raised.value.fields}{raised.value.__context__!r}"


def test_without_any_source_there_are_no_tokens() -> None:
    assert TokenSource.from_environment({}) is None
    assert TokenSource.from_environment({"OMNIGRAPH_SERVER_BEARER_TOKEN": ""}) is None


# -- where tokens come from ---------------------------------------------------------------------------


def test_all_sources_hold_together_and_a_file_takes_the_place_of_json(tmp_path: Path) -> None:
    file, flagged = tmp_path / "tokens.json", tmp_path / "flagged.json"
    file.write_text(json.dumps({"ada": ADA}))
    flagged.write_text(json.dumps({"cy": "cy-secret"}))
    told = {
        "OG_SERVER_BEARER_TOKEN": "the-default",
        "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file),
        **environment({"bo": BO}),
    }
    source = TokenSource.from_environment(told, clock=HandClock())
    assert source is not None
    assert source.actors == ("ada", "default")
    assert Identity(source).identify("Bearer the-default") == "default"
    by_flag = TokenSource.from_environment(told, file=flagged, clock=HandClock())
    assert by_flag is not None
    assert by_flag.actors == ("cy", "default")


def test_one_token_of_two_actors_is_found_across_sources(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"ada": ADA}))
    with pytest.raises(InvalidRequest, match="two actors"):
        TokenSource.from_environment({"OG_SERVER_BEARER_TOKEN": ADA}, file=file)


def test_a_command_prints_the_tokens_and_its_failure_shows_none_of_its_output(tmp_path: Path) -> None:
    program = tmp_path / "print.py"
    program.write_text(f"print({json.dumps(json.dumps({'ada': ADA}))})")
    source = TokenSource.from_environment({}, command=f"{sys.executable} {program}", clock=HandClock())
    assert source is not None
    assert source.holder(ADA) == "ada"

    program.write_text(f"import sys; print({ADA!r}); print({ADA!r}, file=sys.stderr); sys.exit(3)")
    with pytest.raises(InvalidRequest, match="exit code 3") as raised:
        TokenSource.from_environment({}, command=f"{sys.executable} {program}")
    assert ADA not in str(raised.value)
    for command in ("", "no-such-program-here", "'unclosed"):
        with pytest.raises(InvalidRequest, match="cannot be run"):
            TokenSource.from_environment({}, command=command)


# -- tokens that change -------------------------------------------------------------------------------


class Shelf:
    """A file of tokens, the identity that reads it, and the clock of both."""

    def __init__(self, folder: Path, tokens: Mapping[str, Any]) -> None:
        self.file = folder / "tokens.json"
        self.clock = HandClock()
        self.writes = 0
        self.write(json.dumps(tokens))
        source = TokenSource.from_environment({}, file=self.file, clock=self.clock)
        assert source is not None
        self.identity = Identity(source)

    def write(self, text: str) -> None:
        """Write the file, as at another time than before."""
        self.file.write_text(text)
        self.writes += 1
        os.utime(self.file, (self.writes, self.writes))

    def known(self, token: str) -> bool:
        """Say whether a token is accepted."""
        try:
            self.identity.identify(f"Bearer {token}")
        except AuthenticationError:
            return False
        return True


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, {"ada": "first"})


def test_a_rotation_has_both_tokens_valid_in_between(shelf: Shelf) -> None:
    for tokens, known in (
        (["first", "second"], {"first", "second"}),
        (["second"], {"second"}),
        (["second", "third"], {"second", "third"}),
    ):
        shelf.write(json.dumps({"ada": tokens}))
        shelf.clock.seconds += 2
        assert {token for token in ("first", "second", "third") if shelf.known(token)} == known


def test_a_change_of_the_file_is_seen_a_second_later_and_the_file_is_looked_at_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    stat = Path.stat

    def looked(path: Path, **options: bool) -> os.stat_result:
        looks.append(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", looked)
    shelf.write(json.dumps({"ada": "second"}))
    assert not shelf.known("second")
    for _ in range(100):
        shelf.known("first")
    assert looks == []
    shelf.clock.seconds = 1.0
    assert [shelf.known("second"), shelf.known("first"), shelf.known("second")] == [True, False, True]
    assert looks == [shelf.file]


def test_a_file_of_the_same_size_and_time_that_was_put_in_its_place_is_seen(shelf: Shelf) -> None:
    status = shelf.file.stat()
    beside = shelf.file.with_name("beside")
    beside.write_text(json.dumps({"ada": "other"}))
    os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns))
    beside.replace(shelf.file)
    shelf.clock.seconds = 1
    assert shelf.known("other")


@pytest.mark.parametrize("broken", ["{", '{"ada": "second", "bo": "second"}', '{"system:x": "second"}', None])
def test_a_broken_file_leaves_the_tokens_that_were_and_says_so_once(
    shelf: Shelf, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if broken is None:
        shelf.file.unlink()
    else:
        shelf.write(broken)
    for second in (2, 4, 6):
        shelf.clock.seconds = second
        assert shelf.known("first")
    assert not shelf.known("second")
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert not shelf.identity.reload()
    assert shelf.known("first")
    assert "second" not in caplog.text
    shelf.write(json.dumps({"ada": "mended"}))
    shelf.clock.seconds = 8
    assert shelf.known("mended")


def test_a_reload_needs_no_second_to_pass_and_can_revoke_everything(shelf: Shelf) -> None:
    shelf.write(json.dumps({"ada": "second"}))
    assert shelf.identity.reload()
    assert [shelf.known("second"), shelf.known("first")] == [True, False]
    shelf.write("{}")
    assert shelf.identity.reload()
    assert not shelf.known("second")


def test_a_reload_asks_the_command_again(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    told.write_text(json.dumps({"ada": "first"}))
    source = TokenSource.from_environment({}, command=f"cat {told}", clock=HandClock())
    assert source is not None
    told.write_text(json.dumps({"ada": "second"}))
    assert source.holder("first") == "ada"
    assert source.reload()
    assert (source.holder("first"), source.holder("second")) == (None, "ada")


# -- nothing tells ------------------------------------------------------------------------------------


@pytest.mark.parametrize("presented", ["token-0", "token-7", "token-15", "no token", ""])
def test_every_entry_is_compared_whether_and_where_one_matches(
    presented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = read_tokens(json.dumps({f"actor-{n}": f"token-{n}" for n in range(16)}), "a test")
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr("omnigraph.surfaces.server.tokens.hmac.compare_digest", counted)
    actor = holder(presented, entries, 0)
    assert [one for one, _ in compared] == [entry.digest for entry in entries]
    assert {len(other) for _, other in compared} == {32}
    assert actor == (presented.replace("token", "actor") if presented.startswith("token") else None)


TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40)


@given(TOKENS, st.sampled_from(["plain", "hashed", "object", "list"]), TOKENS)
def test_no_value_record_or_error_holds_a_token_or_its_digest(token: str, form: str, other: str) -> None:
    digest = hashed(token)
    value: Any = {
        "plain": token,
        "hashed": f"sha256:{digest}",
        "object": {"sha256": digest, "id": "laptop"},
        "list": [token],
    }[form]
    if token.startswith("sha256:"):
        return
    source = TokenSource.from_environment(environment({"actor": value}), clock=HandClock())
    assert source is not None
    who = Identity(source)
    shown = [repr(source), str(source), repr(who), str(who), f"{source.actors}"]
    for entry in source._entries:
        shown += [repr(entry), str(entry), f"{entry}", str(entry.name)]
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="not copied"):
                copied(entry)
    for held in (source, who):
        with pytest.raises(TypeError, match="not copied"):
            pickle.dumps(held)
    try:
        shown.append(who.identify(f"Bearer {other}"))
    except AuthenticationError as error:
        shown += [str(error), repr(error), repr(error.fields), repr(error.__context__)]
    text = "\n".join(shown)
    assert token not in text
    assert digest not in text
    assert digest[:16] not in text
    assert repr(bytes.fromhex(digest)) not in text


def test_no_record_of_any_logger_holds_what_was_presented(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert shelf.known("first")
    assert not shelf.known("presented-and-wrong")
    shelf.write(json.dumps({"ada": "second-secret"}))
    assert shelf.identity.reload()
    shelf.write('{"ada": "third-secret", ')
    assert not shelf.identity.reload()
    text = "\n".join(str(vars(record)) for record in caplog.records)
    for secret in ("first", "presented-and-wrong", "second-secret", "third-secret"):
        assert secret not in text
        assert hashed(secret) not in text
