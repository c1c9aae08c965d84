"""Environment: what this machine lacks to run the engine, and to reach a graph at an address.

`needed` means that nothing works without it; what is merely useful is `absent` or `low`. Of
credentials only the names of their sources are told, never a value. The store is asked for real: a scratch
object is created twice, and by several at once, and taken away again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from re import match
from typing import Any, Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError
from omnigraph.base.ids import Clock, SystemClock, new_id
from omnigraph.engine.doctor.lineage import remedy_of, told
from omnigraph.execution.budget import MEMORY_BYTES
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore

State = Literal["ok", "absent", "low", "needed"]
LEAST_DISK = 1 << 30
CLOCKS_DIFFER_S = 60  # what a cleanup with the shortest grace period can bear
SET_CLOCK = (
    "Set the clock right before a cleanup runs here: it takes files for older or younger than they are"
)
USEFUL = {
    "pyspark": "pip install 'omnigraph[spark]' for bulk work on Spark",
    "pandas": "pip install 'pandas<3' for to_pandas, and for Spark",
    "polars": "pip install polars to load and return its frames",
}
PACKAGES = ("pylance", "datafusion", "pyarrow", "numpy", "pyyaml", "typer", "rich", "obstore", "google-re2")
SOURCES = {  # of credentials, by the scheme of an address
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_CLIENT_ID"),
    "abfss": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_CLIENT_ID"),
}


@dataclass(frozen=True, slots=True)
class EnvironmentItem:
    """One thing that this machine has, lacks, or must have."""

    name: str
    state: State
    what: str
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.state:<6} {self.name}: {self.what}{f'. {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True)
class EnvironmentReport:
    """What this machine has and lacks."""

    items: tuple[EnvironmentItem, ...]

    @property
    def ok(self) -> bool:
        """Say whether nothing that is needed is missing."""
        return all(item.state != "needed" for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"ok": self.ok, "environment": [asdict(item) for item in self.items]}


def inspect_environment(
    address: str | None, java: Callable[[], int] | None = None, environment: Mapping[str, str] = os.environ
) -> EnvironmentReport:
    """Look at this machine, and with an address at the store there; `java` tells the Java of Spark."""
    items = [*_packages(), *_java(java), _memory(), _disk("temporary files", tempfile.gettempdir())]
    if address is not None:
        items += _store(Location.parse(address), environment)
    return EnvironmentReport(tuple(items))


# -- this machine ------------------------------------------------------------------------------------


def _packages() -> Iterator[EnvironmentItem]:
    yield EnvironmentItem("python", "ok", ".".join(map(str, sys.version_info[:3])))
    for name in _required():
        version = _version(name)
        if version is None:
            yield EnvironmentItem(name, "needed", "is not installed", f"pip install {name}")
        else:
            yield EnvironmentItem(name, "ok", version)
    for name, remedy in USEFUL.items():
        version = _version(name)
        if version is None:
            yield EnvironmentItem(name, "absent", "is not installed", remedy)
        else:
            yield EnvironmentItem(name, "ok", version)


def _required() -> list[str]:
    """Return what the installed package asks for; running from sources, what is imported."""
    try:
        declared = requires("omnigraph") or []
    except PackageNotFoundError:
        return list(PACKAGES)
    names = (match(r"[A-Za-z0-9._-]+", text) for text in declared if "extra ==" not in text)
    return sorted(match[0] for match in names if match is not None)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java(java: Callable[[], int] | None) -> Iterator[EnvironmentItem]:
    if java is None:
        return
    try:
        yield EnvironmentItem("java", "ok", f"version {java()}")
    except (GraphError, ImportError, OSError) as error:
        yield EnvironmentItem(
            "java", "absent", told(error), remedy_of(error, "Install Java 17 or newer for Spark")
        )


def _memory() -> EnvironmentItem:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return EnvironmentItem("memory", "absent", "cannot be told on this system")
    room = f"{_size(free)} free; queries may take {_size(MEMORY_BYTES)}"
    if free >= MEMORY_BYTES:
        return EnvironmentItem("memory", "ok", room)
    return EnvironmentItem("memory", "low", room, "Open graphs with a smaller memory_bytes")


def _disk(name: str, folder: str) -> EnvironmentItem:
    free = shutil.disk_usage(folder).free
    room = f"{_size(free)} free at {folder}"
    if free >= LEAST_DISK:
        return EnvironmentItem(name, "ok", room)
    return EnvironmentItem(name, "low", room, "Free some: loads and large checks spill to disk")


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"


# -- the store ---------------------------------------------------------------------------------------


def _store(location: Location, environment: Mapping[str, str]) -> Iterator[EnvironmentItem]:
    if location.is_local:
        location = _existing(location)
        yield _disk("disk", location.uri)
    else:
        yield _credentials(location, environment)
    try:
        with GraphStore(location, verify="off") as store:
            store.probe_conditional_writes()
    except GraphError as error:
        yield EnvironmentItem(
            "conditional writes", "needed", told(error), remedy_of(error, "Check the store")
        )
        return
    yield EnvironmentItem("conditional writes", "ok", f"tried at {location.uri}")
    if not location.is_local:  # a local disk has this machine's time
        yield clock_item(location, SystemClock())


def clock_item(location: Location, clock: Clock) -> EnvironmentItem:
    """Compare this machine's clock with the store's, by the time that a scratch object gets."""
    folder = f"__probe-{new_id()}"
    key, objects = f"{folder}/clock", location.objects
    try:
        before_us = clock.now_us()
        objects.create(key, b"")
        stored = [entry.modified_us for entry in objects.entries(folder)]
    except GraphError as error:
        return EnvironmentItem("clock", "absent", told(error), remedy_of(error, "Check the store"))
    finally:
        with suppress(GraphError):
            objects.delete(key)
    apart_s = round((before_us - stored[0]) / 1e6) if stored else 0
    if abs(apart_s) <= CLOCKS_DIFFER_S:
        return EnvironmentItem("clock", "ok", "agrees with the store's")
    ahead = "ahead of" if apart_s > 0 else "behind"
    return EnvironmentItem("clock", "low", f"is {abs(apart_s)} s {ahead} the store's", SET_CLOCK)


def _existing(location: Location) -> Location:
    """Return the nearest folder that is there: looking must not make one."""
    folder = Path(location.uri)
    while not folder.is_dir():
        folder = folder.parent
    return Location(str(folder))


def _credentials(location: Location, environment: Mapping[str, str]) -> EnvironmentItem:
    """Tell which sources of credentials there are; whether they do, the store says."""
    scheme = location.uri.partition("://")[0]
    sources = [name for name in SOURCES.get(scheme, ()) if environment.get(name)]
    if sources:
        return EnvironmentItem("credentials", "ok", f"from {', '.join(sources)}")
    remedy = f"Set {' or '.join(SOURCES.get(scheme, ())[:2])}, unless the machine itself is trusted"
    return EnvironmentItem("credentials", "absent", "the environment names none", remedy)
