"""`graph.backup` and `og.restore`: a whole graph elsewhere, exact, while writers go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import CopyInterrupted, DestinationRefused, Graph, GraphError, InvalidRequest
from omnigraph.storage.copy.backup import ATTEMPTS
from omnigraph.storage.durability import armed
from omnigraph.storage.location import UNFINISHED, Location
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from tests.engine.doctor.damaged import folder, put_rows, table_id
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.told import digest_at, stored, told, write_on

pytestmark = pytest.mark.slow

NO_PETS = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
SCHEMA = NO_PETS + "node Pet { name: String @key }"


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """Branches that were merged, renamed and deleted, and tags."""
    with _lived(local_place, 12) as made:
        yield made


@pytest.fixture
def young(local_place: Place) -> Iterator[Graph]:
    """The same with fewer commits, for whoever reads all of it again and again."""
    with _lived(local_place, 5) as made:
        yield made


@contextmanager
def _lived(place: Place, commits: int) -> Iterator[Graph]:
    with og.init(place.address, SCHEMA, durability="os") as made:
        made.load(
            [
                {"type": "Person", "data": {"name": "Ada"}},
                {"type": "Person", "data": {"name": "Bob", "age": 3}},
                {"type": "Pet", "data": {"name": "Rex"}},
                {"edge": "Knows", "from": "Ada", "to": "Bob"},
            ],
            mode="append",
        )
        write_on(made.uri, "w", commits)
        made.branches.create("old")
        made.branches.rename("old", "new")
        yield made


@pytest.fixture
def free(tmp_path: Path) -> str:
    """An address with nothing there."""
    return str(tmp_path / "copy.og")


def check_same(graph: Graph, copy: str, options: dict[str, str] | None = None) -> None:
    """Assert that a copy tells exactly what its original tells, and holds what was written."""
    with og.connect(copy, storage_options=options) as other:
        assert told(other) == told(graph)
        assert other.verify(history=True).ok


def check_exact(graph: Graph, copy: str, commits: dict[str, str]) -> None:
    """Assert that a copy has each branch at a commit of the original, with the same bytes exported."""
    with og.connect(copy) as other:
        assert {branch.name for branch in other.branches.list()} == set(commits)
        for branch, commit_id in commits.items():
            assert other.branches.get(branch).head == commit_id
            for commit in other.commits.list(branch=branch, limit=1000):
                check_commit(graph, other, branch, commit)
        for tag in other.tags.list():
            assert digest_at(other, "main", tag.name) == digest_at(graph, "main", tag.name)


def check_commit(graph: Graph, copy: Graph, branch: str, commit: og.Commit) -> None:
    """Assert that a commit of a copy is the original's; the branch may have been deleted there meanwhile."""
    digest = digest_at(copy, branch, commit.id)
    try:
        assert digest == digest_at(graph, "main", commit.id)
    except og.CommitNotFound:
        states = [
            each.store.branches.chain(commit.incarnation).at(commit.manifest_version)
            for each in (graph, copy)
        ]
        assert states[0] == states[1]


# -- what a copy is ----------------------------------------------------------------------------------


def test_a_copy_tells_all_that_the_graph_tells(graph: Graph, free: str) -> None:
    report = graph.backup(free)

    check_same(graph, free)
    heads = {branch.name: branch.head for branch in graph.branches.list(counts=True)}
    assert dict(report.commits) == heads
    assert (report.tags, report.skipped, report.attempts) == (len(graph.tags.list()), 0, 1)
    assert (report.copied, report.copied_bytes) == (report.files, report.bytes)
    assert report.files == len(stored(free))
    assert report.to_json()["commits"] == heads


def test_versions_of_new_branches_are_written_side_by_side_and_those_of_main_in_order(
    graph: Graph, free: str
) -> None:
    for number in range(3):
        graph.branches.create(f"side {number}")
    caller, both, arrivals = threading.get_ident(), threading.Barrier(2), count()
    threads: set[int] = set()
    main: list[int] = []

    def before() -> None:
        threads.add(threading.get_ident())
        if threading.get_ident() != caller and next(arrivals) < 2:
            both.wait(60)  # for a second one that is being written

    def after() -> None:
        main.append(len(list(Path(free).glob("__manifest/_versions/*.manifest"))))

    with armed({"copy_version.before": before, "copy_version.after": after}):
        graph.backup(free)

    assert len(threads) > 2
    at_last = [number for number in main if number]
    assert at_last == sorted(set(at_last)), "main comes last, one version after the other"
    check_same(graph, free)


