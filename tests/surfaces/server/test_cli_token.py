"""`omnigraph token`: tokens made, listed and revoked in the file of a server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from omnigraph.base.errors import AuthenticationError
from omnigraph.surfaces.server.identity import Identity
from omnigraph.surfaces.server.tokens import TokenSource
from tests.support.desk import Desk


def path(desk: Desk) -> Path:
    return desk.folder / "tokens.json"


def new(desk: Desk, actor: str, *more: str) -> dict[str, Any]:
    ran = desk.run("token", "new", "--file", str(path(desk)), "--actor", actor, *more, "--json")
    assert ran.code == 0, ran.err
    return ran.document


def actor_of(desk: Desk, token: str) -> str | None:
    source = TokenSource.from_environment({}, file=path(desk))
    try:
        return Identity(source).identify(f"Bearer {token}")
    except AuthenticationError:
        return None


def test_a_new_token_is_printed_once_stored_as_its_digest_and_accepted(desk: Desk) -> None:
    ran = desk.run("token", "new", "--file", str(path(desk)), "--actor", "ada", "--expires", "90d")
    token = ran.out.strip()
    assert ran.out == f"{token}\n"
    assert len(token) == 46
    assert token not in path(desk).read_text() + ran.err
    assert actor_of(desk, token) == "ada"
    (stored,) = json.loads(path(desk).read_text())["ada"]
    assert set(stored) == {"sha256", "id", "expires"}


def test_only_the_owner_can_read_the_file_whatever_it_was_before(desk: Desk) -> None:
    path(desk).write_text("{}")
    path(desk).chmod(0o644)
    mask = os.umask(0)
    try:
        new(desk, "ada")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path(desk).stat().st_mode) == 0o600


def test_tokens_differ_and_earlier_ones_stay_good(desk: Desk) -> None:
    made = [new(desk, "ada")["token"] for _ in range(3)]
    assert len(set(made)) == 3
    assert [actor_of(desk, token) for token in made] == ["ada"] * 3


def test_what_an_edit_does_not_concern_stays_as_it_was_written(desk: Desk) -> None:
    before = {" bo ": "plain-secret", "cy": ["old", {"sha256": "0" * 64}], "di": f"sha256:{'1' * 64}"}
    path(desk).write_text(json.dumps(before))
    made = new(desk, "ada")
    more = new(desk, "bo")
    after = json.loads(path(desk).read_text())
    assert list(after) == [*before, "ada"]
    assert {name: after[name] for name in ("cy", "di")} == {name: before[name] for name in ("cy", "di")}
    assert after[" bo "][0] == "plain-secret"
    assert [actor_of(desk, token) for token in ("plain-secret", more["token"], made["token"])] == [
        "bo",
        "bo",
        "ada",
    ]


def test_a_list_shows_who_has_what_and_never_a_token(desk: Desk) -> None:
    made = new(desk, "ada", "--expires", "90d")
    known = json.loads(path(desk).read_text())
    known["bo"] = [
        "plain-secret",
        f"sha256:{'ab' * 32}",
        {"sha256": "cd" * 32, "expires": "2020-01-01T00:00:00Z"},
    ]
    path(desk).write_text(json.dumps(known))
    plain = desk.run("token", "list", "--file", str(path(desk)))
    listed = desk.run("token", "list", "--file", str(path(desk)), "--json").document["tokens"]
    assert [(row["actor"], row["id"], row["state"]) for row in listed] == [
        ("ada", made["id"], "hashed"),
        ("bo", None, "plain"),
        ("bo", "sha256:abababab", "hashed"),
        ("bo", "sha256:cdcdcdcd", "expired"),
    ]
    assert len(plain.out.splitlines()) == 4
    shown = plain.out + plain.err + json.dumps(listed)
    for secret in (made["token"], "plain-secret", known["ada"][0]["sha256"], "ab" * 32, "cd" * 32):
        assert secret not in shown


def test_revoking_takes_an_actor_or_one_token(desk: Desk) -> None:
    first, second, other = new(desk, "ada"), new(desk, "ada"), new(desk, "bo")
    file = ("--file", str(path(desk)))
    dry = desk.run("token", "revoke", *file, "--actor", "ada", "--dry-run", "--json").document
    assert [entry["id"] for entry in dry["revoked"]] == [first["id"], second["id"]]
    assert actor_of(desk, first["token"]) == "ada"
    assert desk.run("token", "revoke", *file, "--id", first["id"]).code == 0
    assert [actor_of(desk, made["token"]) for made in (first, second, other)] == [None, "ada", "bo"]
    assert desk.run("token", "revoke", *file, "--actor", "ada").code == 0
    assert [actor_of(desk, made["token"]) for made in (second, other)] == [None, "bo"]
    assert desk.run("token", "revoke", *file, "--actor", "bo", "--id", first["id"]).code == 6
    assert desk.run("token", "revoke", *file).code == 2


def test_a_dry_run_makes_no_token_and_no_file(desk: Desk) -> None:
    ran = desk.run("token", "new", "--file", str(path(desk)), "--actor", "ada", "--dry-run")
    assert (ran.code, ran.out) == (0, "would make a token for ada\n")
    assert not path(desk).exists()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", ("--actor", "system:x")),
        ("{}", ("--actor", " ")),
        ("{}", ("--actor", "ada", "--expires", "soon")),
        ("{", ("--actor", "ada")),
        ('{"a": "same", "b": "same"}', ("--actor", "ada")),
    ],
)
def test_a_refused_edit_leaves_the_file_alone_and_quotes_nothing_of_it(
    text: str, arguments: tuple[str, ...], desk: Desk
) -> None:
    path(desk).write_text(text)
    ran = desk.run("token", "new", "--file", str(path(desk)), *arguments)
    assert ran.code == 2
    assert path(desk).read_text() == text
    assert "same" not in ran.err + ran.out


@pytest.mark.parametrize("command", [("list",), ("revoke", "--actor", "ada")])
def test_a_file_that_is_not_there_is_an_error_and_is_not_made(command: tuple[str, ...], desk: Desk) -> None:
    ran = desk.run("token", command[0], "--file", str(path(desk)), *command[1:])
    assert ran.code == 2
    assert "no such file" in ran.err
    assert not path(desk).exists()


def test_a_link_stays_a_link(desk: Desk) -> None:
    real = desk.folder / "real.json"
    real.write_text("{}")
    path(desk).symlink_to(real)
    made = new(desk, "ada")
    assert path(desk).is_symlink()
    assert actor_of(desk, made["token"]) == "ada"


def test_edits_at_the_same_time_lose_none_and_leave_no_files(desk: Desk) -> None:
    program = (
        "import sys\nfrom omnigraph.surfaces.cli.app import main\n"
        "for n in range(5): assert main(['token', 'new', '--file', sys.argv[1], '--actor', sys.argv[2]]) == 0"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path(desk)), f"actor-{number}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(3)
    ]
    threads = [threading.Thread(target=new, args=(desk, f"thread-{number}")) for number in range(1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0, 0]
    stored = json.loads(path(desk).read_text())
    assert {name: len(tokens) for name, tokens in stored.items()} == {
        **{f"actor-{number}": 5 for number in range(3)},
        "thread-0": 1,
    }
    left = {file.name for file in desk.folder.iterdir() if "tokens" in file.name}
    assert left == {"tokens.json", ".tokens.json.lock"}
