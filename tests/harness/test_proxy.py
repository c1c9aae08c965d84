"""The proxy counts what happens, changes nothing it forwards, and fails exactly as it was told."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError

from tests.support.proxy import Fault, S3Proxy, serial_hops
from tests.support.s3 import S3Server, one_at_a_time

pytestmark = pytest.mark.s3

WIDE_MS = (0.0, 100.0, 200.0)  # wide enough for a machine that is busy with other things
EMPTY = pa.table({"id": pa.array([], pa.int64())})


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(server.endpoint) as proxy:
        yield proxy


class Objects:
    """One bucket, written through the proxy and checked behind its back."""

    def __init__(self, server: S3Server, proxy: S3Proxy) -> None:
        self.bucket = f"test-{uuid4().hex}"
        server.make_bucket(self.bucket)
        self.direct = server.client()
        self.proxied = server.client(proxy.endpoint, max_pool_connections=16, read_timeout=20)
        self.options = server.storage_options(proxy.endpoint)

    def put(self, key: str, body: bytes = b"x", **conditions: str) -> None:
        self.proxied.put_object(Bucket=self.bucket, Key=key, Body=body, **conditions)

    def get(self, key: str) -> bytes:
        return bytes(self.proxied.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def stored(self) -> list[str]:
        found = self.direct.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [entry["Key"] for entry in found]

    def dataset(self, path: str) -> LanceDataset:
        return lance.write_dataset(EMPTY, f"s3://{self.bucket}/{path}", storage_options=self.options)


@pytest.fixture
def objects(server: S3Server, proxy: S3Proxy) -> Objects:
    return Objects(server, proxy)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def set_head(dataset: LanceDataset, head: str) -> LanceDataset:
    change = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap({"graph_head": head}))
    return LanceDataset.commit(dataset, change, read_version=dataset.version, max_retries=0)


# -- the store


def test_store_refuses_to_create_an_object_twice(objects: Objects) -> None:
    objects.put("once", b"first", IfNoneMatch="*")

    with pytest.raises(ClientError, match="PreconditionFailed"):
        objects.put("once", b"second", IfNoneMatch="*")

    assert objects.get("once") == b"first"


def test_store_decides_one_request_before_it_looks_at_the_next() -> None:
    """A conditional write is a look and a store: two of them must never interleave."""
    inside, peak, together = 0, 0, threading.Barrier(4)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        time.sleep(0.02)
        inside -= 1
        return [environ["wsgi.input"].read()]

    def call(_: int) -> list[bytes]:
        together.wait()
        return list(serve({"wsgi.input": io.BytesIO(b"body"), "CONTENT_LENGTH": "4"}, lambda *_: None))

    serve = one_at_a_time(app)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [[b"body"]] * 4
    assert peak == 1


def test_lance_refuses_a_commit_from_a_stale_head(objects: Objects) -> None:
    base = objects.dataset("g/__manifest")
    set_head(base, "a")

    with pytest.raises(CommitConflictError):
        set_head(base, "b")


# -- counting


def test_opening_the_latest_version_is_a_listing_and_a_read(objects: Objects, proxy: S3Proxy) -> None:
    dataset = objects.dataset("g/__manifest")
    proxy.reset()

    lance.dataset(dataset.uri, storage_options=objects.options)

    assert [(request.method, request.status) for request in proxy.requests] == [("LIST", 200), ("GET", 200)]
    assert proxy.by_class() == {"manifest": 2}
    assert proxy.requests[1].bytes_down > 0


def test_config_commit_is_three_requests(objects: Objects, proxy: S3Proxy) -> None:
    dataset = objects.dataset("g/__manifest")
    proxy.reset()

    set_head(dataset, "a")

    assert proxy.count() == 3
    assert proxy.by_method() == {"LIST": 1, "PUT": 2}


def test_detached_commit_is_two_writes(objects: Objects, proxy: S3Proxy) -> None:
    table = objects.dataset("g/tables/7")
    proxy.reset()

    LanceDataset.commit(table, LanceOperation.Append([]), read_version=table.version, detached=True)

    assert proxy.by_method() == {"PUT": 2}
    assert proxy.by_class() == {"transactions": 1, "versions": 1}


def test_request_that_began_before_a_reset_is_not_counted_after_it(
    objects: Objects, proxy: S3Proxy, pool: ThreadPoolExecutor
) -> None:
    proxy.pause(lambda method, key: key == "slow")
    slow = pool.submit(objects.put, "slow")
    proxy.wait_parked()
    proxy.reset()
    objects.put("quick", b"12345")
    proxy.resume()
    slow.result()

    assert [(request.key, request.bytes_up) for request in proxy.requests] == [("quick", 5)]


def test_large_object_passes_whole(objects: Objects, proxy: S3Proxy) -> None:
    body = bytes(range(256)) * (5 << 12)
    objects.put("large", body)

    assert objects.get("large") == body
    assert proxy.requests[-1].bytes_down == len(body)


# -- latency and concurrency


def test_requests_one_after_the_other_are_as_many_hops(objects: Objects, proxy: S3Proxy) -> None:
    objects.put("k")
    proxy.latency_ms = 1.0

    hops = serial_hops(lambda: [objects.get("k") for _ in range(3)], proxy, WIDE_MS)

    assert hops == pytest.approx(3, abs=1)
    assert proxy.latency_ms == 1.0


def test_requests_side_by_side_are_one_hop(
    objects: Objects, proxy: S3Proxy, pool: ThreadPoolExecutor
) -> None:
    objects.put("k")

    hops = serial_hops(lambda: list(pool.map(objects.get, ["k"] * 3)), proxy, WIDE_MS)

    assert hops == pytest.approx(1, abs=0.9)


def test_cap_on_requests_in_flight_holds(objects: Objects, proxy: S3Proxy, pool: ThreadPoolExecutor) -> None:
    objects.put("k")
    proxy.latency_ms = 60.0
    for cap, peak in ((None, range(4, 9)), (2, range(2, 3))):
        proxy.max_in_flight = cap
        proxy.reset()

        list(pool.map(objects.get, ["k"] * 8))

        assert proxy.count() == 8
        assert proxy.peak_in_flight in peak


def test_raised_cap_frees_a_waiting_request(
    objects: Objects, proxy: S3Proxy, pool: ThreadPoolExecutor
) -> None:
    proxy.max_in_flight, proxy.hang_s = 1, 1.0
    proxy.fail(lambda method, key: key == "stuck", Fault.HANG)
    stuck = pool.submit(objects.put, "stuck")
    wait_until(lambda: proxy.peak_in_flight == 1)
    waiting = pool.submit(objects.put, "waiting")
    time.sleep(0.2)  # until it waits; were this too short, the test would only prove less

    proxy.max_in_flight = None
    waiting.result()

    assert [request.key for request in proxy.requests] == ["waiting"]
    assert isinstance(stuck.exception(), BotoCoreError)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("the condition never came true")


# -- faults


@pytest.mark.parametrize(
    ("action", "error", "status", "takes_effect"),
    [
        pytest.param(Fault.ERROR_503, "SlowDown", 503, False, id="503"),
        pytest.param(Fault.DENY_403, "AccessDenied", 403, False, id="403"),
        pytest.param(Fault.CUT_BEFORE, "Connection was closed", 0, False, id="cut-before"),
        pytest.param(Fault.CUT_AFTER, "Connection was closed", 0, True, id="cut-after"),
        pytest.param(Fault.HANG, "Connection was closed", 0, False, id="hang"),
    ],
)
def test_fault_strikes_the_named_request_once(
    objects: Objects, proxy: S3Proxy, action: Fault, error: str, status: int, takes_effect: bool
) -> None:
    proxy.hang_s = 0.1
    proxy.fail(lambda method, key: (method, key) == ("PUT", "victim"), action)
    objects.put("bystander")

    with pytest.raises((ClientError, BotoCoreError), match=error):
        objects.put("victim")

    assert proxy.requests[-1].status == status
    assert ("victim" in objects.stored()) == takes_effect
    assert proxy.pending_faults == 0
    objects.put("victim")


def test_request_that_arrives_twice_is_answered_for_the_second_time(objects: Objects, proxy: S3Proxy) -> None:
    """As when the first answer is lost on its way and a client of S3 sends its request again by itself."""
    proxy.fail(lambda method, key: method == "PUT", Fault.TWICE)

    with pytest.raises(ClientError, match="PreconditionFailed"):
        objects.put("once", b"mine", IfNoneMatch="*")

    assert objects.get("once") == b"mine", "the first one took effect"
    assert [request.status for request in proxy.requests if request.method == "PUT"] == [412]
    assert proxy.pending_faults == 0


def test_fault_strikes_as_often_as_ordered_or_until_cleared(objects: Objects, proxy: S3Proxy) -> None:
    proxy.fail(lambda method, key: method == "PUT", Fault.ERROR_503, times=3)
    for _ in range(2):
        with pytest.raises(ClientError, match="SlowDown"):
            objects.put("k")
    assert proxy.pending_faults == 1

    proxy.clear_faults()

    objects.put("k")
    assert proxy.pending_faults == 0


def test_hanging_request_ends_when_its_client_gives_up(
    objects: Objects, proxy: S3Proxy, server: S3Server
) -> None:
    impatient = server.client(proxy.endpoint, read_timeout=0.1)
    proxy.hang_s = 60.0
    proxy.fail(lambda method, key: True, Fault.HANG)

    with pytest.raises(BotoCoreError, match="Read timeout"):
        impatient.head_object(Bucket=objects.bucket, Key="k")

    wait_until(lambda: proxy.count() == 1)


def test_lance_commit_survives_a_lost_answer_without_committing_twice(
    objects: Objects, proxy: S3Proxy
) -> None:
    base = objects.dataset("g/__manifest")
    proxy.fail(lambda method, key: method == "PUT" and "/_versions/" in key, Fault.CUT_AFTER)

    assert set_head(base, "a").version == base.version + 1
    assert proxy.pending_faults == 0
    assert lance.dataset(base.uri, storage_options=objects.options).version == base.version + 1


def test_mistake_in_a_matcher_reaches_the_test(server: S3Server) -> None:
    def mistaken(method: str, key: str) -> bool:
        raise LookupError(key)

    def use_it() -> None:
        with S3Proxy(server.endpoint) as proxy:
            proxy.fail(mistaken, Fault.HANG)
            with pytest.raises(BotoCoreError):
                server.client(proxy.endpoint).head_object(Bucket="any", Key="k")

    with pytest.raises(LookupError, match="k"):
        use_it()


# -- holding requests


@pytest.mark.parametrize("deliver", [True, False])
def test_held_request_waits_for_its_release(
    objects: Objects, proxy: S3Proxy, pool: ThreadPoolExecutor, deliver: bool
) -> None:
    proxy.pause(lambda method, key: method == "PUT" and key.startswith("held/"))
    held: list[Future[None]] = [pool.submit(objects.put, f"held/{number}") for number in range(2)]
    proxy.wait_parked(2)
    objects.put("free")
    assert proxy.parked == 2
    assert objects.stored() == ["free"]

    proxy.resume(deliver=deliver)

    assert [future.exception() is None for future in held] == [deliver, deliver]
    assert objects.stored() == (["free", "held/0", "held/1"] if deliver else ["free"])
    assert proxy.parked == 0


def test_waiting_for_a_request_that_never_comes_ends(proxy: S3Proxy) -> None:
    proxy.pause(lambda method, key: True)

    with pytest.raises(TimeoutError, match="0 of 1 requests parked"):
        proxy.wait_parked(timeout_s=0.05)
