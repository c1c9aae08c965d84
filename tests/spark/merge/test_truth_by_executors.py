"""The tests of tests/engine/merge/test_truth.py, with merges on Spark."""

from __future__ import annotations

import pytest

from tests.engine.merge.test_truth import *  # noqa: F403

pytestmark = [pytest.mark.spark, pytest.mark.full]
