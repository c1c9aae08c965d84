"""Tests of one group run on one worker: what they share is made once, and Spark starts once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SUITE = """
import pytest

pytestmark = pytest.mark.xdist_group("one")


@pytest.mark.parametrize("number", range(8))
def test_one(number):
    pass
"""


def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    """The runner and its plug-in must be of versions that understand each other; they may fail silently."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_group.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-v",
        f"--basetemp={tmp_path / 'inner'}",  # else it clears away what earlier runs left, which takes minutes
    ]

    ran = subprocess.run([*command, "suite"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    workers = re.findall(r"\[(gw\d)\].*PASSED", ran.stdout)
    assert len(workers) == 8
    assert len(set(workers)) == 1
