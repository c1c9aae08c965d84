"""What all commands share: addresses, global flags, configuration files, exit codes, failures, help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import __version__
from omnigraph.base import errors
from omnigraph.base.errors import GraphError, Kind, PreconditionFailed, StaleVersion
from omnigraph.catalog import lint as catalog_lint
from omnigraph.storage.manifest.formats import FORMAT
from omnigraph.surfaces.cli.app import OmniGraph, main
from omnigraph.surfaces.cli.support.output import EXIT_BY_KIND, exit_code
from tests.support.desk import BROKEN, GROWN, REFUSED, SCHEMA, Desk


def commands() -> dict[str, Any]:
    """Return every command that the help texts show, by the words that call it."""
    by_words: dict[str, Any] = {}
    for name, entry in OmniGraph.table.items():
        command = entry.load(name)
        inner = getattr(command, "commands", None) or {"": command}
        shown = {word: member for word, member in inner.items() if not (command.hidden or member.hidden)}
        by_words |= {f"{name} {word}".strip(): member for word, member in shown.items()}
    return by_words


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-g", "--graph-uri", "--store", "--uri"])
def test_the_graph_can_be_named_by_any_of_its_flags(desk: Desk, flag: str) -> None:
    assert desk.run("schema", "show", flag, desk.started()).out == SCHEMA


def test_a_file_address_is_the_same_graph(desk: Desk) -> None:
    assert desk.run("schema", "show", f"file://{desk.started()}").out == SCHEMA


def test_two_addresses_are_never_a_silent_choice(desk: Desk) -> None:
    ran = desk.run("schema", "show", desk.started(), "--store", desk.graph)
    assert ran.code == 2
    assert "two addresses" in ran.err


def test_no_address_is_bad_usage_and_lists_the_ways(desk: Desk) -> None:
    ran = desk.run("schema", "show")
    assert ran.code == 2
    assert all(way in ran.err for way in ("path", "s3://", "omnigraph.yaml"))


def test_a_name_of_the_project_file_is_an_address_relative_to_it(desk: Desk) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "graphs: { library: { uri: kb.og } }\n")
    assert desk.run("schema", "show", "library").out == SCHEMA


def test_the_default_graph_of_the_project_file_is_used_when_none_is_named(desk: Desk) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "graphs: { library: { uri: kb.og } }\ncli: { graph: library }\n")
    assert desk.run("schema", "show").out == SCHEMA


def test_the_default_store_of_the_operator_comes_before_the_project_file(
    desk: Desk, operator_home: Path
) -> None:
    desk.file("omnigraph.yaml", "graphs: { library: { uri: other.og } }\ncli: { graph: library }\n")
    (operator_home / "config.yaml").write_text(f"defaults: {{ store: {desk.started()} }}\n")
    assert desk.run("schema", "show").out == SCHEMA


def test_a_profile_of_the_operator_names_a_graph(desk: Desk, operator_home: Path) -> None:
    (operator_home / "config.yaml").write_text(f"profiles: {{ laptop: {{ store: {desk.started()} }} }}\n")
    assert desk.run("schema", "show", "--profile", "laptop").out == SCHEMA


def test_the_environment_chooses_a_profile(
    desk: Desk, operator_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (operator_home / "config.yaml").write_text(f"profiles: {{ laptop: {{ store: {desk.started()} }} }}\n")
    monkeypatch.setenv("OG_PROFILE", "laptop")
    assert desk.run("schema", "show").out == SCHEMA


def test_of_all_that_names_a_graph_the_strongest_counts(
    desk: Desk, operator_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An explicit address, then a profile, OMNIGRAPH_GRAPH, the operator's default, the project file."""

    def reached(*flags: str) -> str:
        shown = desk.run("schema", "show", *flags)
        assert shown.code == 6, "each of these graphs is missing, and the error names the one looked for"
        return next(
            name for name in ("line", "profile", "environment", "defaults", "file") if name in shown.err
        )

    desk.file("omnigraph.yaml", "cli: { graph: file.og }\n")
    assert reached() == "file"
    (operator_home / "config.yaml").write_text(
        "defaults: { store: defaults.og }\nprofiles: { other: { store: profile.og } }\n"
    )
    assert reached() == "defaults"
    monkeypatch.setenv("OMNIGRAPH_GRAPH", "environment.og")
    assert reached() == "environment"
    assert reached("--profile", "other") == "profile"
    monkeypatch.setenv("OG_PROFILE", "other")
    assert reached() == "profile"
    assert reached("line.og") == "line"


