"""The tests of tests/engine/merge/test_schemas.py, with merges on Spark."""

from __future__ import annotations

import pytest

from tests.engine.merge.test_schemas import *  # noqa: F403

pytestmark = [pytest.mark.spark, pytest.mark.full]
