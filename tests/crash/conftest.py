"""The grounds on which operations die: one of each kind for a whole run of a worker."""

from __future__ import annotations

import pytest

from tests.crash.ground import Ground
from tests.support.places import Copies


@pytest.fixture(scope="session")
def local_ground(local_copies: Copies) -> Ground:
    """Local disk."""
    return Ground(local_copies, local=True)


@pytest.fixture(scope="session")
def s3_ground(s3_copies: Copies) -> Ground:
    """The S3 API."""
    return Ground(s3_copies, local=False)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Every test with a `ground` runs on local disk and on the S3 API."""
    found: Ground = request.getfixturevalue(f"{request.param}_ground")
    return found