def test_the_environment_may_name_a_graph_of_the_project_file(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "graphs: { library: { uri: kb.og } }\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPH", "library")
    assert desk.run("schema", "show").out == SCHEMA


@pytest.mark.parametrize("graph", ["library", "kb.og"])
def test_the_project_file_is_found_upwards_and_its_paths_count_from_its_folder(
    desk: Desk, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.started()
    desk.file("queries/all.gq", "query people() { match { $p: Person } return { $p.slug } }\n")
    desk.file(
        "omnigraph.yaml",
        f"graphs: {{ library: {{ uri: kb.og }} }}\ncli: {{ graph: {graph} }}\nquery: {{ roots: [queries] }}\n"
        "aliases: { people: { query: queries/all.gq }, roots: { query: all.gq } }\n",
    )
    deep = desk.folder / "notes" / "2026"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)

    assert desk.run("schema", "show").out == SCHEMA
    rows = desk.run("query", "--query", "all.gq", "--format", "csv").out
    assert rows == "p.slug\r\na\r\n"
    for alias in ("people", "roots"):
        assert desk.run("alias", alias, "--format", "csv").out == rows


def test_the_nearest_project_file_counts_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "cli: { graph: kb.og }\n")
    desk.file("inner/omnigraph.yaml", "cli: { branch: main }\n")
    monkeypatch.chdir(desk.folder / "inner")
    assert "no graph was named" in desk.run("schema", "show").err


def test_an_unknown_profile_is_bad_usage(desk: Desk, operator_home: Path) -> None:
    (operator_home / "config.yaml").write_text("profiles: { laptop: { store: kb.og } }\n")
    ran = desk.run("schema", "show", "--profile", "labtop")
    assert (ran.code, "did you mean 'laptop'?" in ran.err) == (2, True)


def test_the_actor_comes_from_the_operator_unless_given(desk: Desk, operator_home: Path) -> None:
    (operator_home / "config.yaml").write_text("operator: { actor: ada }\n")
    desk.run("init", desk.graph, "--schema", desk.file("start.pg", SCHEMA))
    with og.connect(desk.graph) as graph:
        assert graph.store.snapshot().state.commit.actor == "ada"
    desk.run("schema", "apply", desk.graph, "--schema", desk.file("s.pg", GROWN), "--as", "bob")
    with og.connect(desk.graph) as graph:
        assert graph.store.snapshot().state.commit.actor == "bob"


