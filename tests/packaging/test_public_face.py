"""The public face: what `omnigraph` exports, what type checkers see of it, and who may reach behind it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.base.errors import GraphError
from tests.packaging import sample_program

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/packaging/sample_program.py"
PUBLIC = ("omnigraph", "omnigraph.pipeline")
PROMISED = {
    *("Graph", "Result", "Receipt", "Diff", "MergeOutcome", "Conflict", "Commit", "Branch"),
    *("lint", "init", "connect", "__version__", "GraphError", "InvalidRequest", "QueryError", "SchemaError"),
    *("NotFound", "MergeConflict", "KeyConflict", "PreconditionFailed", "ConstraintViolation"),
    *("HistoryReclaimed", "StorageError", "LimitExceeded"),
}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_only_public_names_show_and_each_can_be_had() -> None:
    assert dir(og) == sorted(og.__all__)
    assert set(og.__all__) >= PROMISED
    assert {name for name in og.__all__ if not hasattr(og, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        og.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_are_told_the_same_names_from_the_same_modules() -> None:
    told = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.parse((ROOT / "src/omnigraph/__init__.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*told, "__version__"]) == sorted(og.__all__)
    for name, (module, inner) in told.items():
        assert module is not None
        assert getattr(og, name) is getattr(importlib.import_module(module), inner)


def test_importing_the_package_and_listing_it_loads_nothing_else() -> None:
    program = (
        "import sys, omnigraph; dir(omnigraph)\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('omnigraph', 'lance', 'pyarrow', 'numpy', 'datafusion')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['omnigraph']"


def test_every_error_code_is_spelt_in_one_class() -> None:
    for module in pkgutil.walk_packages([str(ROOT / "src/omnigraph")], "omnigraph."):
        if not module.name.startswith("omnigraph.pipeline"):
            importlib.import_module(module.name)
    spelt: dict[str, list[str]] = {}
    waiting = [GraphError]
    for error in waiting:
        waiting += error.__subclasses__()
        if "code" in vars(error) and error.__module__.startswith("omnigraph."):
            spelt.setdefault(error.code, []).append(error.__name__)
    assert {code: classes for code, classes in spelt.items() if len(set(classes)) > 1} == {}
    assert [code for code in spelt if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []
    assert spelt["merge_conflict"] == ["MergeConflict"]


# -- a program of a user -------------------------------------------------------------------------------


def test_the_sample_program_does_what_it_says() -> None:
    assert sample_program.main() == [
        *("1 draft", "insert Bo", "fast_forward", "Bo", "1 2", "merge main", "1815"),
        *("precondition_failed True", "constraint_violation orphan_edge 1", "compile_error T6 0", "True"),
    ]


def test_pyright_accepts_the_sample_program_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    """mypy reads the sample in scripts/test, with all tests."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import omnigraph as og\n\nnumber: int = og.connect("a")\n')
    command = [sys.executable, "-m", "basedpyright", "--level", "error"]
    ran, refused = (
        subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
        for file in (SAMPLE, wrong)
    )
    assert ran.returncode == 0, ran.stdout
    assert refused.returncode == 1, refused.stdout
    assert '"Graph" is not assignable to "int"' in refused.stdout


# -- who imports what ----------------------------------------------------------------------------------


def test_examples_docs_the_demo_and_logic_tests_use_only_the_public_face() -> None:
    files = [ROOT / "scripts/demo.py"]
    files += [path for folder in ("examples", "tests/logic") for path in (ROOT / folder).rglob("*.py")]
    texts = [(path, path.read_text()) for path in files]
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        texts += [(page, block[1]) for block in BLOCK.finditer(page.read_text())]
    behind = [f"{path.relative_to(ROOT)}: {name}" for path, text in texts for name in _behind(text)]
    assert behind == []
    assert len(texts) > 50


def _behind(text: str) -> Iterator[str]:
    """Yield what a program imports of the package that is not public."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "omnigraph":
            names = [f"omnigraph.{alias.name}" for alias in node.names if alias.name not in og.__all__]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        yield from (name for name in names if name.startswith("omnigraph.") and name not in PUBLIC)
