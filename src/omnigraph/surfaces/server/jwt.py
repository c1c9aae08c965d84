"""JWTs: tokens that an identity provider signed, checked with its public keys.

Algorithms are pinned, and public-key ones only: the key of a token is looked up by its id together with the
algorithm that it claims, in a table that holds each key under the algorithms it is made for. So `none`, or a
public key taken for a shared secret, finds nothing there. PyJWT and its cryptography are imported when a
server is told to take JWTs, not before.

The keys come from a file, read again when it changes, or from an address: fetched at start, every ten
minutes, and for an unknown key id, at most every 30 s. When a fetch fails, the last good keys stay.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.surfaces.environment import variable
from omnigraph.surfaces.server.tokens import FileWatch, actor_fault

if TYPE_CHECKING:
    from jwt import PyJWK

# By algorithm, what key it takes: its type and, where there are several, its curve.
KEY_OF = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
ALGORITHMS = ("RS256", "ES256")
LEAST_RSA_BITS = 2048
REFRESH_SECONDS = 30.0
STALE_SECONDS = 600.0
LARGEST_JWKS = 1 << 20  # bytes
LAST_SECOND = 1e11  # some three thousand years
LONGEST_LEEWAY = 300  # seconds: more than any clock should be wrong
SERVER_EXTRA = 'Install it with: pip install "omnigraph[server]"'
VARIABLES = (
    "Set OMNIGRAPH_SERVER_JWT_ISSUER, OMNIGRAPH_SERVER_JWT_AUDIENCE and OMNIGRAPH_SERVER_JWT_JWKS, all three"
)

log = logging.getLogger(__name__)
Fetch = Callable[[str, float], bytes]  # an address and seconds; raises OSError or ValueError


# -- settings ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose JWTs a server takes, and how it checks them."""

    issuer: str
    audience: str
    jwks: str  # a file, or an https:// address
    algorithms: tuple[str, ...] = ALGORITHMS
    actor_claim: str = "sub"
    leeway_seconds: int = 30
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "jwks", "actor_claim"):
            if not getattr(self, name).strip():
                raise InvalidRequest(f"the {name} of JWTs is blank", remedy=VARIABLES)
        unknown = [name for name in self.algorithms if name not in KEY_OF]
        if unknown or not self.algorithms:
            raise InvalidRequest(
                f"JWTs cannot be checked with {', '.join(unknown) or 'no algorithm'}",
                remedy=f"Choose from {', '.join(KEY_OF)}, which sign with a key that no server has",
            )
        if not 0 <= self.leeway_seconds <= LONGEST_LEEWAY:
            raise InvalidRequest(
                f"a leeway of {self.leeway_seconds} s is not between 0 and {LONGEST_LEEWAY} s",
                remedy="Give the seconds by which clocks may differ",
            )
        if self.jwks.startswith("http://") and not is_loopback(urlsplit(self.jwks).hostname or ""):
            raise InvalidRequest(
                "keys fetched over http:// can be replaced on the way",
                remedy="Give an https:// address, or a file",
            )
        if self.remote and "@" in urlsplit(self.jwks).netloc:
            raise InvalidRequest(
                "the address of the keys has a user name in it",
                remedy="Give an address that anybody may read: keys are public",
            )

    @property
    def remote(self) -> bool:
        """Whether the keys are at an address."""
        return self.jwks.startswith(("http://", "https://"))

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> JwtSettings | None:
        """Return what the variables say, or None if they say nothing about JWTs."""

        def told(name: str) -> str | None:
            return variable(f"SERVER_JWT_{name}", environment)

        issuer, audience, jwks = told("ISSUER"), told("AUDIENCE"), told("JWKS")
        if issuer is None and audience is None and jwks is None:
            return None
        if issuer is None or audience is None or jwks is None:
            raise InvalidRequest("JWTs need an issuer, an audience and keys", remedy=VARIABLES)
        leeway = told("LEEWAY_SECONDS")
        if leeway is not None and not (leeway.isascii() and leeway.isdecimal()):
            raise InvalidRequest("SERVER_JWT_LEEWAY_SECONDS is not a number", remedy="Give whole seconds")
        algorithms = told("ALGORITHMS")
        return JwtSettings(
            issuer,
            audience,
            jwks,
            algorithms=ALGORITHMS
            if algorithms is None
            else tuple(name.strip() for name in algorithms.split(",") if name.strip()),
            actor_claim=told("ACTOR_CLAIM") or "sub",
            leeway_seconds=30 if leeway is None else int(leeway),
        )


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address; a name other than localhost does not tell.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "", "a.example")]
    [True, True, True, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


# -- keys --------------------------------------------------------------------------------------------


KeyTable = Mapping[tuple[str | None, str], "PyJWK"]  # by key id and algorithm


class JwksKeys:
    """The public keys of an identity provider, by id and algorithm; safe for many threads."""

    def __init__(self, settings: JwtSettings, clock: Clock, fetch: Fetch | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._fetch = fetch or fetched
        self._lock = threading.Lock()
        self._tried = -math.inf
        self._keys: KeyTable = {}
        self._watch = None if settings.remote else FileWatch(Path(settings.jwks), clock)
        if self._watch is None:
            self._refresh(
                every=0, wait=True
            )  # a provider that is down does not keep the server from starting
        else:
            self._keys = self._from_file(self._watch.path)

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key of a token, looked for anew if it is not known; waits for the network then."""
        if self._watch is not None:
            self._look(self._watch)
            return self._known(key_id, algorithm)
        self._refresh(every=STALE_SECONDS, wait=False)
        key = self._known(key_id, algorithm)
        if key is None:
            self._refresh(every=REFRESH_SECONDS, wait=True)
            key = self._known(key_id, algorithm)
        return key

    def _known(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        keys = self._keys
        if key_id is not None:
            return keys.get((key_id, algorithm))
        # Without an id the key is known only if there is no choice.
        fitting = [key for (_, made_for), key in keys.items() if made_for == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def _refresh(self, *, every: float, wait: bool) -> None:
        """Fetch the keys unless that was tried lately; whoever waited for another's fetch takes its keys."""
        if not self._lock.acquire(blocking=wait):
            return
        try:
            now = self._clock.monotonic()
            if now - self._tried < every:
                return
            self._tried = now
            body = self._fetch(self._settings.jwks, self._settings.timeout_seconds)
            self._keys = key_table(body, self._settings.algorithms)
        except (OSError, ValueError) as error:
            log.error("the keys for JWTs could not be fetched, the last good ones stay: %s", error)
        finally:
            self._lock.release()

    def _look(self, watch: FileWatch) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if watch.changed():
                self._keys = self._from_file(watch.path)
        except InvalidRequest as error:
            log.error("the last good keys for JWTs stay: %s", error.message)
        finally:
            self._lock.release()

    def _from_file(self, path: Path) -> KeyTable:
        try:
            return key_table(path.read_bytes(), self._settings.algorithms)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidRequest(
                f"the keys for JWTs in {str(path)!r} cannot be used: {reason}",
                remedy="Give the JSON Web Key Set of the issuer, a file or an https:// address",
            ) from error


def key_table(body: bytes, algorithms: Sequence[str]) -> KeyTable:
    """Return the keys of a JSON Web Key Set by id and algorithm, or raise ValueError."""
    try:
        document = json.loads(body)
    except RecursionError:
        document = None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JSON Web Key Set")
    keys: dict[tuple[str | None, str], PyJWK] = {}
    for number, raw in enumerate(listed, start=1):
        for algorithm in algorithms if isinstance(raw, dict) else ():
            if _made_for(raw, algorithm) and (key := _usable(raw, algorithm, number)) is not None:
                keys.setdefault((raw.get("kid"), algorithm), key)
    if not keys:
        raise ValueError(f"none of its keys is for {' or '.join(algorithms)}")
    return keys


def _made_for(raw: Mapping[str, Any], algorithm: str) -> bool:
    key_type, curve = KEY_OF[algorithm]
    return (
        raw.get("kty") == key_type
        and (curve is None or raw.get("crv") == curve)
        and raw.get("alg", algorithm) == algorithm
        and raw.get("use", "sig") == "sig"
        and isinstance(raw.get("kid", ""), str)
    )


def _usable(raw: Mapping[str, Any], algorithm: str, number: int) -> PyJWK | None:
    """Return a key ready to check signatures with, unless it is private, weak or broken."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if "d" in raw:
        log.warning("key %d of the JWKS is left out: it is a private key, which everybody now has", number)
        return None
    try:
        key = PyJWK.from_dict(dict(raw), algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        log.warning("key %d of the JWKS is left out: it cannot be read", number)
        return None
    if raw["kty"] == "RSA" and key.key.key_size < LEAST_RSA_BITS:
        log.warning("key %d of the JWKS is left out: it has fewer than %d bits", number, LEAST_RSA_BITS)
        return None
    return key


def fetched(address: str, timeout_seconds: float) -> bytes:
    """Return what is at an address; raise OSError. Follows no redirect: the address is the trust there is."""
    import httpx

    clock = SystemClock()
    deadline = clock.monotonic() + timeout_seconds
    body = bytearray()
    try:
        with httpx.stream("GET", address, timeout=timeout_seconds, follow_redirects=False) as response:
            if response.status_code != 200:
                raise OSError(f"status {response.status_code}")
            for part in response.iter_bytes():
                body += part
                if len(body) > LARGEST_JWKS or clock.monotonic() > deadline:
                    raise OSError("it is too long, or comes too slowly")
    except httpx.HTTPError as error:
        raise OSError(type(error).__name__) from error
    return bytes(body)


# -- tokens ------------------------------------------------------------------------------------------


class JwtVerifier:
    """Says whose JWT was presented."""

    def __init__(
        self, settings: JwtSettings, *, clock: Clock | None = None, fetch: Fetch | None = None
    ) -> None:
        try:
            import jwt
        except ImportError as error:
            raise InvalidRequest("JWTs need the package pyjwt", remedy=SERVER_EXTRA) from error
        self._jwt = jwt
        self._settings = settings
        self._clock = clock or SystemClock()
        self._keys = JwksKeys(settings, self._clock, fetch)

    def __repr__(self) -> str:
        return f"JwtVerifier(issuer={self._settings.issuer!r})"

    @property
    def may_wait(self) -> bool:
        """Whether `verify` may wait for the network."""
        return self._settings.remote

    def verify(self, token: str) -> str | None:
        """Return the actor of a valid token, or None."""
        try:
            header = self._jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms or "crit" in header or "b64" in header:
                return _refused("its algorithm or a demand of its header is not taken")
            key = self._keys.find(key_id, algorithm)
            if key is None:
                return _refused("its key is not known")
            claims = self._jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    # Times are compared here, by the clock that everything else has.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            return _refused(type(error).__name__)
        if not self._in_time(claims):
            return _refused("it is not valid at this time")
        actor = claims.get(self._settings.actor_claim)
        if not isinstance(actor, str) or actor_fault(actor) is not None:
            return _refused("its actor cannot be used")
        return actor

    def _in_time(self, claims: Mapping[str, Any]) -> bool:
        now, leeway = self._clock.now_us() / 1e6, self._settings.leeway_seconds
        ends, begins, made = (_seconds(claims.get(name, 0)) for name in ("exp", "nbf", "iat"))
        if ends is None or begins is None or made is None:
            return False
        return ends + leeway > now and max(begins, made) - leeway <= now


def _seconds(claim: Any) -> float | None:
    """Return a time of a claim; None where it is no number, or no time of this age."""
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        return None
    return float(claim) if abs(claim) < LAST_SECOND else None


def _refused(reason: str) -> str | None:
    """Note for whoever runs the server why a token was refused; the caller is not told."""
    log.debug("a JWT was refused: %s", reason)
    return None
