"""Audit: the record of one decision, and the log that it goes to."""

from __future__ import annotations

import logging

from omnigraph.base.dataclass import dataclass

audit_log = logging.getLogger("omnigraph.audit")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One decision, as the audit log has it."""

    actor: str | None
    action: str
    resource: str
    branch: str | None
    target: str | None
    decision: str
    rule: str | None
    request_id: str | None = None  # of a server


def log_audit(record: AuditRecord) -> None:
    """Write a decision to the logger `omnigraph.audit`: each field is an attribute of the log record."""
    fields = {name: getattr(record, name) for name in AuditRecord.__dataclass_fields__}
    audit_log.info("%(decision)s %(actor)r %(action)s", fields, extra=fields)
