"""Source rules: what the package's code may not do, found by reading it.

A rule is a function from parsed modules to findings. Each is a sentence of the design that a type checker
cannot hold: one opener, one publisher, no commit that moves a table's head, no durable step unmarked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Modules = Mapping[str, ast.Module]
Rule = Callable[[Modules], Iterator[str]]

FORBIDDEN_CALLS = {
    "add_columns": "moves the head; use an effect",
    "alter_columns": "moves the head; use an effect",
    "checkout_latest": "mutates a shared handle",
    "cleanup_old_versions": "deletes files that only detached versions name (B2)",
    "compact_files": "moves the head",
    "create_branch": "not crash-atomic (B7)",
    "create_index": "moves the head",
    "create_scalar_index": "moves the head",
    "fork": "Lance does not survive a fork (B12)",
    "merge_insert": "may patch columns (B4), and costs more requests than our own path",
    "restore": "moves the head",
    "update_config": "moves the head",
    "write_dataset": "moves the head",
}
MOVES_A_HEAD = ("storage/manifest/chain.py", "storage/tables/files.py")  # metadata, and creation itself
PUBLISHERS = ("storage/publish.py", "storage/turns.py", "storage/manifest/branches.py", "storage/store.py")
MAKES_STATES = ("advance", "control")  # both always write graph_head (test_records.py)
READS_OF_LANCE = {
    ".scanner": "storage/lance_reads.py",
    "._take_rows": "storage/lance_reads.py",
    ".FFILanceTableProvider": "storage/lance_reads.py",
    "ScannerBuilder": "storage/lance_reads.py",
    "LanceFileReader": "storage/derived/files.py",
}
DURABLE = {"write_fragments", "delete_rows", "merge_columns", "create_index_uncommitted"}
SYNCS_BEFORE_PUBLISHING = ("storage/staging.py", "storage/manifest/chain.py")
UNMARKED = {
    ("engine/doctor/environment.py", "objects.create"): "a scratch object for its time, taken away again",
    ("storage/store.py", "objects.create"): "the probe for create-if-absent, which is taken away again",
}


def load(root: Path) -> Modules:
    """Parse every module below a package folder; names are relative to it."""
    found = sorted(root.rglob("*.py"))
    return {str(path.relative_to(root)): ast.parse(path.read_text("utf-8")) for path in found}


def one_opener(modules: Modules) -> Iterator[str]:
    """Datasets are opened in storage/opener.py only."""
    for name, call in _calls(modules):
        if _dotted(call.func) in ("lance.dataset", "dataset", "LanceDataset", "lance.LanceDataset"):
            if name != "storage/opener.py":
                yield f"{name}:{call.lineno}: opens a dataset"
        elif _dotted(call.func).endswith("opener.latest") and name != "storage/manifest/chain.py":
            yield f"{name}:{call.lineno}: opens by latest"


def reads_are_announced(modules: Modules) -> Iterator[str]:
    """Rows are read with Lance in storage/lance_reads.py only, which tells the meter of the operation."""
    for name, call in _calls(modules):
        _, dot, last = _dotted(call.func).rpartition(".")
        inside = READS_OF_LANCE.get(f"{dot}{last}", name)
        if inside != name and not name.startswith("pipeline/"):  # tasks of Spark are not measured
            yield f"{name}:{call.lineno}: {last} belongs into {inside}"


def tables_commit_detached(modules: Modules) -> Iterator[str]:
    """Only creation and metadata move a head; every other commit is detached."""
    for name, call in _calls(modules):
        if _dotted(call.func).endswith("LanceDataset.commit") and name not in MOVES_A_HEAD:
            if not _is_true(_keyword(call, "detached")):
                yield f"{name}:{call.lineno}: commits without detached=True"
            if _keyword(call, "read_version") is None:
                yield f"{name}:{call.lineno}: commits without saying which version it was staged from (B3)"


def metadata_commits_swap(modules: Modules) -> Iterator[str]:
    """A commit that moves a head is never repeated by Lance on a newer version."""
    for name, call in _calls(modules):
        if _dotted(call.func).endswith("LanceDataset.commit") and name in MOVES_A_HEAD:
            retries = _keyword(call, "max_retries")
            if not (isinstance(retries, ast.Constant) and retries.value == 0):
                yield f"{name}:{call.lineno}: lets Lance rebase and retry"


def nothing_is_replaced(modules: Modules) -> Iterator[str]:
    """No map is replaced as a whole (B10)."""
    for name, call in _calls(modules):
        if _is_true(_keyword(call, "replace")):
            yield f"{name}:{call.lineno}: replace=True"


def no_forbidden_calls(modules: Modules) -> Iterator[str]:
    """Calls that would break the storage model, each with its reason."""
    for name, call in _calls(modules):
        last = _dotted(call.func).rsplit(".", 1)[-1]
        if last in FORBIDDEN_CALLS:
            yield f"{name}:{call.lineno}: {last}: {FORBIDDEN_CALLS[last]}"
        if last == "get_context" and any(_is_text(argument, "fork") for argument in call.args):
            yield f"{name}:{call.lineno}: fork: {FORBIDDEN_CALLS['fork']}"


def one_publisher(modules: Modules) -> Iterator[str]:
    """A chain is committed to by the publisher, the branch protocol and the floor, always with its head."""
    for name, call in _calls(modules):
        target = _dotted(call.func)
        if not target.endswith(".commit") or target.endswith("LanceDataset.commit"):
            continue
        if target == "self._dataset.commit" and name.startswith("storage/manifest/"):
            continue  # a chain or the registry, on its own dataset
        if name not in PUBLISHERS:
            yield f"{name}:{call.lineno}: commits to a chain"
        elif not (call.args and isinstance(call.args[0], ast.Starred) and _makes_state(call.args[0].value)):
            yield f"{name}:{call.lineno}: commits something other than the result of advance or control"


def durable_steps_are_marked(modules: Modules) -> Iterator[str]:
    """Whatever makes something durable stands in a `with durable(...)` block."""
    for name, module in modules.items():
        marked = {
            id(inner)
            for node in ast.walk(module)
            if isinstance(node, ast.With)
            and any(
                isinstance(item.context_expr, ast.Call) and _dotted(item.context_expr.func) == "durable"
                for item in node.items
            )
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
            what = _durable(name, call)
            if what is not None and id(call) not in marked and (name, what) not in UNMARKED:
                yield f"{name}:{call.lineno}: {what} outside a durable block"


def every_step_is_used(modules: Modules, steps: frozenset[str]) -> Iterator[str]:
    """No failpoint is declared that nothing passes."""
    used = {
        node.attr
        for name, module in modules.items()
        if name != "storage/durability.py"
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and _dotted(node.value) == "Step"
    }
    yield from (f"Step.{name} is used nowhere" for name in sorted(steps - used))


def _durable(name: str, call: ast.Call) -> str | None:
    """Return the name of the durable thing that a call does, if it does one."""
    target = _dotted(call.func)
    last = target.rsplit(".", 1)[-1]
    if target.endswith("LanceDataset.commit"):
        return "LanceDataset.commit"
    if target.endswith(("objects.create", "objects.put")):
        return "objects.create"
    if target.endswith("syncer.files") and name in SYNCS_BEFORE_PUBLISHING:
        return "syncer.files"
    return last if last in DURABLE else None


def _calls(modules: Modules) -> Iterator[tuple[str, ast.Call]]:
    for name, module in modules.items():
        yield from ((name, node) for node in ast.walk(module) if isinstance(node, ast.Call))


def _makes_state(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func) in MAKES_STATES


def _dotted(node: ast.expr) -> str:
    """Return a.b.c for an attribute chain; whatever it hangs on besides names is left out."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
