"""Events: the change feed for those who wait: long polls, and events that a server sends.

Between looks no thread is held: a look is one request to storage while nothing happens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial

from omnigraph.engine.history.feed import FeedPage
from omnigraph.surfaces.server.admission import Place
from omnigraph.surfaces.server.work import Pools

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
HEARTBEAT_SECONDS = 15.0
COMMENT = b": still here\n\n"


async def changed_or_over(
    pools: Pools, place: Place, page: FeedPage, seconds: float, poll: Callable[[str | None], FeedPage]
) -> FeedPage:
    """Look again until there is something, the time is over, or the server ends."""
    pause, left = FIRST_PAUSE, seconds
    while not page.blocks and left > 0 and not pools.draining.is_set():
        await asyncio.sleep(min(pause, left))
        left -= pause
        pause = min(2 * pause, LONGEST_PAUSE)
        page = await pools.look(place, partial(poll, page.cursor))
    return page


async def events(
    pools: Pools, place: Place, poll: Callable[..., FeedPage], page: FeedPage
) -> AsyncIterator[bytes]:
    """Yield pages as events for as long as somebody listens; a page is an event with its cursor as id."""
    yield COMMENT  # the answer begins now, not with the first change
    while True:
        if page.blocks:
            yield event(page)
        if page.page_token is not None:
            page = await pools.look(place, partial(poll, page_token=page.page_token))
            continue
        if pools.draining.is_set():
            return
        if page.caught_up:
            page = await changed_or_over(
                pools, place, _emptied(page), HEARTBEAT_SECONDS, lambda at: poll(cursor=at)
            )
            if not page.blocks:
                yield COMMENT
        else:
            page = await pools.look(place, partial(poll, cursor=page.cursor))


def event(page: FeedPage) -> bytes:
    """Return a page as one event. Only a page that ends after whole commits can be resumed from."""
    data = json.dumps(page.to_json(), ensure_ascii=False, separators=(",", ":"), default=str)
    place = "" if page.cursor is None else f"id: {page.cursor}\n"
    return f"event: changes\n{place}data: {data}\n\n".encode("utf-8", "backslashreplace")


def _emptied(page: FeedPage) -> FeedPage:
    return FeedPage((), page.cursor, page.caught_up)