def test_the_branch_comes_from_the_project_file_unless_given(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
        graph.schema.apply(GROWN, branch="review")
    desk.file("omnigraph.yaml", "cli: { branch: review }\n")
    assert desk.run("schema", "show", desk.graph).out == GROWN
    assert desk.run("schema", "show", desk.graph, "--branch", "main").out == SCHEMA


@pytest.mark.parametrize(
    "text", ["- a list\n", "graphs: [unclosed\n", pytest.param("graphs: " + "[" * 200_000, id="deep")]
)
def test_a_configuration_file_that_cannot_be_read_is_bad_usage(desk: Desk, text: str) -> None:
    desk.file("omnigraph.yaml", text)
    ran = desk.run("schema", "show", desk.graph)
    assert ran.code == 2
    assert "omnigraph.yaml" in ran.err


MISSPELT = [
    (
        "cli: { grpah: kb.og }",
        (1, 8),
        "'cli' of the project file has no key 'grpah'",
        "did you mean 'graph'?",
    ),
    ("clii: { graph: kb.og }", (1, 1), "the project file has no key 'clii'", "did you mean 'cli'?"),
    ("graphs:\n  library: { urii: kb.og }", (2, 14), "has no key 'urii'", "did you mean 'uri'?"),
    ("graphs: { library: kb.og }", (1, 20), "'library' of 'graphs' of the project file takes a mapping", ""),
    ("cli: kb.og", (1, 6), "'cli' of the project file takes a mapping, not a text", ""),
    ("cli: { actor: no }", (1, 15), "takes a text, not a boolean", "write 'no' in quotes"),
    ("query: { root: [queries] }", (1, 10), "has no key 'root'", "did you mean 'roots'?"),
    ("query: { roots: { a: b } }", (1, 17), "takes a list, not a mapping", ""),
    ("aliases: { a: { qery: a.gq } }", (1, 17), "has no key 'qery'", "did you mean 'query'?"),
    ("aliases: { a: { query: a.gq, params: { on: 2026-02-31 } } }", (1, 44), "'on' of 'params'", ""),
    ("cli: { branch: a }\ncli: { branch: b }", (2, 1), "'cli' stands twice", ""),
    ("1: 2", (1, 1), "has no key '1'; the keys are project", ""),
]


@pytest.mark.parametrize(("text", "place", "problem", "hint"), MISSPELT)
def test_what_the_project_file_cannot_mean_is_refused_at_its_place(
    desk: Desk, text: str, place: tuple[int, int], problem: str, hint: str
) -> None:
    desk.file("omnigraph.yaml", f"{text}\n")

    ran = desk.run("branch", "list", desk.graph)

    assert ran.code == 2
    assert f"omnigraph.yaml:{place[0]}:{place[1]}: error[CF" in ran.err
    assert problem in ran.err
    assert hint in ran.err


def test_all_that_is_wrong_with_a_file_is_told_at_once(desk: Desk) -> None:
    desk.file("omnigraph.yaml", "cli: { grpah: a }\naliases: { b: }\n")
    document = desk.run("branch", "list", desk.graph, "--json").document
    assert document["code"] == "config_invalid"
    assert [one["code"] for one in document["diagnostics"]] == ["CF002", "CF004"]


def test_so_is_one_of_the_operators_config(desk: Desk, operator_home: Path) -> None:
    (operator_home / "config.yaml").write_text("defaults: { stroe: kb.og }\n")

    ran = desk.run("branch", "list")

    assert ran.code == 2
    assert "'defaults' of the operator config has no key 'stroe'" in ran.err
    assert "did you mean 'store'?" in ran.err


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "cli:\naliases:\n", "cli: { branch: }\n"])
def test_a_project_file_may_leave_everything_out(desk: Desk, text: str) -> None:
    desk.file("omnigraph.yaml", text)
    assert desk.run("schema", "show", desk.started()).out == SCHEMA


# -- global flags ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        ["--json", "--branch", "main", "schema", "show", "GRAPH"],
        ["schema", "--json", "--branch=main", "show", "GRAPH"],
        ["schema", "show", "--branch", "main", "GRAPH", "--json"],
    ],
)
def test_global_flags_may_stand_anywhere_on_the_line(desk: Desk, line: list[str]) -> None:
    graph = desk.started()
    assert (
        desk.run(*(graph if word == "GRAPH" else word for word in line)).document["schema_source"] == SCHEMA
    )