def test_a_copy_has_the_files_of_the_graph_and_no_other(graph: Graph, free: str) -> None:
    graph.backup(free)

    assert stored(free) == stored(graph.uri)


def test_a_copy_merges_and_goes_on_as_the_graph_does(graph: Graph, free: str) -> None:
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append", branch="w0")
    graph.backup(free)

    with og.connect(free) as copy:
        outcomes = [each.merge("w0") for each in (graph, copy)]
        assert len({outcome.outcome for outcome in outcomes}) == 1
        assert digest_at(copy, "main") == digest_at(graph, "main")
        assert len(copy.nodes("Person").filter(name="Cy").to_arrow()) == 1
        copy.load([{"type": "Person", "data": {"name": "Dee"}}], mode="append")
        copy.branches.create("later")
        copy.branches.delete("new")
        assert len(copy.nodes("Person")) == len(graph.nodes("Person")) + 1


def test_a_restored_backup_is_the_graph(graph: Graph, free: str, tmp_path: Path) -> None:
    graph.backup(free)
    report = og.restore(free, tmp_path / "restored.og")

    check_same(graph, str(tmp_path / "restored.og"))
    assert (report.source, report.copied) == (free, report.files)


@pytest.mark.s3
def test_a_round_trip_over_an_object_store_is_equal_file_by_file(
    graph: Graph, s3_place: Place, tmp_path: Path
) -> None:
    graph.backup(s3_place.address, storage_options=s3_place.options)
    check_same(graph, s3_place.address, s3_place.options)
    again = graph.backup(s3_place.address, storage_options=s3_place.options)
    og.restore(s3_place.address, tmp_path / "back.og", source_options=s3_place.options)

    assert again.copied == 0
    assert (
        stored(s3_place.address, s3_place.options) == stored(graph.uri) == stored(str(tmp_path / "back.og"))
    )
    check_same(graph, str(tmp_path / "back.og"))


@pytest.mark.s3
def test_a_large_file_goes_to_an_object_store_in_parts(local_place: Place, s3_place: Place) -> None:
    with og.init(local_place.address, "node Doc { name: String @key  raw: Blob }", durability="os") as graph:
        raw = bytes(range(256)) * (40 * 4096)
        graph.load(pa.table({"name": ["large"], "raw": [raw]}), type="Doc", mode="append")
        graph.backup(s3_place.address, storage_options=s3_place.options)

        assert stored(s3_place.address, s3_place.options) == stored(graph.uri)


# -- examined ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", ["backup", "restore", "clone"])
def test_what_is_broken_in_a_copy_is_in_its_report(
    graph: Graph, free: str, tmp_path: Path, copied: str
) -> None:
    """The copy is as faithful as it can be: an edge to nobody came along."""
    put_rows(graph, "Knows", [{"id": "e1", "src": "Ada", "dst": "Nobody"}])

    report: og.CopyReport | og.CloneReport
    match copied:
        case "backup":
            report = graph.backup(free)
        case "restore":
            graph.backup(free)
            report = og.restore(free, tmp_path / "restored.og")
        case _:
            report = graph.clone(free)

    assert not report.ok
    assert [finding.code for finding in report.findings] == ["dangling_edge"]
    assert [found["code"] for found in report.to_json()["findings"]] == ["dangling_edge"]
    assert not report.to_json()["ok"]


def test_history_that_is_broken_in_a_copy_is_in_its_report(graph: Graph, free: str) -> None:
    """Nothing that a head or a tag needs is gone, so the copy is made."""
    person = table_id(graph, "Person")
    old = graph.store.snapshot(at=2).state.pins[person].version
    (folder(graph, "Person") / "_versions" / manifest_file(old)).unlink()

    report = graph.backup(free)

    assert {finding.code for finding in report.findings} == {"history_broken"}
    with og.connect(free) as copy:
        assert digest_at(copy, "main") == digest_at(graph, "main")


