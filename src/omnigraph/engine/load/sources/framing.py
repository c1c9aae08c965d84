"""Framing: the first and last line of an export that says of itself whether it is whole.

    {"og_export": {"format": 1, "schema_digest": ..., ...}}
    ... records ...
    {"og_export_end": {"lines": n, "sha256": ..., ...}}

Room    engine.load.sources. The export writes what is checked here.
Rule    `lines` counts the records; `sha256` is the digest of all lines before the end line that are not
        blank, header included, each without its line end and followed by one LF. So a change of line ends
        in transit does no harm, and every other change is found.
"""

from __future__ import annotations

import hashlib
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.block import UnreadableInput
from omnigraph.engine.load.sources.envelopes import Refused
from omnigraph.engine.validate.values import shown

HEADER, END = "og_export", "og_export_end"
FORMAT = 1


class Frame:
    """Follows the lines of one file; does nothing until it has seen a header."""

    def __init__(self, catalog: Catalog, origin: str) -> None:
        self._catalog, self._origin = catalog, origin
        self._digest = hashlib.sha256()
        self._records = 0
        self._opened = self._closed = False

    def line(self, text: str, record: Any, first: bool) -> bool:
        """Say whether a line belongs to the frame; `first` when no line came before it."""
        if self._closed:
            raise Refused("envelope", "there is more after the end of the export")
        if type(record) is dict and len(record) == 1:
            if HEADER in record:
                self._header(record[HEADER], first)
                self._add(text)
                return True
            if END in record:
                self._end(record[END])
                return True
        self._records += 1
        self._add(text)
        return False

    def _add(self, text: str) -> None:
        if self._opened:
            self._digest.update(text.encode() + b"\n")

    def unreadable(self, text: str) -> None:
        """Count a line that is no record: it was reported already."""
        self._records += 1
        self._add(text)

    def finish(self) -> None:
        """Refuse a framed file that has no end."""
        if self._opened and not self._closed:
            raise UnreadableInput(
                f"{self._origin}: the export is truncated: its last line, {END}, is missing",
                remedy="Export or transfer the file again",
                file=self._origin,
            )

    def _header(self, header: Any, first: bool) -> None:
        if not first:
            raise Refused("envelope", f"{HEADER} can only be the first line")
        self._opened = True
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            found = header.get("format") if isinstance(header, dict) else header
            raise Refused("envelope", f"unknown export format {shown(found)}: this release reads {FORMAT}")
        if (digest := header.get("schema_digest")) != self._catalog.declaration_digest:
            raise Refused(
                "envelope",
                f"the export was made with another schema: {shown(digest)}, this branch has "
                f"{shown(self._catalog.declaration_digest)}; apply its schema first, or load it without its "
                "header",
            )

    def _end(self, end: Any) -> None:
        if not self._opened:
            raise Refused("envelope", f"{END} without {HEADER} at the beginning")
        self._closed = True
        if not isinstance(end, dict):
            raise Refused("envelope", f"{END} must be an object, found {shown(end)}")
        if end.get("lines") != self._records:
            found = shown(end.get("lines"))
            raise Refused("envelope", f"the export counts {found} records, the file has {self._records}")
        if end.get("sha256") != self._digest.hexdigest():
            raise Refused("envelope", "the content does not match the export's sha256: it was changed")
