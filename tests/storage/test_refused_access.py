"""An object store that refuses, or does not answer: every operation says so in a typed error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.base.errors import Kind, StorageError
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, DeleteIds
from tests.support.graphs import (
    KNOWS,
    PERSON,
    build_history,
    make_graph,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.proxy import Fault, S3Proxy
from tests.support.s3 import SECRET_KEY, S3Server
from tests.support.stores import again, everything, nothing_written

FOR_EVER = 100_000


def refused(error: StorageError, *names: str) -> None:
    assert error.code == "storage"
    assert error.remedy
    assert SECRET_KEY not in str(error)
    for name in names:
        assert name in str(error)


# -- an object store


def anything(method: str, key: str) -> bool:
    return True


@pytest.mark.s3
def test_opening_with_credentials_that_are_refused_is_denied(counted_place: Place, proxy: S3Proxy) -> None:
    make_graph(counted_place.address, **counted_place.kwargs).close()
    proxy.fail(anything, Fault.DENY_403, FOR_EVER)

    with pytest.raises(StorageError) as caught:
        GraphStore.open(counted_place.address, **counted_place.kwargs)

    refused(caught.value, counted_place.address, "credentials")
    assert caught.value.kind is Kind.DENIED


@pytest.mark.s3
def test_making_a_graph_with_credentials_that_are_refused_is_denied(
    counted_place: Place, proxy: S3Proxy
) -> None:
    proxy.fail(anything, Fault.DENY_403, FOR_EVER)

    with pytest.raises(StorageError) as caught:
        make_graph(counted_place.address, **counted_place.kwargs)

    refused(caught.value, counted_place.address, "credentials")
    assert caught.value.kind is Kind.DENIED
    proxy.clear_faults()
    assert everything(counted_place) == {}


@pytest.mark.s3
def test_making_a_graph_where_only_reading_is_allowed_is_denied_and_leaves_nothing(
    counted_place: Place, proxy: S3Proxy
) -> None:
    proxy.fail(lambda method, key: method not in ("GET", "HEAD", "LIST"), Fault.DENY_403, FOR_EVER)

    with pytest.raises(StorageError) as caught:
        make_graph(counted_place.address, **counted_place.kwargs)

    refused(caught.value)
    assert caught.value.kind is Kind.DENIED
    proxy.clear_faults()
    assert everything(counted_place) == {}


OPERATIONS: dict[str, Callable[[GraphStore], object]] = {
    "read the head": lambda store: store.snapshot(),
    "read a branch": lambda store: store.snapshot("dev"),
    "read a version": lambda store: store.snapshot(at=2),
    "find a commit": lambda store: store.snapshot(at="0" * 26),
    "open a table": lambda store: store.opener.table(KNOWS, 1),
    "read the schema": lambda store: store.schemas.get("0" * 64),
    "append": lambda store: write(store, {PERSON: Append(people(["x"]))}),
    "upsert": lambda store: upsert_person(store, "a"),
    "delete by id": lambda store: write(store, {PERSON: DeleteIds(people(["h0"])["id"].combine_chunks())}),
    "list branches": lambda store: store.branches.list(),
    "create a branch": lambda store: store.branches.create("new", "main"),
    "delete a branch": lambda store: store.branches.delete("dev"),
    "raise the floor": lambda store: store.raise_floor("main", 2),
}


READS = ("read", "find", "open", "list")
WRITES = [name for name in OPERATIONS if not name.startswith(READS)]


@pytest.fixture
def graph(counted_place: Place) -> Iterator[GraphStore]:
    """A graph behind the proxy with three people and a branch."""
    with make_graph(counted_place.address, **counted_place.kwargs) as made:
        build_history(made, 3)
        made.branches.create("dev", "main")
        yield made


def answer(store: GraphStore, operation: str) -> str:
    """Return what an operation comes to: the code of its error, or what is wrong with the answer."""
    try:
        OPERATIONS[operation](store)
    except StorageError as error:
        good = error.remedy and SECRET_KEY not in str(error)
        return error.code if good else f"bad text: {error}"
    except Exception as error:  # noqa: BLE001 - the comparison shows it
        return f"{type(error).__name__}: {error}"
    return "no error"


def answers(store: GraphStore, operations: Iterable[str]) -> dict[str, str]:
    """Ask all at once: Lance takes its time over each listing that is refused."""
    names = list(operations)
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: answer(store, name), names), strict=True))


@pytest.mark.s3
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_every_operation_on_an_open_graph_reports_a_store_that_refuses(
    counted_place: Place, proxy: S3Proxy, graph: GraphStore, warm: bool
) -> None:
    store = graph if warm else again(counted_place)
    before = everything(counted_place)
    proxy.fail(anything, Fault.DENY_403, FOR_EVER)

    found = answers(store, OPERATIONS)

    assert {name: code for name, code in found.items() if code != "storage" and name not in WRITES} == {}
    assert {name: found[name] for name in WRITES if found[name] not in ("storage", "outcome_unknown")} == {}
    proxy.clear_faults()
    assert everything(counted_place) == before
    assert upsert_person(store, "after").attempts == 1, "the store works again as soon as storage does"


@pytest.mark.s3
def test_every_write_reports_a_store_that_allows_only_reading(
    counted_place: Place, proxy: S3Proxy, graph: GraphStore
) -> None:
    """Since the state can be read back, it is known that nothing happened."""
    proxy.fail(lambda method, key: method in ("PUT", "POST", "DELETE"), Fault.DENY_403, FOR_EVER)
    writes = [name for name in WRITES if name != "delete by predicate"]  # which finds nothing to delete

    with nothing_written(counted_place):
        found = answers(graph, writes)

    assert found == dict.fromkeys(writes, "storage")


@pytest.mark.s3
def test_reading_works_where_only_reading_is_allowed(counted_place: Place, proxy: S3Proxy) -> None:
    """S-17."""
    with make_graph(counted_place.address, **counted_place.kwargs) as made:
        build_history(made, 3)
        made.branches.create("dev", "main")
        expected = persons(made)
    proxy.fail(lambda method, key: method in ("PUT", "POST", "DELETE"), Fault.DENY_403, FOR_EVER)

    with again(counted_place) as store:
        assert persons(store) == persons(store, "dev") == expected
        assert len(store.branches.list()) == 1


# -- nobody there


SHORT = {"client_max_retries": "1", "client_retry_timeout": "3", "timeout": "2s", "connect_timeout": "1s"}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("operation", ["open", "create"])
def test_an_endpoint_that_does_not_answer_is_reported(operation: str) -> None:
    options = {**S3Server().storage_options("http://127.0.0.1:9"), **SHORT}

    attempt = GraphStore.open if operation == "open" else make_graph
    with pytest.raises(StorageError) as caught:
        attempt("s3://graphs/kb", storage_options=options)

    refused(caught.value, "s3://graphs/kb", "network")
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.s3
def test_every_option_that_lance_knows_is_accepted(s3_place: Place) -> None:
    """They are given in Lance's spelling, and some mean nothing to the client for small objects."""
    more = {**SHORT, "timeout": "30s", "download_retry_count": "2", "aws_unsigned_payload": "false"}
    options = {**s3_place.options, **more}

    with make_graph(s3_place.address, storage_options=options) as store:
        upsert_person(store, "a")
        store.branches.create("dev", "main")

        assert set(persons(store, "dev")) == {"a"}


def test_options_are_not_shown_where_a_location_is_printed() -> None:
    place = Location.parse("s3://graphs/kb", {"aws_access_key_id": "k", "aws_secret_access_key": SECRET_KEY})

    assert SECRET_KEY not in repr(place)
