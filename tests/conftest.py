"""What holds for every test; fixtures live in a conftest.py beside the tests they serve."""

import pytest

# Spark starts its JVM from a forked child, which runs no Python; elsewhere the warning stays an error.
JVM_START = pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all Spark tests on one worker, so that the suite starts one JVM and not one for each."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(JVM_START)
            item.add_marker(pytest.mark.xdist_group("spark"))
