"""How much memory a process holds, as the kernel says (in `ru_maxrss` a child starts with its parent's)."""

from __future__ import annotations

from pathlib import Path


def resident(name: str = "VmRSS") -> int:
    """Return the bytes that this process holds now, or with `VmHWM` has held at most."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) << 10


def peak_counts_from_here() -> None:
    """Forget what this process has held at most."""
    Path("/proc/self/clear_refs").write_text("5")
