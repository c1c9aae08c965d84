"""JWTs: which are accepted, which are refused, and how the keys of their issuer are kept."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest

from omnigraph.base.errors import AuthenticationError, InvalidRequest
from omnigraph.surfaces.server.identity import LONGEST_HEADER, Identity
from omnigraph.surfaces.server.jwt import LARGEST_JWKS, JwtSettings, JwtVerifier, fetched, key_table
from omnigraph.surfaces.server.tokens import TokenSource
from tests.surfaces.server.clocks import HandClock
from tests.surfaces.server.conftest import AUDIENCE, ISSUER, NOW, Provider

ADDRESS = "https://issuer.example/keys"
ALL = ("RS256", "PS256", "ES256", "ES384", "EdDSA")


def settings(jwks: str | Path, **changes: Any) -> JwtSettings:
    return JwtSettings(ISSUER, AUDIENCE, str(jwks), **changes)


@pytest.fixture(scope="session")
def jwks(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    trusted = provider.public("rsa", "ec", "ec384", "ed", "weak")
    private = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(provider.keys["other"]))
    further = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {"kty": "RSA", "kid": "broken"},
        "text",
        None,
    ]
    file.write_text(json.dumps({"keys": [*trusted["keys"], {**private, "kid": "private"}, *further]}))
    return file


def verifier(jwks: Path, **changes: Any) -> JwtVerifier:
    return JwtVerifier(settings(jwks, **changes), clock=HandClock())


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(header: dict[str, Any], key: bytes | None, **claims: Any) -> str:
    """Return a token that PyJWT would not make: unsigned, or signed with a shared secret."""
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 600, **claims}
    signed = f"{encoded(header)}.{encoded(payload)}"
    return f"{signed}.{'' if key is None else encoded(hmac.new(key, signed.encode(), sha256).digest())}"


# -- accepted -----------------------------------------------------------------------------------------

Make = Callable[[Provider], str]
ACCEPTED: dict[str, Make] = {
    "RSA": lambda p: p.sign("rsa", "RS256"),
    "PSS": lambda p: p.sign("rsa", "PS256"),
    "elliptic curve": lambda p: p.sign("ec", "ES256"),
    "another curve": lambda p: p.sign("ec384", "ES384"),
    "Edwards curve": lambda p: p.sign("ed", "EdDSA"),
    "one audience of several": lambda p: p.sign("rsa", "RS256", aud=["else", AUDIENCE]),
    "expired within the leeway": lambda p: p.sign("rsa", "RS256", exp=NOW - 29),
    "valid soon, within the leeway": lambda p: p.sign("rsa", "RS256", nbf=NOW + 30),
    "made by a clock that is ahead": lambda p: p.sign("rsa", "RS256", iat=NOW + 30),
    "a fraction of a second": lambda p: p.sign("rsa", "RS256", exp=NOW + 0.5),
    "without the time it was made": lambda p: p.sign("rsa", "RS256", iat=None),
    "a key that the header brings is ignored": lambda p: p.sign(
        "rsa", "RS256", header={"jwk": p.jwk("other")}
    ),
    "an address that the header brings is ignored": lambda p: p.sign(
        "rsa", "RS256", header={"jku": "http://x"}
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_good_token_is_accepted(case: str, provider: Provider, jwks: Path) -> None:
    who = Identity(None, verifier(jwks, algorithms=ALL))
    assert who.identify(f"Bearer {ACCEPTED[case](provider)}") == "ada"


# -- refused ------------------------------------------------------------------------------------------


def tampered(token: str, **claims: Any) -> str:
    header, payload, signature = token.split(".")
    known = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{encoded({**known, **claims})}.{signature}"


REFUSED: dict[str, Make] = {
    "no algorithm": lambda p: by_hand({"alg": "none"}, None),
    "no algorithm, and the id of a key": lambda p: by_hand({"alg": "none", "kid": "rsa"}, None),
    "no algorithm, in capitals": lambda p: by_hand({"alg": "NONE", "kid": "rsa"}, None),
    "a header without algorithm": lambda p: by_hand({"kid": "rsa"}, None),
    "a list of algorithms": lambda p: by_hand({"alg": ["RS256"], "kid": "rsa"}, None),
    "the public key as a shared secret": lambda p: by_hand({"alg": "HS256", "kid": "rsa"}, p.pem("rsa")),
    "a shared secret that the set has": lambda p: by_hand({"alg": "HS256", "kid": "shared"}, b"secret"),
    "signed with a shared secret, said to be RSA": lambda p: by_hand(
        {"alg": "RS256", "kid": "rsa"}, p.pem("rsa")
    ),
    "the signature left out": lambda p: p.sign("rsa", "RS256").rpartition(".")[0] + ".",
    "the signature of another token": lambda p: tampered(p.sign("rsa", "RS256"), sub="root"),
    "another key": lambda p: p.sign("other", "RS256"),
    "another key under a known id": lambda p: p.sign("other", "RS256", header={"kid": "rsa"}),
    "a key of another kind": lambda p: p.sign("rsa", "RS256", header={"kid": "ec"}),
    "a curve that is not that of the algorithm": lambda p: p.sign("ec", "ES256", header={"kid": "ec384"}),
    "a weak key": lambda p: p.sign("weak", "RS256"),
    "a key whose private half was published": lambda p: p.sign("other", "RS256", header={"kid": "private"}),
    "an algorithm that is not pinned": lambda p: p.sign("rsa", "RS512"),
    "a key id that is no text": lambda p: by_hand({"alg": "RS256", "kid": 7}, b""),
    "no key id, and several keys that fit": lambda p: by_hand({"alg": "RS256"}, b""),
    "a demand that is not understood": lambda p: p.sign("rsa", "RS256", header={"crit": ["x"], "x": 1}),
    "another audience": lambda p: p.sign("rsa", "RS256", aud="else"),
    "an audience that begins alike": lambda p: p.sign("rsa", "RS256", aud=f"{AUDIENCE}2"),
    "no audience": lambda p: p.sign("rsa", "RS256", aud=None),
    "another issuer": lambda p: p.sign("rsa", "RS256", iss="https://else.example"),
    "the issuer with a slash": lambda p: p.sign("rsa", "RS256", iss=f"{ISSUER}/"),
    "no issuer": lambda p: p.sign("rsa", "RS256", iss=None),
    "expired": lambda p: p.sign("rsa", "RS256", exp=NOW - 600),
    "expired at the end of the leeway": lambda p: p.sign("rsa", "RS256", exp=NOW - 30),
    "no end": lambda p: p.sign("rsa", "RS256", exp=None),
    "an end that is text": lambda p: p.sign("rsa", "RS256", exp=str(NOW + 600)),
    "an end that is true": lambda p: p.sign("rsa", "RS256", exp=True),
    "an end that is no number": lambda p: p.sign("rsa", "RS256", exp=float("nan")),
    "no end in this age": lambda p: p.sign("rsa", "RS256", exp=float("inf")),
    "an end of many digits": lambda p: p.sign("rsa", "RS256", exp=10**400),
    "not valid yet": lambda p: p.sign("rsa", "RS256", nbf=NOW + 31),
    "a beginning that is text": lambda p: p.sign("rsa", "RS256", nbf=str(NOW)),
    "made in the future": lambda p: p.sign("rsa", "RS256", iat=NOW + 31),
    "no actor": lambda p: p.sign("rsa", "RS256", sub=None),
    "a blank actor": lambda p: p.sign("rsa", "RS256", sub=" "),
    "an actor of the system": lambda p: p.sign("rsa", "RS256", sub="system:optimize"),
    "an actor of two lines": lambda p: p.sign("rsa", "RS256", sub="ada\nroot"),
    "an actor that is longer than any": lambda p: p.sign("rsa", "RS256", sub="a" * 201),
    "a huge token": lambda p: p.sign("rsa", "RS256", more="x" * LONGEST_HEADER),
    "claims that are a list": lambda p: f"{encoded({'alg': 'RS256', 'kid': 'rsa'})}.{encoded([])}.AAAA",
    "a header that is no JSON": lambda p: "AAAA.AAAA.AAAA",
    "a header without end": lambda p: f"{encoded(b'[' * 9_000)}.AAAA.AAAA",
    "empty parts": lambda p: "..",
    "four parts": lambda p: p.sign("rsa", "RS256") + ".AAAA",
    "two parts": lambda p: p.sign("rsa", "RS256").rpartition(".")[0],
    "no base64": lambda p: "ä.ö.ü",
}


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_token_is_refused_with_the_message_of_every_refusal(
    case: str, provider: Provider, jwks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = REFUSED[case](provider)
    who = Identity(None, verifier(jwks, algorithms=ALL))
    with pytest.raises(AuthenticationError) as raised:
        who.identify(f"Bearer {token}")
    with pytest.raises(AuthenticationError) as of_nobody:
        who.identify(None)
    assert (str(raised.value), raised.value.fields) == (str(of_nobody.value), of_nobody.value.fields)
    assert raised.value.__context__ is None
    told = "".join(str(vars(record)) for record in caplog.records)
    assert token not in told
    assert not [part for part in token.split(".") if len(part) > 20 and part in told]


def test_an_actor_may_be_another_claim_and_clocks_may_have_to_agree(provider: Provider, jwks: Path) -> None:
    strict = verifier(jwks, actor_claim="https://example.com/actor", leeway_seconds=0)
    claims = {"https://example.com/actor": "bo"}
    assert strict.verify(provider.sign("rsa", "RS256", **claims)) == "bo"
    assert strict.verify(provider.sign("rsa", "RS256", exp=NOW, **claims)) is None
    assert strict.verify(provider.sign("rsa", "RS256")) is None


def test_a_token_without_key_id_is_checked_with_the_only_key_that_fits(
    provider: Provider, jwks: Path
) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 600}
    token = jwt.encode(claims, provider.keys["ec"], "ES256")
    assert verifier(jwks).verify(token) == "ada"


def test_tokens_and_jwts_are_taken_side_by_side(provider: Provider, jwks: Path) -> None:
    tokens = TokenSource.from_environment({"OG_SERVER_BEARER_TOKEN": "with.two.dots"})
    who = Identity(tokens, verifier(jwks))
    assert who.identify("Bearer with.two.dots") == "default"
    assert who.identify(f"Bearer {provider.sign('rsa', 'RS256')}") == "ada"
    assert "with.two" not in repr(who)


# -- keys at an address -------------------------------------------------------------------------------


class Site:
    """What is at the address of an issuer, and how often it was asked for."""

    def __init__(self, provider: Provider, *key_ids: str) -> None:
        self.body: bytes | Exception = json.dumps(provider.public(*key_ids)).encode()
        self.asked = 0
        self.clock = HandClock()

    def fetch(self, address: str, timeout: float) -> bytes:
        """Answer one request."""
        assert (address, timeout) == (ADDRESS, 5.0)
        self.asked += 1
        if isinstance(self.body, Exception):
            raise self.body
        return self.body

    def verifier(self) -> JwtVerifier:
        """Return a verifier that asks here."""
        return JwtVerifier(settings(ADDRESS), clock=self.clock, fetch=self.fetch)


def test_keys_are_fetched_once_and_kept(provider: Provider) -> None:
    site = Site(provider, "rsa")
    checks = site.verifier()
    assert [checks.verify(provider.sign("rsa", "RS256")) for _ in range(20)] == ["ada"] * 20
    assert (site.asked, checks.may_wait) == (1, True)


def test_an_unknown_key_is_looked_for_at_most_every_30_seconds(provider: Provider) -> None:
    site = Site(provider, "rsa")
    checks = site.verifier()
    site.body = json.dumps(provider.public("rsa", "other")).encode()
    new = provider.sign("other", "RS256", exp=NOW + 6_000)
    for second in (1, 29.9):
        site.clock.seconds = second
        assert checks.verify(new) is None
    assert site.asked == 1
    site.clock.seconds = 30
    assert checks.verify(new) == "ada"
    for _ in range(50):
        assert checks.verify(provider.sign("other", "RS256", header={"kid": "made up"})) is None
    assert site.asked == 2


def test_keys_that_were_taken_away_are_forgotten_after_ten_minutes(provider: Provider) -> None:
    site = Site(provider, "rsa", "ec")
    checks = site.verifier()
    site.body = json.dumps(provider.public("ec")).encode()
    token = provider.sign("rsa", "RS256", exp=NOW + 6_000)
    site.clock.seconds = 599
    assert checks.verify(token) == "ada"
    site.clock.seconds = 601
    assert checks.verify(token) is None


@pytest.mark.parametrize("failure", [OSError("down"), b"", b"[]", b"{}", b'{"keys": []}', b"[" * 100_000])
def test_the_last_good_keys_stay_when_a_fetch_fails(
    failure: bytes | Exception, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(provider, "rsa")
    checks = site.verifier()
    site.body = failure
    site.clock.seconds = 1_000
    assert checks.verify(provider.sign("rsa", "RS256", exp=NOW + 6_000)) == "ada"
    assert site.asked == 2
    assert "last good ones stay" in caplog.text


def test_a_server_starts_while_its_issuer_is_down_and_takes_tokens_once_it_is_up(provider: Provider) -> None:
    site = Site(provider, "rsa")
    up, site.body = site.body, OSError("down")
    checks = site.verifier()
    assert checks.verify(provider.sign("rsa", "RS256")) is None
    site.body = up
    site.clock.seconds = 30
    assert checks.verify(provider.sign("rsa", "RS256")) == "ada"


def test_threads_that_meet_an_unknown_key_share_one_fetch(provider: Provider) -> None:
    site = Site(provider, "rsa")
    checks = site.verifier()
    site.clock.seconds = 31
    site.body = json.dumps(provider.public("other")).encode()
    token = provider.sign("other", "RS256")
    actors: list[str | None] = []
    threads = [threading.Thread(target=lambda: actors.append(checks.verify(token))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actors == ["ada"] * 8
    assert site.asked == 2


def test_a_file_of_keys_is_read_again_when_it_changes(provider: Provider, tmp_path: Path) -> None:
    file, clock = tmp_path / "jwks.json", HandClock()
    file.write_text(json.dumps(provider.public("rsa")))
    checks = JwtVerifier(settings(file), clock=clock)
    assert not checks.may_wait
    for second, text, known in (
        (2, json.dumps(provider.public("other")), ("other",)),
        (4, "{", ("other",)),
        (6, json.dumps(provider.public("rsa", "other")), ("rsa", "other")),
    ):
        file.write_text(text)
        clock.seconds = second
        actors = {name: checks.verify(provider.sign(name, "RS256")) for name in ("rsa", "other")}
        assert tuple(name for name, actor in actors.items() if actor == "ada") == known


@pytest.mark.parametrize(
    ("changes", "kept"),
    [({}, 1), ({"alg": "RS512"}, 0), ({"use": "enc"}, 0), ({"kid": 7}, 0), ({"n": "AQ"}, 0)],
)
def test_a_key_is_kept_for_what_it_was_made_for_only(
    changes: dict[str, Any], kept: int, provider: Provider
) -> None:
    body = json.dumps({"keys": [provider.jwk("ec"), {**provider.jwk("rsa"), **changes}]}).encode()
    assert len(key_table(body, ("RS256", "ES256"))) == 1 + kept


# -- over HTTP ----------------------------------------------------------------------------------------


class Answers(BaseHTTPRequestHandler):
    """Serves a small body, one that is too long, a redirect and an error."""

    def do_GET(self) -> None:
        """Answer by the path."""
        status = {"/good": 200, "/long": 200, "/moved": 302}.get(self.path, 500)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/good")
        self.end_headers()
        self.wfile.write(b"x" * (LARGEST_JWKS + 1 if self.path == "/long" else 5))

    def log_message(self, format: str, *_: Any) -> None:
        """Say nothing."""


def test_keys_come_over_http_within_bounds_and_from_the_very_address() -> None:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert fetched(f"{address}/good", 10) == b"xxxxx"
        for path in ("long", "moved", "broken"):
            with pytest.raises(OSError, match=r"too long|status 302|status 500"):
                fetched(f"{address}/{path}", 10)
        server.shutdown()
    with pytest.raises(OSError, match="ConnectError"):
        fetched(f"{address}/good", 10)


# -- settings -----------------------------------------------------------------------------------------


def test_settings_come_from_the_environment() -> None:
    told = {
        f"OG_SERVER_JWT_{name}": value for name, value in (("ISSUER", "i"), ("AUDIENCE", "a"), ("JWKS", "k"))
    }
    assert JwtSettings.from_environment({}) is None
    assert JwtSettings.from_environment(told) == JwtSettings("i", "a", "k")
    more = {
        "OMNIGRAPH_SERVER_JWT_ALGORITHMS": "ES256, EdDSA",
        "OMNIGRAPH_SERVER_JWT_ACTOR_CLAIM": "email",
        "OMNIGRAPH_SERVER_JWT_LEEWAY_SECONDS": "0",
    }
    assert JwtSettings.from_environment({**told, **more}) == JwtSettings(
        "i", "a", "k", algorithms=("ES256", "EdDSA"), actor_claim="email", leeway_seconds=0
    )
    for name in told:
        with pytest.raises(InvalidRequest, match="issuer, an audience and keys"):
            JwtSettings.from_environment({key: value for key, value in told.items() if key != name})
    with pytest.raises(InvalidRequest, match="not a number"):
        JwtSettings.from_environment({**told, "OG_SERVER_JWT_LEEWAY_SECONDS": "-1"})


@pytest.mark.parametrize(
    "changes",
    [
        *({"algorithms": (name,)} for name in ("none", "HS256", "HS512", "RS257", "")),
        *({"algorithms": ()}, {"leeway_seconds": -1}, {"leeway_seconds": 301}, {"actor_claim": " "}),
    ],
)
def test_settings_that_are_not_safe_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        settings("k", **changes)
    with pytest.raises(InvalidRequest, match="replaced on the way"):
        settings("http://issuer.example/keys")
    with pytest.raises(InvalidRequest, match="user name") as raised:
        settings("https://ada:secret@issuer.example/keys")
    assert "secret" not in str(raised.value)
    assert settings("http://127.0.0.1:8000/keys").remote


def test_a_file_without_usable_keys_keeps_a_server_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    for text in (None, "", "{}", '{"keys": [{"kty": "oct", "k": "AAAA"}]}'):
        if text is not None:
            file.write_text(text)
        with pytest.raises(InvalidRequest, match="cannot be used"):
            verifier(file)


def test_a_server_without_jwts_imports_neither_pyjwt_nor_cryptography() -> None:
    program = (
        "import sys\n"
        "from omnigraph.surfaces.server.identity import Identity\n"
        "from omnigraph.surfaces.server.tokens import TokenSource\n"
        "Identity(TokenSource.from_environment({'OG_SERVER_BEARER_TOKEN': 't'})).identify('Bearer t')\n"
        "print({'jwt', 'cryptography', 'httpx'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