# -- again -------------------------------------------------------------------------------------------


def test_a_copy_made_again_writes_nothing(graph: Graph, free: str) -> None:
    graph.backup(free)
    before = stored(free)
    report = graph.backup(free)

    assert (report.copied, report.copied_bytes, report.skipped) == (0, 0, report.files)
    assert stored(free) == before


def test_a_copy_made_again_gets_only_what_is_new(graph: Graph, free: str) -> None:
    first = graph.backup(free)
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    graph.branches.delete("new")
    graph.branches.create("newer")
    graph.tags.create("v2")
    report = graph.backup(free)

    assert 0 < report.copied < 25 < first.copied
    assert report.copied_bytes < report.bytes / 5
    check_same(graph, free)


def test_a_copy_can_be_copied_further_and_caught_up(graph: Graph, free: str, tmp_path: Path) -> None:
    """A backup that is ahead brings an older one up to date, wherever it came from."""
    second = str(tmp_path / "second.og")
    graph.backup(second)
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    graph.backup(free)
    og.restore(free, second)

    check_same(graph, second)


def test_a_lost_file_comes_back(graph: Graph, free: str) -> None:
    graph.backup(free)
    lost = next(Path(free).glob("tables/*/data/*"))
    content = lost.read_bytes()
    lost.unlink()
    cut = sorted(Path(free).glob("tables/*/data/*"))[0]
    cut.write_bytes(cut.read_bytes()[:10])

    assert graph.backup(free).copied == 2
    assert lost.read_bytes() == content
    check_same(graph, free)


def test_the_source_is_only_read(graph: Graph, free: str) -> None:
    root = Path(graph.uri)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for path in before:
        path.chmod(path.stat().st_mode & ~0o222)
    graph.backup(free)

    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    check_same(graph, free)


def test_progress_tells_bytes_up_to_the_end(graph: Graph, free: str) -> None:
    calls: list[tuple[int, int]] = []
    report = graph.backup(free, progress=lambda done, total: calls.append((done, total)))

    assert calls[-1] == (report.bytes, report.bytes)
    assert all(done <= total for done, total in calls)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


# -- beside writers ----------------------------------------------------------------------------------


def test_beside_a_writing_thread_each_copy_is_of_exact_commits(graph: Graph, free: str) -> None:
    writer = threading.Thread(target=write_on, args=(graph.uri, "t", 15))
    writer.start()
    try:
        copies = 0
        while writer.is_alive() or copies == 0:
            address = f"{free}-{copies}" if copies % 2 else free  # a new one, then the same again
            check_exact(graph, address, dict(graph.backup(address).commits))
            copies += 1
    finally:
        writer.join()
    graph.backup(free)
    check_same(graph, free)


def back_up_again_and_again(address: str, destination: str, times: int) -> list[dict[str, str]]:
    """Copy a graph into a new place each time; return the commits of each copy."""
    with og.connect(address) as graph:
        return [dict(graph.backup(f"{destination}-{n}").commits) for n in range(times)]


@pytest.mark.full
def test_beside_writing_processes_each_copy_is_of_exact_commits(graph: Graph, free: str) -> None:
    outcomes = run_processes(
        _either, [("write", graph.uri, "p", 30), ("write", graph.uri, "q", 30), ("copy", graph.uri, free, 8)]
    )
    assert [outcome.error_text for outcome in outcomes] == [None] * 3
    copies = outcomes[2].value
    assert isinstance(copies, list)
    assert len({copy["main"] for copy in copies}) > 1, "the writers were really writing"
    for n, commits in enumerate(copies):
        check_exact(graph, f"{free}-{n}", commits)


def _either(what: str, address: str, name: str, times: int) -> list[dict[str, str]] | int:
    return (write_on if what == "write" else back_up_again_and_again)(address, name, times)


