"""Catalogs: decoded schemas by hash.

Room    engine. A snapshot names its schema by hash and a hash never changes its meaning, so a catalog is
        decoded once per process and a warm write or read asks storage nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.past import past_catalog
from omnigraph.storage.schema_objects import SchemaObjects

KEPT = 64


class Catalogs:
    """The catalogs of one graph."""

    def __init__(self, schemas: SchemaObjects) -> None:
        self._schemas = schemas
        self._known: OrderedDict[tuple[str, ...], Catalog] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> Catalog:
        """Return the catalog of a schema hash."""
        return self._kept((digest,), lambda: Catalog.from_json(self._schemas.get(digest)))

    def past(self, now: str, then: str) -> Catalog:
        """Return what one schema declares as a state with another schema has it."""
        if now == then:
            return self.get(now)
        return self._kept((now, then), lambda: past_catalog(self.get(now), self.get(then)))

    def _kept(self, key: tuple[str, ...], make: Callable[[], Catalog]) -> Catalog:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        catalog = make()
        with self._lock:
            catalog = self._known.setdefault(key, catalog)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return catalog
