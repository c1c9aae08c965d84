"""What docs/authentication.md says about settings and start-up is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.server.identity import FLAG_IGNORED, POLICY_IGNORED, start_state
from omnigraph.surfaces.server.jwt import ALGORITHMS, KEY_OF, LONGEST_LEEWAY, JwtSettings

PAGE = (Path(__file__).parents[3] / "docs/authentication.md").read_text()
STATES = re.findall(r"^\| (yes|no) \| (yes|no) \| (yes|no) \| (.+) \|$", PAGE, re.MULTILINE)


def test_the_worked_configuration_is_accepted_as_it_stands() -> None:
    assert JwtSettings.from_environment(
        dict(re.findall(r"^export (\w+)=(.+)$", PAGE, re.MULTILINE))
    ) == JwtSettings(
        "https://login.example.com/",
        "omnigraph",
        "https://login.example.com/.well-known/jwks.json",
        algorithms=("RS256",),
        actor_claim="email",
    )


def test_the_defaults_and_bounds_are_those_of_the_code() -> None:
    assert f"`{','.join(ALGORITHMS)}` if not set" in PAGE
    *names, last = KEY_OF
    assert f"of {', '.join(names)} and {last};" in PAGE
    assert f"up to {LONGEST_LEEWAY}; {JwtSettings('i', 'a', 'k').leeway_seconds} if not set" in PAGE


def test_the_table_of_states_is_whole() -> None:
    assert len({state[:3] for state in STATES}) == len(STATES) == 8


@pytest.mark.parametrize(("tokens", "policy", "flag", "result"), STATES)
def test_a_server_starts_as_the_page_says(tokens: str, policy: str, flag: str, result: str) -> None:
    known, has_policy, unauthenticated = (word == "yes" for word in (tokens, policy, flag))
    if result.startswith("refuses"):
        with pytest.raises(InvalidRequest):
            start_state(tokens=known, policy=has_policy, unauthenticated=unauthenticated)
        return
    state = start_state(tokens=known, policy=has_policy, unauthenticated=unauthenticated)
    modes = {"open": "open", "the policy decides": "policy", "whoever has a token": "default_deny"}
    if result.startswith("the same"):
        assert FLAG_IGNORED in state.warnings
        assert state.mode is start_state(tokens=known, policy=has_policy).mode
    else:
        assert state.mode.value == next(mode for words, mode in modes.items() if result.startswith(words))
    assert (POLICY_IGNORED in state.warnings) == ("not enforced" in result)