def test_a_copy_made_beside_writing_processes_is_restored_exported_and_loaded_again(
    graph: Graph, free: str, tmp_path: Path
) -> None:
    reports: list[og.CopyReport] = []

    def wait_for_a_commit() -> None:
        head = graph.branches.get("main").head
        while graph.branches.get("main").head == head:
            time.sleep(0.01)

    def copy(_: list[int]) -> None:
        with armed({"copy_file.before": once(wait_for_a_commit)}):
            reports.append(graph.backup(free))

    outcomes = run_processes(write_on, [(graph.uri, "p", 6), (graph.uri, "q", 6)], meanwhile=copy)
    assert [outcome.error_text for outcome in outcomes] == [None] * 2
    og.restore(free, tmp_path / "restored.og")

    commits = dict(reports[0].commits)
    assert commits["main"] != graph.branches.get("main").head, "they went on"
    with og.connect(tmp_path / "restored.og") as restored:
        assert {branch.name: branch.head for branch in restored.branches.list(counts=True)} == commits
        for branch, commit_id in commits.items():
            assert digest_at(restored, branch) == digest_at(graph, "main", commit_id), branch
        for branch in list(commits)[:2]:
            check_round_trip(restored, branch, tmp_path / branch)


def check_round_trip(graph: Graph, branch: str, folder: Path) -> None:
    """Export a branch, load that into a fresh graph, and look for differences."""
    graph.export(folder / "files", branch=branch, format="jsonl")
    with og.init(folder / "fresh.og", SCHEMA, durability="os") as fresh:
        fresh.load(folder / "files", mode="append")
        assert digest_at(fresh, "main") == digest_at(graph, branch)
        fresh.branches.create("loaded")
        fresh.load(folder / "files", mode="merge")
        assert list(fresh.diff("loaded", "main")) == []


def check_instant(original: Callable[[str], str], copy: str, *, is_first: bool) -> bool:
    """Open a copy as it is at this instant: all that it names is there, or it is no graph yet.

    While main arrives for the first time, names of commits that have not come yet say so.
    """
    try:
        other = og.connect(copy)
    except (og.GraphNotFound, og.IntegrityError):
        return False
    with other:
        for branch in other.branches.list():
            head = other.store.snapshot(branch.name).commit_id
            assert digest_at(other, branch.name) == original(head)
        for commit in other.commits.list(limit=1000):
            assert digest_at(other, "main", commit.id) == original(commit.id)
        for tag in other.tags.list():
            try:
                assert digest_at(other, "main", tag.name) == original(tag.commit_id)
            except og.HistoryReclaimed:
                assert is_first
    return True


def looking(graph: Graph, copy: str, *, is_first: bool) -> tuple[list[bool], Callable[[], None]]:
    """Return what was seen of a copy, each time that the second is called; errors come out at the end."""
    seen: list[bool] = []
    original = cache(partial(digest_at, graph, "main"))  # what a commit holds never changes

    def look() -> None:
        try:
            seen.append(check_instant(original, copy, is_first=is_first))
        except GraphError as error:  # the copy would take it for its own
            raise AssertionError(f"{error!r} after {len(seen)} looks") from error

    return seen, look


def test_at_each_instant_the_destination_is_whole_or_no_graph(young: Graph, free: str) -> None:
    graph = young
    seen, look = looking(graph, free, is_first=True)
    with armed({"copy_file.after": look, "copy_version.after": look}):
        graph.backup(free)
    assert seen == sorted(seen), "once a graph, always a graph"
    assert seen.count(True) == graph.store.snapshot().state.version, "main comes last"

    graph.branches.create("brief")  # one that no copy ever sees, and one that this copy has seen
    graph.branches.delete("brief")
    graph.branches.create("newest")
    with og.connect(free) as open_all_the_time:
        assert "new" in [branch.name for branch in open_all_the_time.branches.list()]
        len(open_all_the_time.branch("new").nodes("Person"))
        for n in range(3):
            graph.load([{"type": "Person", "data": {"name": f"later {n}"}}], mode="append", branch="newest")
            graph.merge("newest")
        graph.tags.create("v9")
        head_before = graph.branches.get("new").head
        graph.branches.delete("new")
        graph.branches.create("keeps", at=head_before)
        seen, look = looking(graph, free, is_first=False)
        with armed({"copy_file.after": look, "copy_version.after": look}):
            graph.backup(free)
        assert all(seen)
        with pytest.raises(og.BranchNotFound):
            open_all_the_time.branch("new")
    check_same(graph, free)


