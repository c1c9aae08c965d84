"""Reading rows with Lance: every scan and every look-up of rows by address begins here.

So whoever measures an operation knows whether Lance was asked for anything (storage/cost.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import ScannerBuilder

from omnigraph.storage.cost import asks_lance
from omnigraph.storage.opener import Handle


def scanner(handle: Handle, **options: Any) -> Any:
    """Return a scanner of a table."""
    asks_lance()
    return handle.scanner(**options)


def filtered_scanner(
    handle: Handle, columns: Sequence[str], fragments: Sequence[Any], condition: bytes, *, addresses: bool
) -> Any:
    """Return a scanner of the rows of some fragments for which a condition (Substrait) holds."""
    asks_lance()
    scan: Any = ScannerBuilder(handle).columns(list(columns)).with_fragments(list(fragments))
    scan = scan.with_row_address(addresses)
    scan._substrait_filter = condition
    return scan.to_scanner()


def take_rows(handle: Handle, addresses: Any, columns: Sequence[str]) -> pa.Table:
    """Return some columns of rows by their addresses, in their order."""
    asks_lance()
    return handle._take_rows(addresses, columns=list(columns))


def provider(handle: Handle, *, addresses: bool) -> Any:
    """Return a table for DataFusion, which scans it as it is read."""
    asks_lance()
    return lance.FFILanceTableProvider(handle, with_row_id=False, with_row_addr=addresses)
