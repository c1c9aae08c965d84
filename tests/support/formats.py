"""Graphs of older storage formats, and this code as the release that serves them.

Room    test support. Spawned children import this module by name; no pytest here.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance

from omnigraph.base.frozen import FrozenMap
from omnigraph.storage.location import Location
from omnigraph.storage.manifest import formats
from omnigraph.storage.manifest.chain import MANIFEST, chain_path
from omnigraph.storage.manifest.refs import REFS, decode_refs
from tests.support.places import Place

ARCHIVE = Path(__file__).parent.parent / "formats" / "graph-2026-11.tar.gz"  # of format 1
OLDER = 1


def unpack(archive: Path, folder: Path) -> Path:
    """Put the graph of an archive somewhere, and return where."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "graph.og"


def answers(archive: Path) -> list[dict[str, Any]]:
    """Return the questions that the graph of an archive was asked when it was written, with its answers."""
    asked: list[dict[str, Any]] = json.loads(
        archive.with_name(archive.name.replace(".tar.gz", ".json")).read_text("utf-8")
    )
    return asked


@contextmanager
def older_release() -> Iterator[None]:
    """Let this process be of the release before, which serves format 1 and knows no other."""
    served, steps = formats.FORMAT, formats.STEPS
    formats.FORMAT, formats.STEPS = OLDER, FrozenMap()
    try:
        yield
    finally:
        formats.FORMAT, formats.STEPS = served, steps


def stamps(place: Place) -> dict[str, int]:
    """Return the formats of the newest versions: of the registry, of each branch, of main; by path."""
    named = decode_refs(1, _content(place, REFS)).branches
    paths = [REFS, *(chain_path(ref.incarnation) for ref in named), MANIFEST]
    return {path: int(_content(place, path)[formats.FORMAT_KEY]) for path in paths}


def _content(place: Place, path: str) -> dict[str, str]:
    options: Any = place.kwargs
    metadata = lance.dataset(
        Location.parse(place.address, place.options).join(path), **options
    ).schema.metadata
    return {key.decode(): value.decode() for key, value in metadata.items()}