# -- deletions at the source ---------------------------------------------------------------------------


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Do something the first time only."""
    left = [action]

    def act() -> None:
        if left:
            left.pop()()

    return act


def test_a_hard_drop_meanwhile_makes_the_copy_start_over(graph: Graph, free: str) -> None:
    def drop() -> bool:
        return graph.schema.apply(NO_PETS, allow_data_loss=True, branch="main").applied

    with armed({"copy_file.before": once(drop)}):
        report = graph.backup(free)

    assert report.attempts == 2
    assert report.commits["main"] == graph.branches.get("main").head
    with og.connect(free) as copy:
        assert digest_at(copy, "main") == digest_at(graph, "main")
        for branch in copy.branches.list(counts=True):
            assert digest_at(copy, branch.name) == digest_at(graph, branch.name)
        assert copy.verify().ok


def test_deletions_again_and_again_end_the_copy_and_leave_no_graph(graph: Graph, free: str) -> None:
    def sweep() -> None:
        graph.store.raise_floor("main", 1)
        log = next(Path(graph.uri).glob("__checksums/*/*"))
        with log.open("ab") as file:
            file.write(b"one more\n")  # so that the next attempt has a file to copy

    with armed({"copy_file.before": sweep}), pytest.raises(CopyInterrupted, match=str(ATTEMPTS)) as refused:
        graph.backup(free)

    assert refused.value.retryable
    with pytest.raises(GraphError):
        og.connect(free)
    graph.backup(free)
    check_same(graph, free)


# -- refused -----------------------------------------------------------------------------------------


def refusal(graph: Graph, destination: str) -> str:
    """Return why a destination is refused; nothing may have changed there."""
    before = stored(destination)
    with pytest.raises(DestinationRefused) as refused:
        graph.backup(destination)
    assert stored(destination) == before
    assert refused.value.remedy
    return str(refused.value.fields["reason"])


def test_another_graph_is_refused(graph: Graph, free: str) -> None:
    og.init(free, SCHEMA, durability="os").close()

    assert refusal(graph, free) == "another_graph"


def test_parts_of_another_graph_are_refused(graph: Graph, free: str) -> None:
    og.init(free, SCHEMA, durability="os").close()
    for file in Path(free, "__manifest/_versions").iterdir():
        file.unlink()
    for file in Path(free, "__refs/_versions").iterdir():
        file.unlink()

    assert refusal(graph, free) == "another_graph"


@pytest.mark.parametrize("branch", ["main", "new"])
def test_a_copy_with_commits_of_its_own_is_refused(graph: Graph, free: str, branch: str) -> None:
    graph.backup(free)
    with og.connect(free) as copy:
        copy.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append", branch=branch)
    assert refusal(graph, free) == "own_commits"

    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append", branch=branch)
    assert refusal(graph, free) == "own_commits"


def test_a_copy_with_names_of_its_own_is_refused(graph: Graph, free: str) -> None:
    graph.backup(free)
    with og.connect(free) as copy:
        copy.tags.create("mine")

    assert refusal(graph, free) == "own_commits"


def test_an_older_state_is_not_put_over_a_newer_one(graph: Graph, free: str) -> None:
    graph.backup(free)
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")

    with og.connect(free) as copy:
        assert refusal(copy, graph.uri) == "own_commits"


def test_a_copy_that_is_too_old_to_go_on_with_is_refused(graph: Graph, free: str) -> None:
    graph.backup(free)
    versions = sorted(Path(graph.uri, "__manifest/_versions").glob("*.manifest"))
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    for version in versions:
        version.unlink()

    with og.connect(graph.uri) as again:
        assert refusal(again, free) == "too_old"


def clean(graph: Graph, keep: int) -> None:
    """Clean up as after the two minutes for which versions of branches stay."""
    with GraphStore.open(graph.uri, retry=RetryPolicy(confirm_after_s=0)) as store:
        for _ in range(2):
            store.cleanup(Retention(keep=keep, grace_us=0), dry_run=False)


def test_a_copy_goes_on_after_many_changes_of_names_and_a_cleanup_that_keeps_the_history(
    graph: Graph, free: str
) -> None:
    graph.branches.create("gone")
    graph.load([{"type": "Person", "data": {"name": "Di"}}], mode="append", branch="gone")
    graph.backup(free)
    graph.branches.delete("gone")
    for number in range(20):
        graph.tags.create(f"t{number}")
        graph.tags.delete(f"t{number}")
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    clean(graph, 100)

    graph.backup(free)

    check_same(graph, free)


def test_after_many_changes_of_names_a_branch_of_the_copys_own_is_still_refused(
    graph: Graph, free: str
) -> None:
    graph.backup(free)
    with og.connect(free) as copy:
        copy.branches.create("mine")
    for number in range(20):
        graph.tags.create(f"t{number}")
        graph.tags.delete(f"t{number}")
    clean(graph, 100)

    assert refusal(graph, free) == "own_commits"


def test_another_graph_is_called_that_also_when_the_first_names_are_trimmed(graph: Graph, free: str) -> None:
    og.init(free, SCHEMA, durability="os").close()
    for number in range(20):
        graph.tags.create(f"t{number}")
        graph.tags.delete(f"t{number}")
    clean(graph, 0)

    assert refusal(graph, free) == "another_graph"


def test_parts_that_another_copy_is_writing_are_left_alone(graph: Graph, free: str) -> None:
    graph.backup(free)
    young, old = (Path(free, UNFINISHED, name) for name in ("young", "old"))
    for part in (young, old):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(b"part")
    os.utime(old, (0, 0))

    graph.backup(free)

    assert (young.exists(), old.exists()) == (True, False)


def test_the_graph_itself_and_places_inside_it_are_refused(graph: Graph) -> None:
    for place in (graph.uri, f"{graph.uri}/copies/one", str(Path(graph.uri).parent)):
        with pytest.raises(InvalidRequest, match="inside"):
            graph.backup(place)


def test_the_graph_by_another_name_is_refused_and_a_neighbour_is_not(graph: Graph, tmp_path: Path) -> None:
    link = tmp_path / "link.og"
    link.symlink_to(graph.uri)
    for place in (link, link / "inside", f"{graph.uri}/../{Path(graph.uri).name}/inside"):
        with pytest.raises(InvalidRequest, match="inside"):
            graph.backup(place)

    graph.backup(f"{graph.uri}/../beside.og")
    with pytest.raises(InvalidRequest, match="in full"):
        graph.backup("~nobody-of-that-name/copy.og")


def test_a_copy_keeps_its_checksums_when_a_writer_goes_on_after_a_cleanup(graph: Graph, free: str) -> None:
    graph.backup(free)
    clean(graph, 1)
    graph.load([{"type": "Person", "data": {"name": "Di"}}], mode="append")

    graph.backup(free)

    with og.connect(free) as copy:
        assert copy.verify(history=True).unrecorded == ()


def test_a_writer_on_the_destination_meanwhile_loses_nothing(graph: Graph, free: str) -> None:
    graph.backup(free)
    graph.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    copy = og.connect(free)

    def write_there() -> object:
        return copy.load([{"type": "Person", "data": {"name": "Mine"}}], mode="append")

    with armed({"copy_version.before": once(write_there)}), pytest.raises(DestinationRefused):
        graph.backup(free)

    with copy, og.connect(free) as other:
        assert len(other.nodes("Person").filter(name="Mine").to_arrow()) == 1
        assert other.verify().ok


def test_a_damaged_source_is_told_before_the_copy_counts(graph: Graph, free: str) -> None:
    pin = next(pin for pin in graph.store.snapshot().state.pins.values() if pin.name == "Pet")
    next(Path(graph.uri, "tables", pin.table_id, "data").iterdir()).unlink()

    with pytest.raises(og.IntegrityError, match="data/"):
        graph.backup(free)
    assert not Location.parse(free).objects.read("__manifest/_versions/18446744073709551614.manifest")


def test_two_copies_to_one_place_at_once_agree(graph: Graph, free: str) -> None:
    outcomes = run_processes(_back_up, [(graph.uri, free)] * 3)

    assert [outcome.error_text for outcome in outcomes] == [None] * 3
    check_same(graph, free)


def _back_up(address: str, destination: str) -> int:
    with og.connect(address) as graph:
        return graph.backup(destination).copied
