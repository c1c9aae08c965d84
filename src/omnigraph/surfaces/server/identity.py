"""Identity: who asks, from the header of a request; and whether a server may start as it was told to.

The actor is that of the token, and nothing else: no header, parameter or body field names one. Whatever is
wrong with a header, the answer is the same error, which tells nobody what was almost right.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import AuthenticationError, InvalidRequest
from omnigraph.surfaces.server.jwt import JwtVerifier, is_loopback
from omnigraph.surfaces.server.tokens import TokenSource

SCHEME = "Bearer "
LONGEST_HEADER = 16_384  # characters; a JWT with many claims has a few thousand


class Identity:
    """Says who asks; tokens are tried first, then JWTs."""

    def __init__(self, tokens: TokenSource | None, jwt: JwtVerifier | None = None) -> None:
        self._tokens = tokens
        self._jwt = jwt

    def __repr__(self) -> str:
        return f"Identity(tokens={self._tokens!r}, jwt={self._jwt!r})"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError("tokens are not copied out of the process that checks them")

    @property
    def may_wait(self) -> bool:
        """Whether `identify` may wait for the network; then it is not for the thread of an event loop."""
        return self._jwt is not None and self._jwt.may_wait

    def identify(self, header: str | None) -> str:
        """Return the actor of an `Authorization` header, or raise AuthenticationError."""
        actor = self._actor(header)
        if actor is None:
            raise AuthenticationError(
                "the request does not say with a valid token who asks",
                remedy="Send the header 'Authorization: Bearer TOKEN' with a token of this server",
            )
        return actor

    def reload(self) -> bool:
        """Read the tokens again, as at SIGHUP; say whether that went well. May wait for a command."""
        return self._tokens is None or self._tokens.reload()

    def _actor(self, header: str | None) -> str | None:
        if header is None or len(header) > LONGEST_HEADER or not header.startswith(SCHEME):
            return None
        presented = header.removeprefix(SCHEME).strip(" ")
        if not presented.isascii():
            return None
        actor = None if self._tokens is None else self._tokens.holder(presented)
        if actor is None and self._jwt is not None and presented.count(".") == 2:
            return self._jwt.verify(presented)
        return actor


# -- may a server start? -----------------------------------------------------------------------------


class AccessMode(Enum):
    """Who may do what on a server."""

    OPEN = "open"  # everybody everything
    READ_ONLY_ACTORS = "default_deny"  # who has a token may read
    POLICY = "policy"  # the policy decides


@dataclass(frozen=True, slots=True)
class StartState:
    """How a server runs, and what whoever started it should know."""

    mode: AccessMode
    warnings: tuple[str, ...] = ()


NO_CREDENTIALS = "no tokens and no JWT issuer are configured"
GIVE_TOKENS = (
    "Make a token with 'omnigraph token new --file tokens.json --actor NAME' "
    "and start with --tokens tokens.json"
)
EVERYBODY = "open mode: whoever reaches this address may read and change everything"
POLICY_IGNORED = (
    "the policy is NOT enforced: --unauthenticated was given and no token is configured, "
    "so nobody is told apart"
)
FLAG_IGNORED = "--unauthenticated has no effect: tokens are configured, and every request needs one"
READ_ONLY = "no policy is configured: whoever has a token may read, and nobody may do anything else"


def start_state(
    *,
    tokens: bool,
    policy: bool,
    unauthenticated: bool = False,
    host: str = "127.0.0.1",
    allow_public: bool = False,
) -> StartState:
    """Return how a server runs that is told this much, or raise InvalidRequest if it must not.

    `tokens` is whether anything tells callers apart, tokens or JWTs; `host` is where it listens.

    >>> start_state(tokens=True, policy=True).mode
    <AccessMode.POLICY: 'policy'>
    """
    if tokens:
        noted = (FLAG_IGNORED,) if unauthenticated else ()
        if policy:
            return StartState(AccessMode.POLICY, noted)
        return StartState(AccessMode.READ_ONLY_ACTORS, (*noted, READ_ONLY))
    if not unauthenticated and policy:
        raise InvalidRequest(
            f"a policy is configured, but {NO_CREDENTIALS}: every request would be refused",
            remedy=f"{GIVE_TOKENS}, or give --unauthenticated to serve everybody without the policy",
        )
    if not unauthenticated:
        raise InvalidRequest(
            NO_CREDENTIALS, remedy=f"{GIVE_TOKENS}, or give --unauthenticated to serve everybody"
        )
    if not is_loopback(host) and not allow_public:
        raise InvalidRequest(
            f"open mode on {host or 'every address'} would let the network change the graph",
            remedy="Listen on 127.0.0.1, configure tokens, or give --allow-public as well",
            host=host,
        )
    return StartState(AccessMode.OPEN, (EVERYBODY, POLICY_IGNORED) if policy else (EVERYBODY,))
