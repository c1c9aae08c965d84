"""Executors in processes of their own, S3 between them, and some of them killed while they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.bulk.cluster_job import PEOPLE, STREAMED
from tests.support.s3 import S3Server

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.s3
@pytest.mark.timeout(600)
def test_load_upsert_optimize_read_and_stream_with_killed_executors(s3_server: S3Server) -> None:
    s3_server.make_bucket("bulk-cluster")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.bulk.cluster_job",
            "s3://bulk-cluster/graph.og",
            json.dumps(s3_server.storage_options()),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "executors": 2,
        "killed": True,
        "commits": True,
        "counts": [
            ["Person", PEOPLE, 0],
            ["Knows", PEOPLE, 0],
            ["Person", PEOPLE // 2, PEOPLE // 2],
        ],
        "optimized": [True] * 5,
        "people": [PEOPLE * 3 // 2, PEOPLE * 3 // 2, PEOPLE],
        "edges": PEOPLE,
        "stream": {
            "killed": True,
            "replayed": True,
            "batches": [["0", "1"], ["0", "1"]],
            "rows": [2 * STREAMED, 2 * STREAMED],
        },
    }
