"""What the server of child processes imports: enough for most of them, and nothing is used.

Room    test support.
"""

from __future__ import annotations

import warnings

# Lance warns before any fork of a process that imported it. Here nothing of it ever ran.
warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)

import omnigraph  # noqa: E402
import tests.support.processes  # noqa: E402

__all__ = ["omnigraph", "tests"]
