"""Served graphs: which server a name means, and which token goes to which server.

A token is a secret of one person. One that has a name goes only to the server of that name in the operator
config: to addresses that begin with its URL, segment by segment. One without a name goes to any server that
the person names; to one that only the project file names, it goes if that runs on this machine or its host
is in the operator config, so that a checkout cannot divert a token.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.surfaces.cli.settings import Config, Settings, operator_folder
from omnigraph.surfaces.environment import variable

CREDENTIALS = "credentials"
PRIVATE = 0o600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SECTION = re.compile(r"\[(?P<name>[^\]]+)\]")
_TOKEN = re.compile(r"token\s*=\s*(?P<token>\S+)")


def token_for(settings: Settings, address: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token that goes with requests to an address, if there is one."""
    name = named_server(settings.config, address)
    if name is not None:
        own = variable(f"TOKEN_{name.replace('-', '_').upper()}", environment)
        if own or (own := read_credentials().get(name)):
            return own
    if not _may_have_tokens(settings.config, address):
        return None
    of_project = _project_variable(settings.config, address)
    if of_project is not None and environment.get(of_project):
        return environment[of_project]
    return variable("BEARER_TOKEN", environment)


def named_server(config: Config, address: str) -> str | None:
    """Return the server of the operator config that an address belongs to: the one with the longest URL."""
    servers = config.find("operator", "servers") or {}
    fitting = {
        name: str(server["url"])
        for name, server in servers.items()
        if server.get("url") and is_below(address, str(server["url"]))
    }
    return max(fitting, key=lambda name: len(fitting[name])) if fitting else None


def is_below(address: str, url: str) -> bool:
    """Say whether an address is a URL or goes on from it with whole segments, on the same host and port.

    >>> (
    ...     is_below("https://db/team/graphs/kb", "https://db/team"),
    ...     is_below("https://db/teams", "https://db/team"),
    ... )
    (True, False)
    """
    there, base = urlsplit(address), urlsplit(url)
    if _origin(address) != _origin(url) or there.username is not None or "\\" in address:
        return False
    segments, prefix = there.path.rstrip("/").split("/"), base.path.rstrip("/").split("/")
    return segments[: len(prefix)] == prefix and not {".", ".."}.intersection(segments)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme.lower(), parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme.lower())


def _may_have_tokens(config: Config, address: str) -> bool:
    """Say whether a token without a name may go to an address."""
    if not any(is_below(address, uri) for uri in _project_addresses(config)):
        return True
    host = urlsplit(address).hostname
    servers = config.find("operator", "servers") or {}
    hosts = {urlsplit(str(server.get("url"))).hostname for server in servers.values()}
    return _is_this_machine(host) or host in hosts


def _project_addresses(config: Config) -> list[str]:
    graphs = config.find("project", "graphs") or {}
    named = [graph.get("uri") for graph in graphs.values()] + [config.find("project", "cli", "graph")]
    return [str(uri) for uri in named if uri and str(uri).startswith(("http://", "https://"))]


def _project_variable(config: Config, address: str) -> str | None:
    graphs = config.find("project", "graphs") or {}
    for graph in graphs.values():
        if graph.get("bearer_token_env") and graph.get("uri") and is_below(address, str(graph["uri"])):
            return str(graph["bearer_token_env"])
    return None


def _is_this_machine(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


# -- servers by name ---------------------------------------------------------------------------------


def server_url(config: Config, name: str) -> str:
    """Return the URL of a server that the operator config names, or a URL as it is."""
    if "://" in name:
        return name.rstrip("/")
    servers = config.find("operator", "servers") or {}
    url = (servers.get(name) or {}).get("url")
    if url is None:
        raise InvalidRequest(
            f"the operator config has no server {name!r}",
            remedy=did_you_mean(name, servers) or "`servers.NAME.url` in it names one",
        )
    return str(url).rstrip("/")


# -- credentials -------------------------------------------------------------------------------------


def credentials_file() -> Path:
    """Return where tokens are kept, by the names of servers."""
    return operator_folder() / CREDENTIALS


def read_credentials() -> dict[str, str]:
    """Return the tokens by name; a file that others may read is refused."""
    file = credentials_file()
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {file}: {error}", remedy="Check the path") from None
    if os.name == "posix" and mode & 0o077:
        raise InvalidRequest(
            f"{file} can be read by others (mode {mode:04o})", remedy=f"Run: chmod 600 {file}", path=str(file)
        )
    tokens: dict[str, str] = {}
    name: str | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if section := _SECTION.fullmatch(line):
            name = section["name"].strip()
        elif name is not None and (entry := _TOKEN.fullmatch(line)):
            tokens[name] = entry["token"]
        else:  # the line is not shown: it may hold a token
            raise InvalidRequest(
                f"{file}:{number}: neither [NAME] nor token = ...", remedy="Mend the line", path=str(file)
            )
    return tokens


def write_credentials(tokens: Mapping[str, str]) -> Path:
    """Write the tokens for nobody else to read; the file is whole before it has its name."""
    from omnigraph.base.ids import new_id

    file = credentials_file()
    text = "".join(f"[{name}]\ntoken = {token}\n\n" for name, token in sorted(tokens.items()))
    draft = file.with_name(f".{file.name}.{new_id()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as sink:
                sink.write(text)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"cannot write {file}: {error.strerror}", remedy="Check the folder") from None
    return file
