"""The grounds on which operations die: one of each kind for a whole run of a worker."""

from __future__ import annotations

import pytest

from tests.crash.ground import Ground
from tests.support.places import LocalCopies, S3Copies
from tests.support.s3 import S3Server


@pytest.fixture(scope="session")
def local_ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Local disk."""
    return Ground(LocalCopies(tmp_path_factory.mktemp("crash")), local=True)


@pytest.fixture(scope="session")
def s3_ground(s3_server: S3Server) -> Ground:
    """The S3 API."""
    return Ground(S3Copies(s3_server), local=False)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Every test with a `ground` runs on local disk and on the S3 API."""
    found: Ground = request.getfixturevalue(f"{request.param}_ground")
    return found
