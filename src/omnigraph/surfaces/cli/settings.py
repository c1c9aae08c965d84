"""Settings: the global flags, and the files that give them defaults.

Room    surfaces.cli. Read once per call, passed to every command as one value.
Order   flag, then operator config, then project file (`omnigraph.yaml` in the working directory).
Rule    a key that no version knows is refused, wherever it stands: a misspelt one would say nothing, and the
        call would run with a default, on another graph perhaps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from omnigraph.base.errors import InvalidRequest
from omnigraph.language.suggest import did_you_mean

PROJECT_FILE = "omnigraph.yaml"
SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where there is one: hundreds of aliases are usual
SIGNS_OF_ADDRESS = frozenset({"/", ".", ":", os.sep})
WAYS = "a path, file://..., s3://bucket/prefix, or a name from omnigraph.yaml or the operator config"

# The keys that the files may have; `*` stands for names of the reader's own. Some are for a server.
Keys = Mapping[str, Any]
FILE: Keys = {"file": None}
SHOWING: Keys = {"table_max_column_width": None, "table_cell_layout": None}
PROJECT_KEYS: Keys = {
    "project": {"name": None},
    "graphs": {"*": {"uri": None, "bearer_token_env": None, "policy": FILE, "queries": None}},
    "server": {"graph": None, "bind": None, "policy": FILE},
    "policy": FILE,
    "cli": {"graph": None, "branch": None, "actor": None, "output_format": None, **SHOWING},
    "query": {"roots": None},
    "auth": {"env_file": None},
    "aliases": {"*": dict.fromkeys(("command", "query", "name", "args", "params", "format"))},
}
OPERATOR_KEYS: Keys = {
    "operator": {"actor": None},
    "servers": {"*": {"url": None}},
    "clusters": {"*": {"root": None}},
    "defaults": {"output": None, "server": None, "default_graph": None, "store": None, **SHOWING},
    "profiles": {"*": dict.fromkeys(("server", "cluster", "store", "default_graph"))},
    "aliases": {"*": dict.fromkeys(("server", "graph", "query", "args", "params", "format"))},
}


@dataclass(frozen=True)
class Config:
    """What the configuration files say; an absent file says nothing."""

    operator: dict[str, Any] = field(default_factory=dict)
    project: dict[str, Any] = field(default_factory=dict)
    project_folder: Path = Path()

    def find(self, file: str, *path: str) -> Any:
        """Return a nested value of one file ("operator" or "project"), or None."""
        found: Any = self.operator if file == "operator" else self.project
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found


@dataclass(frozen=True)
class Settings:
    """The global flags of one call."""

    actor: str | None = None
    json: bool = False
    quiet: bool = False
    yes: bool = False
    dry_run: bool = False
    branch: str = "main"
    branch_given: bool = False  # by a flag, not by a file
    trace: bool = False
    profile: str | None = None
    config: Config = field(default_factory=Config)

    def address(self, *given: str | None) -> str:
        """Return the graph to work on: exactly one explicit address, or the configured default."""
        explicit = [one for one in given if one]
        if len(explicit) > 1:
            raise InvalidRequest(
                f"two addresses given: {explicit[0]!r} and {explicit[1]!r}", remedy="Give one"
            )
        found = explicit[0] if explicit else self._default()
        if found is None:
            raise InvalidRequest("no graph was named", remedy=f"Give an address: {WAYS}")
        return self._named(found)

    def _default(self) -> str | None:
        if self.profile is not None:
            found = self.config.find("operator", "profiles", self.profile, "store")
            if found is None:
                raise InvalidRequest(f"the operator config has no profile {self.profile!r} with a store")
            return str(found)
        default = self.config.find("operator", "defaults", "store") or self.config.find(
            "project", "cli", "graph"
        )
        return None if default is None else str(default)

    def is_address(self, word: str) -> bool:
        """Say whether a word names a graph; where queries are run, any other is the name of one."""
        if any(sign in word for sign in SIGNS_OF_ADDRESS) or Path(word).exists():
            return True
        return self.config.find("project", "graphs", word, "uri") is not None

    def query_files(self, file: Path) -> Iterator[Path]:
        """Yield where a query file may be: as given, then in the roots of the project file."""
        yield file
        roots = self.config.find("project", "query", "roots")
        for root in roots if isinstance(roots, list) else ():
            yield self.config.project_folder / str(root) / file

    def preference(self, operator_key: str, project_key: str) -> Any:
        """Return how results are to be shown: as the operator config says, else as the project file does."""
        found = self.config.find("operator", "defaults", operator_key)
        return self.config.find("project", "cli", project_key) if found is None else found

    def _named(self, address: str) -> str:
        """Look a bare name up in the project file; anything else is an address as it stands."""
        uri = self.config.find("project", "graphs", address, "uri")
        if uri is None or Path(address).exists():
            return address
        return uri if "://" in uri else str(self.config.project_folder / uri)


def is_remote(address: str) -> bool:
    """Say whether an address is somewhere else than on this machine's disks."""
    return "://" in address and not address.startswith("file://")


def read_config(environment: dict[str, str] | None = None, folder: Path | None = None) -> Config:
    """Read the operator config and the project file."""
    env = os.environ if environment is None else environment
    here = folder or Path.cwd()
    home = env.get("OG_HOME") or env.get("OMNIGRAPH_HOME")
    operator = Path(home) if home else Path.home() / ".omnigraph"
    return Config(
        _yaml(operator / "config.yaml", OPERATOR_KEYS), _yaml(here / PROJECT_FILE, PROJECT_KEYS), here
    )


def _yaml(path: Path, known: Keys) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=SAFE)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"cannot read {path}: {error}", remedy="Mend or remove the file") from error
    if found is None:
        return {}
    _check_keys(found, known, path, ())
    assert isinstance(found, dict)
    return found


def _check_keys(found: object, known: Keys, file: Path, at: tuple[str, ...]) -> None:
    where = f"{file}: {'.'.join(at)}" if at else str(file)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{where} is not a mapping", remedy="Mend or remove the file")
    for key, value in found.items():
        place = (*at, str(key))
        if "*" not in known and key not in known:
            hint = did_you_mean(str(key), known) or f"the keys there are {', '.join(known)}"
            raise InvalidRequest(f"{file} has no key {'.'.join(place)!r}", remedy=hint, key=str(key))
        inside = known.get("*") or known.get(key)
        if inside is not None and value is not None:
            _check_keys(value, inside, file, place)
