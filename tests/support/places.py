"""Places: where a test may make a graph, on local disk or on the S3 API, and copies of what is there.

Room    test support. The fixtures `place`, `local_place`, `s3_place` and `counted_place` give empty ones.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tests.support.s3 import S3Server


@dataclass(frozen=True)
class Place:
    """An empty address where a test may make a graph, and the options to reach it."""

    address: str
    options: dict[str, str]

    @property
    def kwargs(self) -> dict[str, Any]:
        """Options as `GraphStore.create` and `open` take them."""
        return {"storage_options": self.options} if self.options else {}


class Copies(Protocol):
    """Makes places."""

    def empty(self) -> Place:
        """Return a place where nothing is."""
        ...

    def copy(self, source: Place) -> Place:
        """Return a place with the same content."""
        ...


@dataclass
class LocalCopies:
    """Places in one directory."""

    root: Path
    numbers: count[int] = field(default_factory=count)

    def empty(self) -> Place:
        """Return a path where nothing is."""
        return Place(str(self.root / f"g{next(self.numbers)}"), {})

    def copy(self, source: Place) -> Place:
        """Copy the directory."""
        target = self.empty()
        shutil.copytree(source.address, target.address)
        return target


@dataclass
class S3Copies:
    """Places in buckets of one server."""

    server: S3Server

    def empty(self) -> Place:
        """Return an address in an empty bucket."""
        return Place(self.server.new_address(), self.server.storage_options())

    def copy(self, source: Place) -> Place:
        """Copy every object, inside the store."""
        target, client = self.empty(), self.server.client()
        old, new = (place.address.split("/")[2] for place in (source, target))
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=old):
            for entry in page.get("Contents", []):
                key = entry["Key"]
                client.copy_object(Bucket=new, Key=key, CopySource={"Bucket": old, "Key": key})
        return target
