"""A commit that sleeps between Lance's look and its put, until others have made its version and trimmed it.

The store takes the put then: the name is free again. Whoever made it must not believe that, since no reader
sees a version below the newest. On local disk nothing can be held between the two, which are one call of
Lance; behind the proxy the put is a request.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.base.ids import SystemClock
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from tests.support.graphs import build_history, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server
from tests.support.stores import again, location

pytestmark = pytest.mark.s3
IMPATIENT = RetryPolicy(confirm_after_s=0)  # every commit counts as stalled, and versions are trimmed at once


class Asleep(SystemClock):
    """The clock of a machine that was suspended: nothing was measured, and then the wall says otherwise."""

    slept_us = 0

    def monotonic(self) -> float:
        """Stand still."""
        return 0.0

    def now_us(self) -> int:
        """Return the time on the wall."""
        return super().now_us() + self.slept_us


@pytest.mark.parametrize(
    ("retry", "clock"),
    [(IMPATIENT, SystemClock()), (RetryPolicy(), Asleep())],
    ids=["it stalled", "the machine was suspended"],
)
def test_a_put_that_lands_where_a_version_was_trimmed_is_not_taken_for_a_commit(
    s3_server: S3Server, s3_place: Place, proxy: S3Proxy, retry: RetryPolicy, clock: SystemClock
) -> None:
    """X-09, resurrection after a cleanup."""
    make_graph(s3_place.address, **s3_place.kwargs).close()
    slow = s3_server.storage_options(proxy.endpoint)
    objects = location(s3_place).objects
    with (
        GraphStore.open(s3_place.address, storage_options=slow, retry=retry, clock=clock) as writer,
        again(s3_place, IMPATIENT) as others,
        ThreadPoolExecutor(1) as pool,
    ):
        version = writer.snapshot().state.version + 1
        chosen = f"{MANIFEST}/_versions/{manifest_file(version)}"
        proxy.pause(lambda method, key: method == "PUT" and key.endswith(chosen))
        late = pool.submit(upsert_person, writer, "late")
        proxy.wait_parked()
        build_history(others, 8, prefix="r")
        assert others.cleanup(Retention(0, grace_us=0), dry_run=False).ok
        assert objects.read(chosen) is None, "others made that version, and the cleanup trimmed it"
        if isinstance(clock, Asleep):
            clock.slept_us = 2 * 3_600_000_000
        proxy.resume()
        receipt = late.result(60)

    assert objects.read(chosen) is not None, "the store took the put"
    with again(s3_place) as fresh:
        head = fresh.snapshot().state
        assert receipt.commit_id == head.head
        assert {"late", "r0"} <= persons(fresh).keys()
