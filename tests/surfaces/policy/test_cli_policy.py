"""`omnigraph policy`: validate, test, explain, export."""

from __future__ import annotations

import pytest

from tests.support.desk import Desk
from tests.surfaces.policy.test_policy import LIBRARY

TESTS = """\
version: 1
cases:
  - {id: kiosk-reads, actor: kiosk, action: read, branch: main, expect: allow}
  - {id: ada-publishes, actor: ada, action: branch_merge, branch: d, target_branch: main, expect: allow}
  - {id: kiosk-writes, actor: kiosk, action: change, branch: main, expect: deny}
"""


@pytest.fixture
def bundle(desk: Desk) -> str:
    return desk.file("policy.yaml", LIBRARY)


def test_validate_counts_or_says_what_is_wrong(desk: Desk, bundle: str) -> None:
    ran = desk.run("policy", "validate", "--file", bundle)
    assert (ran.code, ran.out) == (0, "OK: 3 actors, 5 rules\n")
    assert desk.run("policy", "validate", "--file", bundle, "--json").document == {
        "ok": True,
        "actors": 3,
        "rules": 5,
    }
    wrong = desk.run("policy", "validate", "--file", desk.file("w.yaml", LIBRARY.replace("any", "anny")))
    assert (wrong.code, "did you mean 'any'" in wrong.err) == (1, True)
    assert desk.run("policy", "validate", "--file", "none.yaml").code == 2
    assert desk.run("policy", "validate").code == 2


def test_old_spellings_are_taken_with_a_warning(desk: Desk, bundle: str) -> None:
    for flag in ("--policy", "--config"):
        ran = desk.run("policy", "validate", flag, bundle)
        assert (ran.code, "now '--file'" in ran.err) == (0, True)


def test_tests_pass_or_fail_with_the_reason(desk: Desk, bundle: str) -> None:
    passed = desk.run("policy", "test", "--file", bundle, "--tests", desk.file("t.yaml", TESTS))
    assert (passed.code, passed.out.splitlines()[-1]) == (0, "3 cases, 0 failed")
    wrong = desk.file("w.yaml", TESTS.replace("expect: deny", "expect: allow"))
    failed = desk.run("policy", "test", "--file", bundle, "--tests", wrong, "--json")
    assert failed.code == 1
    assert failed.document["ok"] is False
    assert [case["ok"] for case in failed.document["cases"]] == [True, True, False]
    misspelt = desk.file("m.yaml", TESTS.replace("expect: deny", "expects: deny"))
    assert desk.run("policy", "test", "--file", bundle, "--tests", misspelt).code == 1


def test_explain_names_the_rule_or_the_nearest_ones(desk: Desk, bundle: str) -> None:
    asked = ("policy", "explain", "--file", bundle, "--actor", "kiosk", "--action", "read")
    assert desk.run(*asked, "--branch", "main", "--json").document == {
        "decision": "allow",
        "actor": "kiosk",
        "action": "read",
        "branch": "main",
        "target_branch": None,
        "matched_rule": "visitors-read-published",
        "message": "'kiosk' may read (branch 'main'): by rule 'visitors-read-published'",
    }
    denied = desk.run(*asked, "--branch", "draft")
    assert denied.code == 0
    assert "nearest rule 'visitors-read-published': branch 'draft' is not protected" in denied.out
    assert desk.run(*asked, "--json").document["branch"] is None  # the default branch is not meant
    assert desk.run(*asked[:-1], "reda").code == 2


def test_export_prints_what_cedar_reads(desk: Desk, bundle: str) -> None:
    import cedarpy

    ran = desk.run("policy", "export", "--file", bundle, "--cedar")
    assert ran.out.count("permit(") == 8
    cedarpy.PolicySet.from_str(ran.out)
    assert desk.run("policy", "export", "--file", bundle, "--json").document["cedar"] == ran.out.rstrip("\n")
