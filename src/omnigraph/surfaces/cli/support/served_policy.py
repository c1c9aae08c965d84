"""Policy: that of a graph behind a server, asked like one that is here."""

from __future__ import annotations

from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.surfaces.client.calls import Calls
from omnigraph.surfaces.policy.policy import NearRule, PolicyDecision


@dataclass(frozen=True)
class RemotePolicy:
    """The policy that a server asks for one graph; to ask it needs `admin`."""

    calls: Calls

    def facts(self) -> dict[str, Any]:
        """Return how many actors and rules it has."""
        return self.calls.read("/policy")

    def decide(
        self, actor: str | None, action: Action | str, branch: str | None = None, target: str | None = None
    ) -> PolicyDecision:
        """Say whether an actor may do something."""
        name = action.value if isinstance(action, Action) else action
        told = self.calls.ask(
            "/policy/explain", actor=actor, action=name, branch=branch, target_branch=target
        )
        return PolicyDecision(
            allowed=told["decision"] == "allow",
            actor=told["actor"],
            action=Action(told["action"]),
            branch=told["branch"],
            target=told["target_branch"],
            rule=told["matched_rule"],
            message=told["message"],
            nearest=tuple(
                NearRule(near["rule"], tuple(near["failed"])) for near in told.get("nearest_rules", ())
            ),
        )
