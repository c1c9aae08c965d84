"""Logging of the command line: on stderr, from the level asked for, as text or as JSON lines."""

from __future__ import annotations

import json
import logging

import pytest

from omnigraph.surfaces.cli.support.call import LOGGER, JsonFormatter
from tests.support.desk import GROWN, LESS, SCHEMA, Desk


def apply(desk: Desk, *flags: str) -> list[str]:
    """Apply a schema quietly and return the lines on stderr."""
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN), "--quiet")
    return desk.run(*given, *flags).err.splitlines()


def test_nothing_is_logged_unless_asked_for(desk: Desk) -> None:
    assert apply(desk) == []


def test_info_names_the_commit_that_changed_the_schema(desk: Desk) -> None:
    (line,) = apply(desk, "--log-level", "info")
    assert "INFO omnigraph.engine.schema.schema: schema of main changed by commit" in line


def test_debug_says_how_the_command_ended(desk: Desk) -> None:
    assert "exit code 0" in apply(desk, "--log-level", "debug")[-1]


def test_json_lines_can_be_read_by_machines(desk: Desk) -> None:
    lines = [json.loads(line) for line in apply(desk, "--log-level", "debug", "--log-format", "json")]
    assert all(line.keys() == {"time", "level", "logger", "message"} for line in lines)
    assert {"info", "debug"} == {line["level"] for line in lines}
    assert all(line["logger"].startswith("omnigraph.") for line in lines)


def test_the_environment_may_say_how_to_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOG_LEVEL", "info")
    monkeypatch.setenv("OG_LOG_FORMAT", "json")
    (line,) = apply(desk)
    assert json.loads(line)["level"] == "info"


def test_a_flag_wins_over_the_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOG_LEVEL", "info")
    assert apply(desk, "--log-level", "warning") == []


def test_logs_never_mix_with_the_document_on_stdout(desk: Desk) -> None:
    ran = desk.run("schema", "show", desk.started(), "--json", "--log-level", "debug")
    assert ran.document["schema_source"] == SCHEMA
    assert "exit code" in ran.err


def test_what_a_reclaim_took_away_is_logged(desk: Desk) -> None:
    given = ("schema", "apply", desk.started(), "--schema", desk.file("s.pg", LESS), "--allow-data-loss")
    ran = desk.run(*given, "--confirm", "--quiet", "--log-level", "info", "--log-format", "json")
    messages = [json.loads(line)["message"] for line in ran.err.splitlines()]
    assert any("of Person" in message and "reclaimed" in message for message in messages)


def test_a_second_run_in_one_process_does_not_log_twice(desk: Desk) -> None:
    graph = desk.started()
    for _ in range(2):
        ran = desk.run("schema", "show", graph, "--log-level", "debug")
        assert ran.err.count("exit code") == 1


def test_other_packages_are_left_alone(desk: Desk) -> None:
    before = list(logging.getLogger().handlers)
    desk.run("schema", "show", desk.started(), "--log-level", "debug")
    assert logging.getLogger().handlers == before
    assert logging.getLogger(LOGGER).level == logging.DEBUG


def test_a_failure_that_is_logged_keeps_its_traceback_on_one_line() -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        record = logging.LogRecord("omnigraph.x", logging.ERROR, "f", 1, "bad %s", ("luck",), None)
        record.exc_info = (type(error), error, error.__traceback__)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "bad luck"
    assert "ValueError: odd" in json.loads(line)["exception"]


@pytest.mark.parametrize("value", ["loud", ""])
def test_a_format_that_does_not_exist_is_bad_usage(desk: Desk, value: str) -> None:
    assert desk.run("version", "--log-format", value).code == 2
