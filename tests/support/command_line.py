"""The command `omnigraph`, run in this process."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from omnigraph.surfaces.cli.app import main


def run_json(*words: str) -> tuple[int, Any]:
    """Return the exit code and the document of a call with `--json`."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main([*words, "--json"])
        out.flush()
    return code, json.loads(out.buffer.getvalue())
