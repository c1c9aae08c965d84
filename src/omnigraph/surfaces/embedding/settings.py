"""Settings: which provider of vectors is meant, by argument or by the environment.

    embedding="openai"                      a kind; the environment says the rest
    embedding={"kind": ..., "model": ...}   a kind with settings of its own
    nothing                                 OMNIGRAPH_EMBED_PROVIDER, else whose key is set

A key is looked up when the provider is made, goes to that provider alone, and shows in no repr, log or error.
Where no key is set, nothing is wrong until a vector is wanted: a graph may be opened without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import did_you_mean

OPENAI_COMPATIBLE, OPENAI, GEMINI, LOCAL = "openai-compatible", "openai", "gemini", "local"
KINDS = (OPENAI_COMPATIBLE, OPENAI, GEMINI, LOCAL)
ROUTER_KEY, OPENAI_KEY, GEMINI_KEY = "OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"
OPENAI_BASE = "https://api.openai.com/v1"
BASES = {
    OPENAI_COMPATIBLE: "https://openrouter.ai/api/v1",
    OPENAI: OPENAI_BASE,
    GEMINI: "https://generativelanguage.googleapis.com/v1beta",
}
MODELS = {
    OPENAI_COMPATIBLE: "openai/text-embedding-3-large",
    OPENAI: "text-embedding-3-large",
    GEMINI: "gemini-embedding-2",
}
NAMES = ("kind", "model", "base_url", "api_key", "path", "batch", "concurrency")  # what a choice may set
Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Whom to ask, for what, and with how much patience."""

    kind: str
    model: str
    base_url: str = ""
    path: str = ""  # the folder of a local model
    api_key: str | None = field(default=None, repr=False)
    wants_key: bool = True  # a server of one's own may want none
    key_variables: tuple[str, ...] = ()  # where a key would have been found
    timeout_s: float = 30.0  # of one request
    deadline_s: float = 60.0  # of all attempts together
    attempts: int = 4
    backoff_s: float = 0.2  # before the second attempt; doubles with each further one
    batch: int = 128  # texts of one request
    concurrency: int = 4  # requests at the same time


def variable(name: str, environment: Environment) -> str | None:
    """Return a variable by its short name, or else by its long one; an empty one is not set."""
    return environment.get(f"OG_{name}") or environment.get(f"OMNIGRAPH_{name}") or None


def kind_of_environment(environment: Environment) -> str | None:
    """Return the provider that the environment means: the one it names, else the one whose key is set."""
    named = variable("EMBED_PROVIDER", environment)
    if named is not None:
        return named
    if environment.get(ROUTER_KEY) or variable("EMBED_BASE_URL", environment):
        return OPENAI_COMPATIBLE
    if environment.get(OPENAI_KEY):
        return OPENAI
    return GEMINI if environment.get(GEMINI_KEY) else None


def read_settings(choice: Mapping[str, Any], environment: Environment = os.environ) -> ProviderSettings:
    """Return the settings of a provider; what the choice leaves open, the environment says."""
    kind = _kind(choice)
    for name in choice:
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES) or f"there are {', '.join(NAMES)}"
            raise InvalidRequest(f"embedding: unknown setting {name!r}: {hint}")
    # The environment speaks of one provider: another one that is chosen here is not reached by it.
    here = kind_of_environment(environment) == kind
    model = _text(choice, "model") or (variable("EMBED_MODEL", environment) if here else None)
    base = _text(choice, "base_url") or (variable("EMBED_BASE_URL", environment) if here else None)
    if kind == LOCAL:
        return _local(choice, model, environment)
    variables = _key_variables(kind, base)
    own_server = kind == OPENAI_COMPATIBLE and base is not None
    found = next((_key(key, name) for name in variables if (key := environment.get(name))), None)
    given = _text(choice, "api_key")
    return ProviderSettings(
        kind,
        model or MODELS[kind],
        _base(base or BASES[kind]),
        api_key=found if given is None else _key(given, "api_key"),
        wants_key=not own_server,
        key_variables=variables,
        **_numbers(choice, environment),
    )


def _kind(choice: Mapping[str, Any]) -> str:
    kind = choice.get("kind", OPENAI_COMPATIBLE)
    if kind not in KINDS:
        raise InvalidRequest(
            f"embedding: there is no provider {kind!r}",
            remedy=f"Use {', '.join(KINDS)}, mock or mock-hash; the environment says it by "
            "OMNIGRAPH_EMBED_PROVIDER",
        )
    return str(kind)


def _key_variables(kind: str, base: str | None) -> tuple[str, ...]:
    """Return where the key of a provider is found. A key for one company is never sent to another."""
    if kind == GEMINI:
        return (GEMINI_KEY,)
    if kind == OPENAI:
        return (OPENAI_KEY,)
    return (ROUTER_KEY,) if base is None else (ROUTER_KEY, OPENAI_KEY)


def _key(text: str, name: str) -> str:
    """Return a key; one that no header can carry is refused here, where no error can repeat it."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidRequest(f"{name} is not a key: it has spaces or signs that no key has")
    return key


def _local(choice: Mapping[str, Any], model: str | None, environment: Environment) -> ProviderSettings:
    path = _text(choice, "path") or model
    if path is None:
        raise InvalidRequest(
            "embedding 'local' needs the folder of a model",
            remedy="Give {'kind': 'local', 'path': '/folder/of/the/model'}, or set OMNIGRAPH_EMBED_MODEL to "
            "it; nothing is downloaded",
        )
    name = model if model != path and model is not None else os.path.basename(path.rstrip("/"))
    return ProviderSettings(LOCAL, name or path, path=path, wants_key=False, **_numbers(choice, environment))


def _base(url: str) -> str:
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is no number, or too large
        usable = False
    if not usable or "@" in parts.netloc or not url.isprintable() or " " in url:
        raise InvalidRequest(
            "embedding: the base address of the provider is not usable",  # it may hold a secret
            remedy="Give OMNIGRAPH_EMBED_BASE_URL (or base_url) as http(s)://host/path, "
            "without a user or password",
        )
    if parts.query or parts.fragment:
        raise InvalidRequest(
            "embedding: the base address of the provider has a query or fragment",
            remedy="Give OMNIGRAPH_EMBED_BASE_URL (or base_url) as http(s)://host/path; "
            "keys go in their own variable",
        )
    return url.rstrip("/")


def _numbers(choice: Mapping[str, Any], environment: Environment) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "timeout_s": _number("EMBED_TIMEOUT_MS", environment, 30_000) / 1000,
        "deadline_s": _number("EMBED_DEADLINE_MS", environment, 60_000) / 1000,
        "attempts": _number("EMBED_RETRY_ATTEMPTS", environment, 4),
        "backoff_s": _number("EMBED_RETRY_BACKOFF_MS", environment, 200) / 1000,
    }
    for name, most in (("batch", 128), ("concurrency", 64)):
        value = choice.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidRequest(f"embedding: {name} must be a whole number from 1 to {most}, not {value!r}")
        numbers[name] = value
    return numbers


def _number(name: str, environment: Environment, default: int) -> int:
    text = variable(name, environment)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 86_400_000:
        raise InvalidRequest(f"OMNIGRAPH_{name} must be a whole number above zero, not {text!r}")
    return int(text)


def _text(choice: Mapping[str, Any], name: str) -> str | None:
    value = choice.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise InvalidRequest(f"embedding: {name} must be a text that is not empty")  # never show it
