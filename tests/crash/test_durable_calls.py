"""No call that makes something durable is outside a failpoint, so no step can escape the crash tests.

A check of the source: each call named below stands inside `with durable(...)`, or in a function that is
listed with the reason why not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import omnigraph.storage

SOURCE = Path(omnigraph.storage.__file__).parent

# Calls that write to storage; where a method's name is common, with the object it is called on.
WRITES = {
    "LanceDataset.commit",
    "obstore.put",
    "obstore.delete",
    "obstore.rename",
    "obstore.open_writer",
    "objects.create",
    "objects.delete",
    "objects.write",
    "write_fragments",
    "delete_rows",
    "merge_columns",
    "create_index_uncommitted",
    "new_file",
    "os.replace",
}
OURS = ("bench", "self")  # methods of our own may have the name of the Lance call that they wrap


ALLOWED = {
    ("derived/files.py", "_write_local"): "a part of write, which is inside a failpoint",
    ("location.py", "create"): "the primitive; its callers are on the list",
    ("location.py", "delete"): "the primitive; its callers are on the list",
    ("location.py", "move"): "for exports, which are no part of a graph",
    ("location.py", "write"): "the primitive; its callers are on the list",
    ("location.py", "writer"): "for exports, which are no part of a graph",
    ("store.py", "check_create_if_absent"): "a scratch object that nothing ever refers to",
    ("store.py", "probe_conditional_writes"): "a scratch object that nothing ever refers to",
    (
        "diagnose.py",
        "clear",
    ): "clears what a dead init left, when told to; repeating it finishes the job",
}


def called(node: ast.Call) -> str:
    """Return the last two names of what is called: `objects.create` for `self._location.objects.create()`."""
    names = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        names.append(target.attr)
        target = target.value
    if isinstance(target, ast.Name):
        names.append(target.id)
    return ".".join(reversed(names[:2]))


def is_durable(node: ast.With) -> bool:
    """Say whether a `with` statement is a failpoint."""
    calls = (item.context_expr for item in node.items)
    return any(isinstance(call, ast.Call) and called(call) == "durable" for call in calls)


def exposed(node: ast.AST, function: str = "", covered: bool = False) -> Iterator[tuple[str, str, int]]:
    """Yield (function, call, line) of each write that stands outside a failpoint."""
    if isinstance(node, ast.FunctionDef):
        function, covered = node.name, False
    if isinstance(node, ast.With) and is_durable(node):
        covered = True
    if isinstance(node, ast.Call) and not covered:
        name = called(node)
        owner, _, last = name.rpartition(".")
        if name in WRITES or (last in WRITES and owner not in OURS):
            yield function, name, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from exposed(child, function, covered)


def every_exposed_write() -> list[tuple[str, str, str, int]]:
    """Return (file, function, call, line) for the whole package."""
    return [
        (path.relative_to(SOURCE).as_posix(), *found)
        for path in sorted(SOURCE.rglob("*.py"))
        for found in exposed(ast.parse(path.read_text()))
    ]


def test_every_write_to_storage_stands_inside_a_failpoint() -> None:
    found = every_exposed_write()

    assert [one for one in found if one[:2] not in ALLOWED] == []


def test_no_exception_is_listed_that_is_not_needed() -> None:
    assert {one[:2] for one in every_exposed_write()} == set(ALLOWED)


def test_the_check_sees_a_write_outside_a_failpoint() -> None:
    code = """
def stage(base):
    with durable(Step.TABLE_DATA):
        write_fragments(rows, base)
    LanceDataset.commit(base, change)
"""
    assert list(exposed(ast.parse(code))) == [("stage", "LanceDataset.commit", 5)]
