"""The code blocks of README and docs run, in order, and print what the page says.

`python` blocks run in one namespace, and a `text` block after one is what it printed. In a `console` block
the lines after `$ ` are given to a shell, the lines below are what they printed; `…` stands for anything.
A line that is nothing but our own command runs in this process, which saves the second it takes to start.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from omnigraph.surfaces.cli.app import main
from omnigraph.surfaces.cli.support.call import LOGGER

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Run by tests/spark/test_page.py, on the one Spark of the tests.
ON_SPARK = [page for page in PAGES if "from omnigraph.pipeline" in page.read_text()]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# Quoted words may hold anything; outside of quotes, nothing may stand that a shell would act on.
OWN_COMMAND = re.compile(r"omnigraph (?:'[^']*'|[^'\"|<>&;$`*?~(){}\\\n])*")


def blocks(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (language, content, line) of each fenced block."""
    for found in BLOCK.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def with_code() -> list[Path]:
    """Return the pages that have blocks to run here."""
    return [
        page
        for page in PAGES
        if page not in ON_SPARK
        and any(language in ("python", "console") for language, _, _ in blocks(page.read_text()))
    ]


def commands(content: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block, here-document included, with the lines that it prints."""
    command, printed, until = "", list[str](), ""
    for line in content.splitlines():
        if until:
            command += f"\n{line}"
            until = "" if line == until else until
        elif line.startswith("$ "):
            if command:
                yield command, printed
            command, printed = line.removeprefix("$ "), []
            here = re.search(r"<<'(\w+)'", line)
            until = here[1] if here else ""
        else:
            printed.append(line)
    yield command, printed


def check_console(content: str, where: str) -> None:
    """Run the commands of a console block in the working directory."""
    for command, expected in commands(content):
        output = run_here(command) if OWN_COMMAND.fullmatch(command) else run_in_shell(command)
        pattern = "\n".join(re.escape(line).replace("…", ".*") for line in expected)
        assert re.fullmatch(pattern, output.rstrip("\n")), f"{where}: {command}\n{output}"


def run_in_shell(command: str) -> str:
    """Return what a command line prints."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "OG_HOME": str(Path.cwd())}
    ran = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=False,
    )
    return ran.stdout


def run_here(command: str) -> str:
    """Return what our own command prints."""
    output = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    logger = logging.getLogger(LOGGER)
    before, level = list(logger.handlers), logger.level
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        patch.setenv("OG_HOME", str(Path.cwd()))
        patch.setenv("COLUMNS", "80")  # as in a shell without a terminal
        main(shlex.split(command)[1:])
    logger.handlers[:] = before  # a run leaves its handler, whose stream ends here
    logger.setLevel(level)
    return output.buffer.getvalue().decode().replace("\r\n", "\n")


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(page, tmp_path, monkeypatch)


def check_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # `omnigraph` is there
    names: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    for language, content, line in blocks(page.read_text()):
        if language == "python":
            output = StringIO()
            with redirect_stdout(output):
                exec(compile("\n" * (line - 1) + content, str(page), "exec"), names)
            printed = output.getvalue()
        elif language == "text" and printed:
            assert printed == content, f"{page.name}:{line}"
            printed = None
        elif language == "console":
            check_console(content, f"{page.name}:{line}")
    assert not printed, f"{page.name}: a block prints, but the page does not show what"


@pytest.mark.parametrize(
    "lie",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```console\n$ echo 1\n2\n```\n",
        "```console\n$ echo 1\n$ echo 2\n2\n```\n",
        "```console\n$ cat <<'END'\n1\nEND\n1…3\n```\n",
    ],
)
def test_a_page_that_lies_is_caught(lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "lie.md"
    page.write_text(lie)
    with pytest.raises(AssertionError):
        test_the_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_say_how_many_rows_a_driver_takes() -> None:
    from omnigraph.pipeline.bulk.load import DRIVER_ROWS

    lines = [line for page in PAGES for line in page.read_text().splitlines() if "| `driver_rows` |" in line]

    assert len(lines) == 2
    assert [line for line in lines if f"{DRIVER_ROWS:,}" not in line] == []
