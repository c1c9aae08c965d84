"""The code blocks of README and docs run, in order, and print what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (language, content, line) of each fenced block."""
    for found in BLOCK.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def with_code() -> list[Path]:
    """Return the pages that have Python blocks."""
    return [
        page for page in PAGES if any(language == "python" for language, _, _ in blocks(page.read_text()))
    ]


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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
    assert not printed, f"{page.name}: a block prints, but the page does not show what"


def test_a_page_that_lies_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "lie.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError):
        test_the_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
