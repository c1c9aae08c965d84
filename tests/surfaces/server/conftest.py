"""A graph of people behind a real server, one for each file of tests; keys of an identity provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import omnigraph as og
from tests.support.people import SCHEMA, company, knows, person, works
from tests.support.served import Served, serving
from tests.surfaces.server.clocks import STARTED_US

ISSUER, AUDIENCE = "https://issuer.example", "omnigraph"
NOW = STARTED_US // 1_000_000


@dataclass(frozen=True)
class Provider:
    """Private keys by id, and what an identity provider does with them."""

    keys: Mapping[str, Any]

    def public(self, *key_ids: str, **changes: Any) -> dict[str, Any]:
        """Return the JSON Web Key Set of some keys, or of all."""
        return {"keys": [{**self.jwk(key_id), **changes} for key_id in key_ids or self.keys]}

    def jwk(self, key_id: str) -> dict[str, Any]:
        """Return a public key."""
        key = self.keys[key_id].public_key()
        algorithm = {rsa.RSAPublicKey: "RS256", ec.EllipticCurvePublicKey: "ES256"}
        name = next((name for kind, name in algorithm.items() if isinstance(key, kind)), "EdDSA")
        written = jwt.get_algorithm_by_name(name).to_jwk(key)
        return {**json.loads(written), "kid": key_id}

    def pem(self, key_id: str) -> bytes:
        """Return a public key as a file has it."""
        public: bytes = (
            self.keys[key_id].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        return public

    def sign(self, key_id: str, algorithm: str, *, header: Any = None, **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 600, "iat": NOW, **claims}
        payload = {name: value for name, value in usual.items() if value is not None}
        return jwt.encode(payload, self.keys[key_id], algorithm, {"kid": key_id, **(header or {})})


@pytest.fixture(scope="session")
def provider() -> Provider:
    """An identity provider with keys of each kind, one of them too weak."""
    return Provider(
        {
            "rsa": rsa.generate_private_key(65537, 2048),
            "other": rsa.generate_private_key(65537, 2048),
            "weak": rsa.generate_private_key(65537, 1024),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "ec384": ec.generate_private_key(ec.SECP384R1()),
            "ed": ed25519.Ed25519PrivateKey.generate(),
        }
    )


def make_graph(folder: Path) -> Path:
    """Make a graph with three people and a company."""
    place = folder / "kb.og"
    rows = [person("Ada", age=36), person("Bob", age=41), person("Eve"), company("Acme")]
    with og.init(place, SCHEMA, durability="os") as graph:
        graph.load([*rows, knows("Ada", "Bob", since=1999), works("Ada", "Acme")], mode="append")
    return place


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(make_graph(tmp_path_factory.mktemp("served"))) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client
