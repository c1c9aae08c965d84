"""Settings: the global flags, and the files and variables that give them defaults.

Read once per call, passed to every command as one value.

Order   flag, then environment, then operator config, then project file (`omnigraph.yaml`, in the working
        directory or the nearest folder above it). Paths in the project file count from its own folder.
Rule    a key that no version knows is refused, wherever it stands: a misspelt one would say nothing, and the
        call would run with a default, on another graph perhaps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import SourceError, did_you_mean
from omnigraph.surfaces.environment import variable

if TYPE_CHECKING:  # most calls have no file to read, and start without YAML
    from omnigraph.language.yaml_document import YamlMapping

PROJECT_FILE = "omnigraph.yaml"
OPERATOR_FILE = "config.yaml"
SIGNS_OF_ADDRESS = frozenset({"/", ".", ":", os.sep})
WAYS = (
    "a path, file://..., s3://bucket/prefix, http(s)://HOST/graphs/ID, "
    "or a name from omnigraph.yaml or the operator config"
)
READS, WRITES = ("query", "read"), ("mutate", "change")  # the commands of an alias, newest spelling first


# -- what the files may say --------------------------------------------------------------------------


def _text(mapping: YamlMapping, key: str) -> Any:
    return mapping.text(key)


def _needed_text(mapping: YamlMapping, key: str) -> Any:
    return mapping.text(key, needed=True)


def _command(mapping: YamlMapping, key: str) -> Any:
    return mapping.text(key, one_of=(*READS, *WRITES))


def _texts(mapping: YamlMapping, key: str) -> Any:
    return mapping.texts(key)


def _any(mapping: YamlMapping, key: str) -> Any:
    return mapping.value(key)


def _params(mapping: YamlMapping, key: str) -> Any:
    params = mapping.mapping(key)
    return {name: params.value(name) for name in params.names()}


# By key, how its value is read; `*` stands for names of the writer's own. Some keys are for a server.
Shape = Mapping[str, Any]  # a function of these, or a Shape
FILE: Shape = {"file": _text}
SHOWING: Shape = {"table_max_column_width": _any, "table_cell_layout": _text}
CALLING: Shape = {"args": _texts, "params": _params, "format": _text}
PROJECT_SHAPE: Shape = {
    "project": {"name": _text},
    "graphs": {"*": {"uri": _text, "bearer_token_env": _text, "policy": FILE, "queries": _any}},
    "server": {
        "graph": _text,
        "bind": _text,
        "policy": FILE,
        "optimize": _text,
        "limits": {"*": _any},
    },
    "policy": FILE,
    "cli": {"graph": _text, "branch": _text, "actor": _text, "output_format": _text, **SHOWING},
    "query": {"roots": _texts},
    "auth": {"env_file": _text},
    "aliases": {"*": {"command": _command, "query": _needed_text, "name": _text, **CALLING}},
}
OPERATOR_SHAPE: Shape = {
    "operator": {"actor": _text},
    "servers": {"*": {"url": _text}},
    "clusters": {"*": {"root": _text}},
    "defaults": {"output": _text, "server": _text, "default_graph": _text, "store": _text, **SHOWING},
    "profiles": {"*": {"server": _text, "cluster": _text, "store": _text, "default_graph": _text}},
    "aliases": {"*": {"server": _text, "graph": _text, "query": _text, **CALLING}},
}


class ConfigError(SourceError):
    """A project file or the operator config was refused; `diagnostics` holds every reason. Mend the file."""

    code = "config_invalid"


@dataclass(frozen=True)
class Config:
    """What the configuration files and the environment say; an absent file says nothing."""

    operator: Mapping[str, Any] = field(default_factory=dict)
    project: Mapping[str, Any] = field(default_factory=dict)
    project_folder: Path = Path()
    environment_graph: str | None = None

    def find(self, file: str, *path: str) -> Any:
        """Return a nested value of one file ("operator" or "project"), or None."""
        value: Any = self.operator if file == "operator" else self.project
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def graph_uri(self, name: str) -> str | None:
        """Return the address of a graph that the project file has a name for."""
        uri: str | None = self.find("project", "graphs", name, "uri")
        return None if uri is None else self.project_address(uri)

    def project_address(self, address: str) -> str:
        """Return an address of the project file; a path counts from its folder."""
        return address if "://" in address else str(self.project_folder / address)

    def served(self, server: Any, graph: Any) -> str:
        """Return the address of a graph of a server, or of the server's only graph."""
        from omnigraph.surfaces.cli.support.served import server_url

        url = server_url(self, str(server))
        return url if graph is None else f"{url}/graphs/{quote(str(graph), safe='')}"

    def stored_queries(self, address: str) -> Path | None:
        """Return the folder of stored queries that the project file names for a graph on storage."""
        for name, graph in (self.find("project", "graphs") or {}).items():
            if _same_place(self.graph_uri(name), address) and isinstance(graph.get("queries"), str):
                return Path(self.project_folder, graph["queries"])
        return None

    def query_roots(self) -> Iterator[Path]:
        """Yield the folders in which the project keeps its queries."""
        for root in self.find("project", "query", "roots") or ():
            yield self.project_folder / root


