"""Which engine carries a load out is chosen by the size of its files, and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.load import load
from omnigraph.engine.load.load import chosen_engine


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is large enough for Spark, in a folder where the process works."""
    monkeypatch.setattr(load, "SPARK_ABOVE", 10)
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "Person.csv"
    made.write_text("name\n" + "x" * 20)
    return made


def test_files_and_folders_are_weighed_however_they_are_given(file: Path) -> None:
    single: list[Any] = [file, str(file), file.parent, {"Person": file}]
    for data in [*single, [file], (str(file),), {"Person": [file]}]:
        assert chosen_engine(data) == "spark", data


def test_values_of_records_are_never_taken_for_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["", ".", "/", str(file), [str(file), ""]]
    records = [{"type": "Person", "data": {"name": value}} for value in values]
    plain = [{"name": value} for value in values]
    looked_at: list[Path] = []

    def weighed(path: Path) -> int:
        looked_at.append(path)
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(load, "_size", weighed)
        inputs: list[Any] = [records, tuple(records), iter(records), {"Person": plain}, {"Person": []}, []]
        chosen = {chosen_engine(data) for data in inputs}

    assert (chosen, looked_at) == ({"local"}, [])


def test_what_is_not_there_weighs_nothing_and_is_told_by_whoever_reads_it(file: Path) -> None:
    for data in ("", "no-such-file.csv", ["", "no-such-file.csv"], "name\nAda\n", "\0"):
        assert chosen_engine(data) == "local", data
