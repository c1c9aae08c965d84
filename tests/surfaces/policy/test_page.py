"""The bundles of the page about policies can be copied as they stand, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.engine.access import Action
from omnigraph.surfaces.policy import Policy

PAGE = (Path(__file__).parents[3] / "docs/policy.md").read_text()
KIOSK, ANALYSTS, CI, TEAM, ADMIN = map(Policy.read, re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.mark.parametrize(
    ("policy", "actor", "action", "branch", "target", "allowed"),
    [
        (KIOSK, "kiosk-hall", "read", "main", None, True),
        (KIOSK, "kiosk-hall", "read", "draft", None, False),
        (KIOSK, "kiosk-hall", "invoke_query", None, None, True),
        (KIOSK, "kiosk-hall", "change", "main", None, False),
        (ANALYSTS, "ada", "change", "draft", None, True),
        (ANALYSTS, "ada", "change", "main", None, False),
        (ANALYSTS, "ada", "branch_merge", "draft", "main", False),
        (ANALYSTS, "ada", "schema_apply", None, "main", False),
        (ANALYSTS, "edgar", "branch_merge", "draft", "main", True),
        (ANALYSTS, "edgar", "change", "main", None, False),
        (CI, "ci-publisher", "branch_merge", "draft", "main", True),
        (CI, "ci-publisher", "change", "draft", None, False),
        (CI, "ci-publisher", "branch_delete", None, "draft", False),
        (TEAM, "tina", "change", "team-a", None, True),
        (TEAM, "tina", "change", "main", None, False),
        (TEAM, "tina", "branch_merge", "team-a", "main", False),
        (TEAM, "olga", "read", "team-a", None, False),
        (TEAM, "olga", "change", "main", None, True),
        (ADMIN, "root", "admin", None, None, True),
        (ADMIN, "tom", "admin", None, None, False),
    ],
)
def test_each_bundle_does_what_the_page_says(
    policy: Policy, actor: str, action: str, branch: str | None, target: str | None, allowed: bool
) -> None:
    assert policy.decide(actor, action, branch, target).allowed is allowed


def test_the_page_has_every_action() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (?:none|`branch_scope`|`target_branch_scope`) \|", PAGE, re.M)
    assert rows == [action.value for action in Action]
