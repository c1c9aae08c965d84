"""Policy: who may do what on which branches, written in YAML, decided by Cedar.

    bundle (bundle.py) -> Cedar policies and entities (cedar.py) -> **decision**, guard, audit (policy.py)

Cedar is loaded by the first policy that is read.
"""

from omnigraph.surfaces.policy.bundle import Bundle, PolicyError, PolicyRule
from omnigraph.surfaces.policy.policy import (
    AuditRecord,
    NearRule,
    Policy,
    PolicyDecision,
    PolicyEvaluationError,
)

__all__ = [
    "AuditRecord",
    "Bundle",
    "NearRule",
    "Policy",
    "PolicyDecision",
    "PolicyError",
    "PolicyEvaluationError",
    "PolicyRule",
]
