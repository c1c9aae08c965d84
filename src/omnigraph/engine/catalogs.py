"""Catalogs: decoded schemas by hash.

Room    engine. A snapshot names its schema by hash and a hash never changes its meaning, so a catalog is
        decoded once per process and a warm write or read asks storage nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from omnigraph.catalog.catalog import Catalog
from omnigraph.storage.schema_objects import SchemaObjects

KEPT = 64


class Catalogs:
    """The catalogs of one graph."""

    def __init__(self, schemas: SchemaObjects) -> None:
        self._schemas = schemas
        self._known: OrderedDict[str, Catalog] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> Catalog:
        """Return the catalog of a schema hash."""
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        catalog = Catalog.from_json(self._schemas.get(digest))
        with self._lock:
            self._known[digest] = catalog
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return catalog
