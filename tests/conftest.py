"""What holds for every test; fixtures live in a conftest.py beside the tests they serve."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.places import LocalCopies, Place, S3Copies
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

# No test may fail because the machine is busy.
settings.register_profile("omnigraph", deadline=None)
settings.load_profile("omnigraph")
# Spark starts its JVM from a forked child, which runs no Python; elsewhere the warning stays an error.
JVM_START = pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning")

TESTS = Path(__file__).parent
QUERIES_RUN = ("cost", "execution", "query", "storage")
FAULT_CELL = "faults/test_matrix.py::test_cell["
SEEDS = "simulation/test_simulation.py::test_seeds_find_nothing_wrong["
SLOW_FOLDERS = ("concurrency", "cost", "crash", "examples", "faults", "harness", "limits", "parity", "spark")


@pytest.hookimpl(tryfirst=True)  # before the groups and the marks are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep Spark on one worker, so that the suite starts one JVM and not one for each; leave S3 for later.

    What runs on S3 or starts Spark, and whole folders that start processes or count requests, count as slow.
    """
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS or item.get_closest_marker("s3"):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(JVM_START)
            item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("s3_when_full") and item.get_closest_marker("s3"):
            item.add_marker(pytest.mark.full)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the fault matrix ran, and how many seeds of the simulation.

    Here, since under xdist the main process knows no other file.
    """
    stats = terminalreporter.stats.values()
    reports = [one for some in stats for one in some if isinstance(one, pytest.TestReport)]
    cells = [one for one in reports if FAULT_CELL in one.nodeid]
    if cells:
        from tests.faults.report import lines, told_by

        for line in lines(told_by(cells)):
            terminalreporter.write_line(line)
    shares: list[dict[str, Any]] = [
        dict(one.user_properties) for one in reports if SEEDS in one.nodeid and one.when == "call"
    ]
    if shares:
        seeds, spent_s = (sum(share.get(name, 0) for share in shares) for name in ("seeds", "cpu_s"))
        terminalreporter.write_line(f"simulation: {seeds} seeds in {spent_s:.0f} s of processor time")


@pytest.fixture(scope="session", autouse=True)
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is fetched from object stores out of the cache folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def kept_answers() -> None:
    """Ask for this to have small answers kept where that is switched off."""


@pytest.fixture(autouse=True)
def every_query_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the same query run again where tests change the ground below it, or look at how it runs."""
    folder = request.path.relative_to(TESTS).parts[0]
    if folder in QUERIES_RUN and "kept_answers" not in request.fixturenames:
        monkeypatch.setattr("omnigraph.engine.query.ANSWER_BYTES", 0)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One real S3 API for the whole run of a worker."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_place(s3_server: S3Server) -> Place:
    """An empty bucket on the S3 API."""
    return Place(s3_server.new_address(), s3_server.storage_options())


@pytest.fixture
def local_place(tmp_path: Path) -> Place:
    """An empty directory."""
    return Place(str(tmp_path / "graph.og"), {})


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest) -> Place:
    """Every test with a `place` runs on local disk and on the S3 API."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(scope="session")
def local_copies(tmp_path_factory: pytest.TempPathFactory) -> LocalCopies:
    """Copies of graphs on local disk."""
    return LocalCopies(tmp_path_factory.mktemp("copies"))


@pytest.fixture(scope="session")
def s3_copies(s3_server: S3Server) -> S3Copies:
    """Copies of graphs on the S3 API."""
    return S3Copies(s3_server)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    """A counting, delaying, failing proxy in front of the S3 API."""
    with S3Proxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def counted_place(s3_server: S3Server, proxy: S3Proxy) -> Place:
    """An empty bucket on the S3 API, reached through the proxy."""
    return Place(s3_server.new_address(), s3_server.storage_options(proxy.endpoint))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where the suite was started in the background and told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
