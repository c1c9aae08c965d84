"""Source rules: the package's code keeps them, and each rule is able to notice when it does not."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest

import omnigraph
from omnigraph.storage.durability import Step, names
from tests.storage import rules

pytestmark = pytest.mark.xdist_group("source-rules")  # the source is read once
STEPS = frozenset(step.name for step in Step)
RULES: dict[str, rules.Rule] = {
    "one opener": rules.one_opener,
    "reads are announced": rules.reads_are_announced,
    "tables commit detached": rules.tables_commit_detached,
    "metadata commits swap": rules.metadata_commits_swap,
    "nothing is replaced": rules.nothing_is_replaced,
    "no forbidden calls": rules.no_forbidden_calls,
    "one publisher": rules.one_publisher,
    "durable steps are marked": rules.durable_steps_are_marked,
    "every step is used": partial(rules.every_step_is_used, steps=STEPS),
}
STAGE, METADATA = "storage/tables/stage.py", "storage/manifest/chain.py"
STORE, BRANCHES = "storage/store.py", "storage/manifest/branches.py"
# For each rule, code that breaks it: where it stands, and what it says.
BAD: dict[str, list[tuple[str, str]]] = {
    "one opener": [
        (STAGE, "handle = lance.dataset(uri, version=3)"),
        (STORE, "handle = LanceDataset(uri)"),
        ("execution/scan.py", "from lance import dataset\nhandle = dataset(uri)"),
        (STAGE, "handle = self._opener.latest('tables/t')"),
    ],
    "reads are announced": [
        ("execution/entities.py", "rows = table.handle._take_rows(addresses, columns=names)"),
        ("execution/search/parts.py", "scan = table.handle.scanner(columns=[])"),
        (STAGE, "reader = LanceFileReader(path)"),
        (STAGE, "scan = ScannerBuilder(handle).columns([])"),
    ],
    "tables commit detached": [
        (STAGE, "LanceDataset.commit(base, op, read_version=1)"),
        (STAGE, "LanceDataset.commit(b, op, read_version=1, detached=False)"),
        (STAGE, "LanceDataset.commit(b, op, read_version=1, detached=flag)"),
        ("storage/tables/keys.py", "lance.LanceDataset.commit(base, tx, detached=True)"),
    ],
    "metadata commits swap": [
        (METADATA, "LanceDataset.commit(handle, op, read_version=1)"),
        ("storage/tables/files.py", "LanceDataset.commit(uri, op, max_retries=5)"),
    ],
    "nothing is replaced": [
        (METADATA, "LanceOperation.UpdateMap(updates, replace=True)"),
    ],
    "no forbidden calls": [
        (STORE, "handle.cleanup_old_versions()"),
        (STORE, "handle.restore()"),
        ("storage/opener.py", "handle.checkout_latest()"),
        (BRANCHES, "handle.create_branch('dev')"),
        (STAGE, "self._base.merge_insert('id').execute(rows)"),
        ("pipeline/driver.py", "os.fork()"),
        ("pipeline/driver.py", "multiprocessing.get_context('fork')"),
    ],
    "one publisher": [
        ("storage/staging.py", "chain.commit(*advance(base, record, pins), Step.PUBLISH)"),
        ("engine/load.py", "now.chain.commit(*control(state), Step.FLOOR)"),
        ("storage/publish.py", "chain.commit(state, {'table/t': pin}, Step.PUBLISH)"),
        (BRANCHES, "chain.commit(*made_elsewhere(state), Step.FLOOR)"),
    ],
    "durable steps are marked": [
        (STAGE, "write_fragments(rows, base)"),
        (STAGE, "fragment.delete_rows(offsets)"),
        (STAGE, "with durable(Step.TABLE_DATA):\n  pass\nfragment.merge_columns(f)"),
        (STAGE, "handle.create_index_uncommitted('id', 'BTREE')"),
        (STAGE, "with other(Step.TABLE_COMMIT):\n  LanceDataset.commit(base, op)"),
        ("storage/schema_objects.py", "self._location.objects.create(key, data)"),
        ("storage/staging.py", "self._syncer.files(paths)"),
        (METADATA, "self._syncer.files(paths)"),
    ],
    "every step is used": [
        (STORE, "durable(Step.GENESIS)"),
    ],
}


@pytest.fixture(scope="module")
def source() -> rules.Modules:
    return rules.load(Path(str(omnigraph.__file__)).parent)


def test_the_source_keeps_every_rule(source: rules.Modules) -> None:
    assert [(name, finding) for name, rule in RULES.items() for finding in rule(source)] == []


@pytest.mark.parametrize(
    ("rule", "where", "code"), [(rule, *one) for rule, found in BAD.items() for one in found]
)
def test_the_rule_notices_when_it_is_broken(rule: str, where: str, code: str) -> None:
    assert list(RULES[rule]({where: ast.parse(code)}))


def test_every_rule_is_seen_to_fail() -> None:
    assert BAD.keys() == RULES.keys()


def test_code_that_is_marked_as_it_should_be_is_accepted() -> None:
    code = """
with durable(Step.TABLE_DATA):
    new = list(write_fragments(rows, base))
with durable(Step.TABLE_COMMIT):
    done = LanceDataset.commit(base, op, read_version=base.version, detached=True)
"""
    modules = {"storage/tables/stage.py": ast.parse(code)}

    assert [
        finding for name, rule in RULES.items() if name != "every step is used" for finding in rule(modules)
    ] == []


def test_the_rules_look_at_real_code(source: rules.Modules) -> None:
    """A checker that finds no durable calls at all would pass everything."""
    found = {what for name, call in rules._calls(source) if (what := rules._durable(name, call)) is not None}

    assert found == {*rules.DURABLE, "LanceDataset.commit", "objects.create", "syncer.files"}
    assert sum("LanceDataset.commit" in rules._dotted(call.func) for _, call in rules._calls(source)) >= 4


def test_every_exception_to_the_marking_is_still_needed(source: rules.Modules) -> None:
    found = {(name, rules._durable(name, call)) for name, call in rules._calls(source)}

    assert rules.UNMARKED.keys() <= found


def test_every_durable_step_has_a_point_before_it_and_one_after_it() -> None:
    assert names() == tuple(f"{step.value}.{side}" for step in Step for side in ("before", "after"))
