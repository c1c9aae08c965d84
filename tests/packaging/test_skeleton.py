"""The promises of the packaging: pins that are complete, scripts that run, files that name no machine."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ["scripts/setup.sh", "scripts/test", "scripts/demo", ".ci/run"]

# Taken by others by name, imported by nothing here.
NAMED = {"httptools"}

# Spelled so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:home|Users|root|work)/[\w.]")
REGISTRY = re.compile(
    r"pypi\.(?:org|python)|python[h]osted|index[-]url|find[-]links|https?://[^\s/]+/simple\b"
)


def pyproject() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared() -> list[Requirement]:
    project, build = pyproject()["project"], pyproject()["build-system"]
    core, extras, tools = project["dependencies"], project["optional-dependencies"], build["requires"]
    assert isinstance(core, list)
    assert isinstance(extras, dict)
    assert isinstance(tools, list)
    return [Requirement(text) for text in (*core, *(r for extra in extras.values() for r in extra), *tools)]


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): Version(version) for name, version in (li.split("==") for li in lines)}


def needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what an installed distribution asks for on this machine."""
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        wanted = extras or {""}
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in wanted):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def used_by_folder() -> list[tuple[str, str]]:
    """List the folder that needs each dependency of the package, its extras and the benchmarks."""
    project = pyproject()["project"]
    core, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(core, list)
    assert isinstance(extras, dict)
    groups = [("src", core), *(("bench" if extra == "bench" else "src", extras[extra]) for extra in extras)]
    return [
        (folder, canonicalize_name(Requirement(text).name))
        for folder, texts in groups
        if texts is not extras["dev"]
        for text in texts
        if canonicalize_name(Requirement(text).name) not in NAMED
    ]


@cache
def imported(folder: str) -> frozenset[str]:
    """Return the top-level modules that the Python files of a folder import."""
    modules: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                modules.add(node.module.partition(".")[0])
    return frozenset(modules)


def files_under_version_control() -> list[Path]:
    """List tracked files, and those about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_constraints_hold_exact_pins_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    assert lines == sorted(set(lines))
    assert len(pins()) == len(lines)


@pytest.mark.parametrize("requirement", declared(), ids=lambda r: r.name)
def test_every_declared_dependency_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "requirement"), used_by_folder(), ids=str)
def test_every_dependency_is_imported_by_what_it_is_declared_for(folder: str, requirement: str) -> None:
    """Tools of the extra `dev` are run, not imported; all else that nothing imports is to be removed."""
    modules = {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if any(canonicalize_name(distribution) == requirement for distribution in distributions)
    }
    assert (modules or {requirement}) & imported(folder)


def test_what_the_dependencies_need_in_turn_is_pinned_and_installed_as_pinned() -> None:
    todo = [("omnigraph", frozenset({"spark", "server", "otel", "policy", "dev"}))]
    seen = set(todo)
    installed: dict[str, Version] = {}
    while todo:
        for found in needed(*todo.pop()):
            installed[found[0]] = Version(importlib.metadata.version(found[0]))
            if found not in seen:
                seen.add(found)
                todo.append(found)

    assert {name: version for name, version in installed.items() if pins().get(name) != version} == {}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_and_parse(script: str) -> None:
    path = ROOT / script

    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files_under_version_control()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line) or REGISTRY.search(line)
    ]

    assert findings == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("omnigraph-*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_carries_its_types_and_licence_and_only_the_package(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()

    assert {"omnigraph/py.typed", "omnigraph/pipeline/log4j2.properties"} <= set(names)
    assert {f"omnigraph/language/{part}/tables.json" for part in ("query", "schema")} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"omnigraph"}


def test_a_plain_install_asks_for_neither_spark_nor_a_server(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    asked = [
        Requirement(li[15:])
        for li in wheel.read(metadata).decode().splitlines()
        if li.startswith("Requires-Dist")
    ]
    plain = {r.name for r in asked if r.marker is None or r.marker.evaluate({"extra": ""})}

    assert {"pylance", "datafusion", "typer"} <= plain
    assert plain.isdisjoint({"pyspark", "pandas", "fastapi", "uvicorn", "pytest"})


def test_what_is_banned_everywhere_is_banned_in_the_package() -> None:
    """Ruff replaces a list of banned names by the nearer one, so that one has to repeat the other."""

    def banned(config: dict[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = config["lint"]["flake8-tidy-imports"]["banned-api"]
        return names

    everywhere = banned(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"])
    in_the_package = banned(tomllib.loads((ROOT / "src/ruff.toml").read_text()))
    assert everywhere.items() <= in_the_package.items()
