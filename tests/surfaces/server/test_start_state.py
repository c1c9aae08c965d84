"""The table of states that a server may start in."""

from __future__ import annotations

import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.server import identity
from omnigraph.surfaces.server.identity import AccessMode, StartState, start_state

OPEN = StartState(AccessMode.OPEN, (identity.EVERYBODY,))
OPEN_WITHOUT_POLICY = StartState(AccessMode.OPEN, (identity.EVERYBODY, identity.POLICY_IGNORED))
DENY = StartState(AccessMode.READ_ONLY_ACTORS, (identity.READ_ONLY,))
DENY_WITH_FLAG = StartState(AccessMode.READ_ONLY_ACTORS, (identity.FLAG_IGNORED, identity.READ_ONLY))
POLICY = StartState(AccessMode.POLICY)
POLICY_WITH_FLAG = StartState(AccessMode.POLICY, (identity.FLAG_IGNORED,))


@pytest.mark.parametrize(
    ("tokens", "policy", "unauthenticated", "state"),
    [
        (False, False, True, OPEN),
        (False, True, True, OPEN_WITHOUT_POLICY),
        (True, False, False, DENY),
        (True, False, True, DENY_WITH_FLAG),
        (True, True, False, POLICY),
        (True, True, True, POLICY_WITH_FLAG),
    ],
)
def test_a_server_starts_as_the_table_says(
    tokens: bool, policy: bool, unauthenticated: bool, state: StartState
) -> None:
    assert start_state(tokens=tokens, policy=policy, unauthenticated=unauthenticated) == state


@pytest.mark.parametrize(
    ("policy", "reason"), [(False, "no tokens"), (True, "every request would be refused")]
)
def test_without_tokens_a_server_refuses_and_names_both_remedies(policy: bool, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as raised:
        start_state(tokens=False, policy=policy)
    assert "omnigraph token new" in str(raised.value)
    assert "--unauthenticated" in str(raised.value)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "[::]", "", "10.0.0.7", "graph.example", "::ffff:10.0.0.7"]
)
@pytest.mark.parametrize("policy", [False, True])
def test_open_mode_on_a_public_address_has_to_be_meant(host: str, policy: bool) -> None:
    with pytest.raises(InvalidRequest, match="would let the network") as raised:
        start_state(tokens=False, policy=policy, unauthenticated=True, host=host)
    assert "--allow-public" in str(raised.value)
    meant = start_state(tokens=False, policy=policy, unauthenticated=True, host=host, allow_public=True)
    assert meant.mode is AccessMode.OPEN
    assert start_state(tokens=True, policy=policy, host=host).mode is not AccessMode.OPEN


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"])
def test_open_mode_on_this_machine_needs_no_further_flag(host: str) -> None:
    assert start_state(tokens=False, policy=False, unauthenticated=True, host=host) == OPEN


def test_allow_public_alone_opens_nothing() -> None:
    with pytest.raises(InvalidRequest, match="no tokens"):
        start_state(tokens=False, policy=False, allow_public=True)