@dataclass(frozen=True)
class Settings:
    """The global flags of one call."""

    actor: str | None = None
    actor_given: bool = False  # by a flag, not by a file
    json: bool = False
    quiet: bool = False
    yes: bool = False
    dry_run: bool = False
    branch: str = "main"
    branch_given: bool = False  # by a flag, not by a file
    trace: bool = False
    profile: str | None = None
    timeout: float | None = None  # seconds
    server: str | None = None  # a name or URL, and the graph there: another way to name an address
    graph: str | None = None
    config: Config = field(default_factory=Config)

    def address(self, *addresses: str | None) -> str:
        """Return the graph to work on: exactly one explicit address, or the configured default."""
        explicit = [address for address in addresses if address]
        if self.server is not None and self.config.served(self.server, self.graph) not in explicit:
            explicit.append(self.config.served(self.server, self.graph))
        if len(explicit) > 1:
            raise InvalidRequest(
                f"two addresses given: {explicit[0]!r} and {explicit[1]!r}", remedy="Give one"
            )
        address = self._named(explicit[0]) if explicit else self._default()
        if address is None:
            raise InvalidRequest(
                "no graph was named", remedy=f"Give an address, or set OMNIGRAPH_GRAPH to one: {WAYS}"
            )
        return address

    def actor_for(self, address: str) -> str | None:
        """Return who writes; on a server the token says that, and the configured actor is not asked."""
        if not is_served(address):
            return self.actor
        if self.actor_given:
            raise InvalidRequest(
                "--as is for graphs that this process opens: a server takes the actor from the token",
                remedy="Leave it out, or log in with the token of that actor",
            )
        return None

    def _default(self) -> str | None:
        """Return the graph of a call that names none: the profile, the environment, then the files."""
        config = self.config
        if self.profile is not None:
            return self.of_profile(self.profile)
        store, server = (config.find("operator", "defaults", key) for key in ("store", "server"))
        if config.environment_graph is not None:
            return self._named(config.environment_graph)
        if store is not None and server is not None:
            raise InvalidRequest(
                "the operator config has both defaults.store and defaults.server", remedy="Keep one"
            )
        if server is not None:
            return config.served(server, config.find("operator", "defaults", "default_graph"))
        if store is not None:
            return self._named(store)
        name = config.find("project", "cli", "graph")
        return None if name is None else config.graph_uri(name) or config.project_address(name)

    def of_profile(self, name: str) -> str:
        """Return the graph of a profile."""
        profile = self.config.find("operator", "profiles", name) or {}
        bound = {key: profile[key] for key in ("store", "server") if profile.get(key) is not None}
        if len(bound) != 1:
            profiles = self.config.find("operator", "profiles") or {}
            raise InvalidRequest(
                f"the operator config has no profile {name!r} with a store or a server",
                remedy=did_you_mean(name, profiles) or f"{OPERATOR_FILE} lists the profiles, each with one",
            )
        if "server" in bound:
            return self.config.served(bound["server"], profile.get("default_graph"))
        return self._named(bound["store"])

    def is_address(self, word: str) -> bool:
        """Say whether a word names a graph; where queries are run, any other is the name of one."""
        if any(sign in word for sign in SIGNS_OF_ADDRESS) or Path(word).exists():
            return True
        return self.config.graph_uri(word) is not None or self._is_server(word)

    def query_files(self, file: Path) -> Iterator[Path]:
        """Yield where a query file may be: as given, then in the roots of the project file."""
        yield file
        for root in self.config.query_roots():
            yield root / file

    def alias_file(self, file: str) -> Path:
        """Return the query file of an alias: in the folder of the project file, else in its roots."""
        folders = (self.config.project_folder, *self.config.query_roots())
        paths = [folder / file for folder in folders]
        return next((path for path in paths if path.is_file()), paths[0])

    def preference(self, operator_key: str, project_key: str) -> Any:
        """Return how results are to be shown: as the operator config says, else as the project file does."""
        value = self.config.find("operator", "defaults", operator_key)
        return self.config.find("project", "cli", project_key) if value is None else value

    def _named(self, address: str) -> str:
        """Look a name up: a server, perhaps with a graph, or a graph of the project file; else an address."""
        if Path(address).exists():
            return address
        if self._is_server(address):
            server, _, graph = address.partition("/")
            return self.config.served(server, graph or None)
        uri = self.config.graph_uri(address)
        return address if uri is None else uri

    def _is_server(self, word: str) -> bool:
        return word.partition("/")[0] in (self.config.find("operator", "servers") or {})