def test_a_writing_command_names_its_target_on_stderr(desk: Desk) -> None:
    ran = desk.run("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN))
    assert f"schema apply → {desk.graph} (embedded, local)" in ran.err


def test_quiet_says_nothing_on_stderr(desk: Desk) -> None:
    ran = desk.run("schema", "apply", desk.started(), "--schema", desk.file("s.pg", GROWN), "--quiet")
    assert (ran.code, ran.err) == (0, "")


def test_quiet_still_shows_errors(desk: Desk) -> None:
    assert "graph_not_found" in desk.run("schema", "show", "nowhere.og", "--quiet").err


def test_a_log_level_that_does_not_exist_is_bad_usage(desk: Desk) -> None:
    assert desk.run("version", "--log-level", "loud").code == 2


GLOBAL_FLAGS = {
    "--as": "ada", "--json": "", "--quiet": "", "--yes": "", "--dry-run": "", "--branch": "main",
    "--timeout": "1h", "--log-level": "error", "--log-format": "json", "--no-color": "", "--trace": "",
    "-v": "", "--version": "",
}  # fmt: skip


@pytest.mark.parametrize("flag", GLOBAL_FLAGS)
def test_every_global_flag_is_taken_before_and_after_the_command_and_is_in_the_help(
    desk: Desk, flag: str
) -> None:
    graph = desk.started()
    words = [flag, *([GLOBAL_FLAGS[flag]] if GLOBAL_FLAGS[flag] else [])]

    assert desk.run(*words, "schema", "show", graph).code == 0
    assert desk.run("schema", "show", graph, *words).code == 0
    assert flag in desk.run("--help").out


@pytest.mark.parametrize(
    "line", [["--version", "--json"], ["--json", "-v"], ["schema", "show", "-v", "--json"]]
)
def test_version_with_json_is_a_document_wherever_the_flags_stand(desk: Desk, line: list[str]) -> None:
    ran = desk.run(*line)
    assert (ran.code, ran.document) == (0, {"version": __version__, "storage_format": FORMAT})


def test_output_that_goes_to_no_terminal_has_no_colours(desk: Desk) -> None:
    ran = desk.run("schema", "plan", desk.started(), "--schema", desk.file("s.pg", GROWN))
    assert "\x1b[" not in ran.out


# -- exit codes ------------------------------------------------------------------------------------


def test_every_kind_of_error_has_an_exit_code() -> None:
    assert set(EXIT_BY_KIND) == set(Kind)


def _every_error() -> list[type[GraphError]]:
    found, waiting = [], [GraphError]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += one.__subclasses__()
    return found


@pytest.mark.parametrize("error", _every_error(), ids=lambda error: error.__name__)
def test_every_class_of_error_has_one_of_the_documented_exit_codes(error: type[GraphError]) -> None:
    made = error.__new__(error)
    GraphError.__init__(made, "text")
    assert exit_code(made) in {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("x"), 2),
        (errors.StorageDenied("x"), 3),
        (PreconditionFailed("main", expected="a", actual="b"), 4),
        (StaleVersion("schema", expected="a", actual="b"), 5),
        (errors.AlreadyInitialized("x"), 5),
        (errors.GraphNotFound("x"), 6),
        (errors.BranchNotFound("x"), 6),
        (errors.StorageError("x"), 7),
        (errors.IntegrityError("x"), 1),
        (errors.SchemaUnsupported("x"), 1),
        (errors.ConstraintViolation("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, GraphError) else str(value),
)
def test_an_error_exits_with_the_code_of_its_kind(error: GraphError, code: int) -> None:
    assert exit_code(error) == code


# -- failures --------------------------------------------------------------------------------------

STALE = "01" + "0" * 24
Failure = tuple[list[str], int, str]
FAILURES: dict[str, Failure] = {
    "graph not found": (["schema", "show", "nowhere.og"], 6, "graph_not_found"),
    "branch not found": (["schema", "show", "GRAPH", "--branch", "nowhere"], 6, "branch_not_found"),
    "commit not found": (["schema", "show", "GRAPH", "--snapshot", "01" + "0" * 24], 6, "commit_not_found"),
    "no address": (["schema", "show"], 2, "bad_request"),
    "two addresses": (["schema", "show", "GRAPH", "-g", "GRAPH"], 2, "bad_request"),
    "schema with errors": (["schema", "apply", "GRAPH", "--schema", "BROKEN"], 2, "compile_error"),
    "schema file missing": (["schema", "plan", "GRAPH", "--schema", "missing.pg"], 2, "bad_request"),
    "unsupported": (["schema", "apply", "GRAPH", "--schema", "REFUSED"], 1, "schema_unsupported"),
    "violation": (["schema", "apply", "GRAPH", "--schema", "STRICT"], 1, "constraint_violation"),
    "stale": (
        ["schema", "apply", "GRAPH", "--schema", "GROWN", "--if-commit", STALE],
        4,
        "precondition_failed",
    ),
    "init twice": (["init", "GRAPH", "--schema", "GROWN"], 5, "already_initialized"),
    "no consent": (
        ["schema", "apply", "GRAPH", "--schema", "GROWN", "--allow-data-loss"],
        2,
        "confirmation_required",
    ),
    "bad duration": (["schema", "show", "GRAPH", "--timeout", "soon"], 2, "bad_request"),
    "no duration": (["schema", "show", "GRAPH", "--timeout"], 2, ""),
    "unknown command": (["schema", "explode"], 2, ""),
    "unknown flag": (["schema", "show", "GRAPH", "--loud"], 2, ""),
    "missing option": (["schema", "plan", "GRAPH"], 2, ""),
    "bad choice": (["schema", "diagram", "GRAPH", "--format", "oil"], 2, ""),
}


@pytest.fixture
def at_desk(desk: Desk) -> Any:
    """Run a line; the words in capitals are the files and the graph of a desk with one row."""
    desk.started()
    strict = SCHEMA.replace("age: I32?", "age: I32? @range(age, 5..)")
    words = {"GRAPH": desk.graph, "BROKEN": desk.file("broken.pg", BROKEN)}
    words |= {"REFUSED": desk.file("refused.pg", REFUSED), "GROWN": desk.file("grown.pg", GROWN)}
    words["SAME"] = desk.file("same.pg", SCHEMA)
    words["STRICT"] = desk.file("strict.pg", strict)
    return lambda line, *more: desk.run(*(words.get(word, word) for word in line), *more)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failure_has_its_exit_code_and_a_line_on_stderr_but_no_traceback(
    at_desk: Any, failure: Failure
) -> None:
    line, code, name = failure
    ran = at_desk(line)
    assert ran.code == code
    assert "error" in ran.err.lower()
    assert name in ran.err or name == "compile_error", "findings in a text have codes of their own"
    assert "Traceback" not in ran.err + ran.out


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failure_with_json_is_one_document_on_stdout(at_desk: Any, failure: Failure) -> None:
    line, code, name = failure
    ran = at_desk(line, "--json")
    assert ran.code == code
    assert {"error", "code", "kind"} <= ran.document.keys()
    assert ran.document["code"] == name or not name


SUCCESSES = {
    "init": ["init", "other.og", "--schema", "GROWN"],
    "init, dry": ["init", "other.og", "--schema", "GROWN", "--dry-run"],
    "show": ["schema", "show", "GRAPH"],
    "show, resolved": ["schema", "show", "GRAPH", "--format", "json"],
    "get": ["schema", "get", "GRAPH"],
    "plan": ["schema", "plan", "GRAPH", "--schema", "GROWN"],
    "plan, nothing": ["schema", "plan", "GRAPH", "--schema", "SAME"],
    "plan, refused": ["schema", "plan", "GRAPH", "--schema", "REFUSED"],
    "apply": ["schema", "apply", "GRAPH", "--schema", "GROWN"],
    "apply, dry": ["schema", "apply", "GRAPH", "--schema", "GROWN", "--dry-run"],
    "lint": ["schema", "lint", "--schema", "GROWN"],
    "lint, errors": ["schema", "lint", "--schema", "BROKEN"],
    "lint, migration": ["schema", "lint", "GRAPH", "--schema", "REFUSED"],
    "diagram": ["schema", "diagram", "GRAPH"],
    "version": ["version"],
}


@pytest.mark.parametrize("line", SUCCESSES.values(), ids=SUCCESSES)
def test_every_command_with_json_prints_one_document_and_nothing_else(at_desk: Any, line: list[str]) -> None:
    ran = at_desk(line, "--json")
    assert ran.document
    assert "code" not in ran.document, "that is how a failure looks"
    assert ran.code in (0, 1)


def test_an_error_in_a_schema_underlines_the_line_of_the_file(at_desk: Any) -> None:
    ran = at_desk(["schema", "apply", "GRAPH", "--schema", "BROKEN"])
    lines = ran.err.splitlines()
    (at,) = [number for number, line in enumerate(lines) if "name: Strin" in line]
    assert "broken.pg:3:11" in ran.err
    assert lines[at].index("Strin") == lines[at + 1].index("^^^^^")
    assert "String" in ran.err, "did you mean"


def test_the_document_of_a_schema_error_has_every_diagnostic_with_its_place(at_desk: Any) -> None:
    document = at_desk(["schema", "apply", "GRAPH", "--schema", "BROKEN"], "--json").document
    span = document["diagnostics"][0]["span"]
    assert (span["line"], span["column"]) == (3, 11)


def test_the_document_of_a_violation_lists_the_rows(at_desk: Any) -> None:
    document = at_desk(["schema", "apply", "GRAPH", "--schema", "STRICT"], "--json").document
    assert document["details"]["total"] == 1
    assert document["details"]["violations"][0]["entity_id"] == "a"


def test_the_document_of_a_lost_precondition_names_both_heads(at_desk: Any) -> None:
    line, _, _ = FAILURES["stale"]
    assert at_desk(line, "--json").document["precondition_failure"]["expected"] == STALE


def test_trace_shows_where_it_failed(desk: Desk) -> None:
    with pytest.raises(GraphError):
        main(["schema", "show", "nowhere.og", "--trace"])


def _broken(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")


def test_a_bug_is_a_line_and_not_a_traceback(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_lint, "lint", _broken)
    ran = desk.run("schema", "lint", "--schema", desk.file("s.pg", SCHEMA))
    assert ran.code == 1
    assert "RuntimeError: a bug" in ran.err
    assert "Traceback" not in ran.err


def test_a_bug_with_json_is_a_document_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_lint, "lint", _broken)
    ran = desk.run("schema", "lint", "--schema", desk.file("s.pg", SCHEMA), "--json")
    assert ran.document["code"] == "internal"


# -- help, and the installed command ---------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_explains_the_program_and_a_group(desk: Desk, flag: str) -> None:
    for words in ([], ["schema"]):
        ran = desk.run(*words, flag)
        assert (ran.code, "Usage: omnigraph" in ran.out) == (0, True)


def test_the_help_of_every_command_has_an_example_and_the_global_flags(desk: Desk) -> None:
    for words, command in commands().items():
        ran = desk.run(*words.split(), "--help")
        assert ran.code == 0, words
        assert command.help, words
        assert f"Example: omnigraph {words} " in f"{' '.join(ran.out.split())} ", words
        assert all(flag in ran.out for flag in ("--as ", "--json", "--dry-run", "--timeout ")), words


HELP_ALONE = """
import os, sys
from omnigraph.surfaces.cli.app import main
for line in sys.argv[1:]:
    assert main(line.split()) == 0, line
os.environ |= {"_OMNIGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": "omnigraph sch", "COMP_CWORD": "1"}
try:
    main([])
except SystemExit:
    pass
heavy = ("lance", "pyarrow", "datafusion", "numpy", "pydantic", "yaml", "obstore", "omnigraph.engine")
print("loaded:", sorted(name for name in heavy if name in sys.modules), len(sys.modules))
"""


def test_help_version_and_completion_load_no_engine() -> None:
    lines = ["--version", "--help", *(f"{words} --help" for words in commands())]
    ran = subprocess.run(
        [sys.executable, "-c", HELP_ALONE, *lines], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    *shown, loaded = ran.stdout.splitlines()
    assert "schema" in shown[-1], "what completion offers"
    assert loaded.startswith("loaded: [] ")
    assert int(loaded.split()[-1]) < 700, loaded


def test_the_command_alone_shows_the_commands(desk: Desk) -> None:
    ran = desk.run()
    assert all(name in ran.out + ran.err for name in ("init", "load", "mutate", "schema", "version"))


def installed(name: str) -> str:
    """Return the path of a console script beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


@pytest.mark.parametrize("name", ["omnigraph", "og"])
def test_the_installed_command_prints_its_version(name: str) -> None:
    ran = subprocess.run([installed(name), "--version"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()[0], ran.stderr) == (0, "omnigraph", "")


def test_the_installed_command_fails_with_an_exit_code_and_a_document(tmp_path: Path) -> None:
    ran = subprocess.run(
        [installed("omnigraph"), "schema", "show", str(tmp_path / "nowhere.og"), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 6
    assert json.loads(ran.stdout)["code"] == "graph_not_found"
    assert "Traceback" not in ran.stderr
