"""Every writer meets every fault in every window on every store: no violation of any promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.cells import Cell, Store, every_cell, everyday
from tests.faults.ground import Ground
from tests.faults.meeting import run_cell
from tests.support.proxy import S3Proxy

pytestmark = pytest.mark.timeout(600)
EVERYDAY = everyday()


def marked(cell: Cell) -> object:
    """Return a cell as a parameter, with the marks of what it needs."""
    marks = [pytest.mark.xdist_group(f"faults-{cell.store}-{cell.writer}")]
    if cell.store == "s3":
        marks.append(pytest.mark.s3)
    if cell.writer.spark:
        marks.append(pytest.mark.spark)
    if cell not in EVERYDAY:
        marks.append(pytest.mark.full)
    return pytest.param(cell, id=str(cell), marks=marks)


@pytest.mark.parametrize("cell", [marked(cell) for cell in every_cell()])
def test_cell(grounds: Callable[[Store], Ground], new_proxy: Callable[[], S3Proxy], cell: Cell) -> None:
    run_cell(grounds(cell.store), cell, new_proxy)
