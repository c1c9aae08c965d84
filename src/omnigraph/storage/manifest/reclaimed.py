"""Reclaimed: which pins of an old version are gone, though the version itself is still there.

Room    storage.manifest. A hard drop takes a table's history away and leaves the other tables theirs, so
        the floor cannot say it: each chain notes the version that announced the reclaim of a table.
Rule    of the versions before that note, a pin is readable only if it is the one that was in force then.
        Asking costs nothing while no table was reclaimed.
"""

from __future__ import annotations

from omnigraph.base.errors import HistoryReclaimed
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import ManifestState, Pin


def kept_pin(chain: Chain, head: ManifestState, table_id: str) -> Pin | None:
    """Return the one pin that the newest reclaim of a table left in force on a chain, if it left any."""
    since = head.reclaimed[table_id]
    return (head if since == head.version else chain.at(since)).pins.get(table_id)


def check_kept(chain: Chain, state: ManifestState, table_id: str) -> None:
    """Raise when the table as this state pins it was reclaimed, as far as this process knows."""
    pin, known = state.pins.get(table_id), chain.known
    since = None if known is None else known.reclaimed.get(table_id)
    if pin is None or known is None or since is None or state.version >= since:
        return
    kept = kept_pin(chain, known, table_id)
    if kept is None or kept.version != pin.version:
        raise HistoryReclaimed(
            f"the history of {pin.name!r} before version {since} was reclaimed by a hard drop; "
            f"version {state.version} needs it",
            remedy="Choose a newer commit; other types of this one can still be read",
            commit=state.head,
            type_name=pin.name,
            version=state.version,
            floor=since,
        )


def check_whole(chain: Chain, state: ManifestState) -> None:
    """Raise when any table that this state pins was reclaimed."""
    for table_id in state.pins:
        check_kept(chain, state, table_id)
