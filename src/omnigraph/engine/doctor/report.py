"""Report: what an examination found, as values.

A finding says what is wrong, where, how bad it is and what to do. `error`: something that was stored cannot
be read, or is not what it must be. `warning`: no answer is wrong yet, but something should be done. `info`:
harmless, good to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass

Gravity = Literal["error", "warning", "info"]
GRAVITIES: tuple[Gravity, ...] = ("error", "warning", "info")  # gravest first


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where something was found, as far as it is known: of a file the path below the graph."""

    branch: str | None = None
    commit: str | None = None
    type: str | None = None
    file: str | None = None
    row: str | None = None

    def __str__(self) -> str:
        known = ((name, value) for name, value in asdict(self).items() if value is not None)
        return ", ".join(f"{name} {value}" for name, value in known)


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that is not as it should be, or good to know."""

    code: str
    severity: Gravity
    what: str
    remedy: str
    where: FindingPlace = FindingPlace()

    def __str__(self) -> str:
        where = str(self.where)
        return f"{self.severity} {self.code}: {self.what}{f' ({where})' if where else ''}. {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "code": self.code,
            "severity": self.severity,
            "where": asdict(self.where),
            "what": self.what,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One check: how many things it looked at, and what it did not look at, and why."""

    name: str
    promise: str  # what holds where it finds nothing
    looked_at: int
    findings: int
    limits: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {**asdict(self), "limits": list(self.limits)}


@dataclass(frozen=True, slots=True)
class DoctorRepair:
    """Something derived that was made anew, or would be."""

    what: str
    branch: str | None = None
    type: str | None = None
    done: bool = True
    reason: str | None = None  # why it was not done

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {value}" for name, value in (("branch", self.branch), ("type", self.type)) if value
        )
        state = "" if self.done else f": not done, {self.reason}"
        return f"{self.what}{f' ({where})' if where else ''}{state}"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return asdict(self)


@dataclass(frozen=True)
class DoctorReport:
    """What an examination of a graph found, gravest first; `repairs` is what was made anew before that."""

    uri: str
    deep: bool
    findings: tuple[DoctorFinding, ...]
    checks: tuple[CheckRun, ...] = ()
    repairs: tuple[DoctorRepair, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether nothing is broken: there is no finding of severity error."""
        return not self.of("error")

    @checked
    def of(self, severity: Gravity) -> tuple[DoctorFinding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity."""
        return {severity: len(self.of(severity)) for severity in GRAVITIES}

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "uri": self.uri,
            "ok": self.ok,
            "deep": self.deep,
            "counts": self.counts,
            "findings": [finding.to_json() for finding in self.findings],
            "checks": [check.to_json() for check in self.checks],
            "repairs": [repair.to_json() for repair in self.repairs],
        }


def gravest_first(findings: Iterable[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """Return findings by severity, those of one severity in the order of the checks."""
    return tuple(sorted(findings, key=lambda finding: GRAVITIES.index(finding.severity)))