def _same_place(one: str | None, other: str) -> bool:
    """Say whether two addresses are one place; a path may be relative."""
    if one is None or "://" in one or "://" in other:
        return one == other
    return os.path.abspath(one) == os.path.abspath(other)


def is_remote(address: str) -> bool:
    """Say whether an address is somewhere else than on this machine's disks."""
    return "://" in address and not address.startswith("file://")


def is_served(address: str) -> bool:
    """Say whether an address is that of a server."""
    return address.lower().startswith(("http://", "https://"))


# -- files and variables -----------------------------------------------------------------------------


def read_config() -> Config:
    """Read the operator config, and the project file of the working directory or the nearest one above it."""
    operator = operator_folder()
    project = find_project(Path.cwd())
    # By its relative path, messages name the file as a person standing here would.
    file = Path(os.path.relpath(project / PROJECT_FILE))
    return Config(
        _read_file(operator / OPERATOR_FILE, "the operator config", OPERATOR_SHAPE),
        _read_file(file, "the project file", PROJECT_SHAPE),
        project,
        variable("GRAPH"),
    )


def operator_folder() -> Path:
    """Return where one person's configuration and tokens are."""
    home = variable("HOME")
    return Path(home) if home else Path.home() / ".omnigraph"


def read_project(file: Path) -> Config:
    """Read one project file, which must be there, and nothing else."""
    if not file.is_file():
        raise InvalidRequest(
            f"there is no project file {str(file)!r}", remedy="Check the path", path=str(file)
        )
    values = _read_file(file, "the project file", PROJECT_SHAPE)
    return Config({}, values, file.parent)


def find_project(folder: Path) -> Path:
    """Return the nearest folder with a project file, going up; without any, the folder itself."""
    places = (folder, *folder.parents)
    # Not Path.is_file, which raises where a folder above is closed to us.
    return next((place for place in places if os.path.isfile(place / PROJECT_FILE)), folder)


def _read_file(path: Path, what: str, shape: Shape) -> dict[str, Any]:
    try:
        if not path.is_file():
            return {}
        from omnigraph.language.yaml_document import YamlDocument, YamlRules, read_text

        rules = YamlRules.coded("CF", ConfigError)
        document = YamlDocument(read_text(path, rules), rules, may_be_empty=True)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", remedy="Check the path") from error
    values = _values(document.root(what), shape)
    document.refuse()
    return values


def _values(mapping: YamlMapping, shape: Shape) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in mapping.names() if "*" in shape else shape:
        read = shape["*" if "*" in shape else key]
        values[key] = _values(mapping.mapping(key), read) if isinstance(read, Mapping) else read(mapping, key)
    mapping.end()
    return values
