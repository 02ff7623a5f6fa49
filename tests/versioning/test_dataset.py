import multiprocessing
import shutil
import subprocess
import time
from pathlib import Path

import dvc  # noqa: F401 - what it logs goes to the standard error of its import, which a test's own capture closes
import pytest

from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_write
from tcl.settings import Settings, load_settings
from tcl.versioning import git
from tcl.versioning.dataset import DatasetVersions
from tcl.versioning.store import DataStore


def run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


def identify(folder: Path) -> None:
    run_git(folder, "config", "user.name", "Tester")
    run_git(folder, "config", "user.email", "tester@example.com")


@pytest.fixture
def committing(settings: Settings) -> Settings:
    """A git repository whose versions are committed."""
    run_git(settings.root, "init", "--quiet")
    identify(settings.root)
    return load_settings(settings.root, {"dvc.git_commit": True})


def measure(settings: Settings, device: str = "a", name: str = "1", content: str = "one") -> None:
    atomic_write(settings.data_dir / device / f"{name}.parquet", content)


def test_version_works_without_git_and_pull_restores_it(
    settings: Settings, capfd: pytest.CaptureFixture
) -> None:
    versions = DatasetVersions(settings)
    assert versions.data_hash() is None
    assert not versions.pull()
    measure(settings)
    made = versions.version("first")
    assert made.changed
    assert made.hash == versions.data_hash()
    assert (made.pushed, made.commit, made.to_commit) == (2, None, [])
    shutil.rmtree(settings.data_dir)
    shutil.rmtree(settings.root / ".dvc" / "cache")
    assert versions.pull()
    assert (settings.data_dir / "a" / "1.parquet").read_text() == "one"
    assert "url = ../.dvcstore" in (settings.root / ".dvc" / "config").read_text()
    assert capfd.readouterr().out == ""


def test_version_changes_nothing_when_data_is_the_same(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    first = versions.version("first")
    second = versions.version("again")
    assert (second.changed, second.pushed, second.hash) == (False, 0, first.hash)


def test_status_tells_what_is_dirty_and_what_is_not_pushed(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    assert versions.status().dirty
    made = versions.version("first")
    clean = versions.status()
    assert (clean.hash, clean.dirty, clean.not_pushed) == (made.hash, False, 0)
    measure(settings, name="2")
    shutil.rmtree(settings.root / ".dvcstore")
    dirty = versions.status()
    assert (dirty.hash, dirty.dirty) == (made.hash, True)
    assert dirty.not_pushed > 0


def test_version_says_what_to_commit_when_commits_are_off(committing: Settings) -> None:
    versions = DatasetVersions(load_settings(committing.root))
    measure(committing)
    made = versions.version("first")
    assert made.commit is None
    assert {"data.dvc", ".dvcstore", ".dvc/config"} <= set(made.to_commit)
    assert set(versions.status().to_commit) == set(made.to_commit)
    assert git.head(committing.root) is None


def test_version_commits_only_its_own_files(committing: Settings) -> None:
    root = committing.root
    (root / "mine.txt").write_text("staged by the user")
    run_git(root, "add", "mine.txt")
    measure(committing)
    made = DatasetVersions(committing).version("the message")
    assert made.commit == git.head(root)
    assert made.to_commit == []
    assert run_git(root, "log", "-1", "--format=%s").strip() == "the message"
    committed = run_git(root, "show", "--name-only", "--format=").split()
    assert "data.dvc" in committed
    assert "mine.txt" not in committed
    assert not any(path.startswith("data/") for path in committed)
    assert run_git(root, "diff", "--cached", "--name-only").split() == ["mine.txt"]


def test_pull_fills_a_fresh_clone_and_a_worktree_from_the_store_inside(
    committing: Settings, tmp_path: Path
) -> None:
    measure(committing)
    made = DatasetVersions(committing).version("first")
    run_git(tmp_path, "clone", "--quiet", str(committing.root), "clone")
    run_git(committing.root, "worktree", "add", "--quiet", str(tmp_path / "worktree"), "-b", "side")
    for name in ("clone", "worktree"):
        copy = DatasetVersions(load_settings(tmp_path / name))
        assert copy.pull()
        assert (tmp_path / name / "data" / "a" / "1.parquet").read_text() == "one"
        assert not copy.status().dirty
        measure(copy.settings, name="2", content=name)
        assert copy.version("more").hash != made.hash


def test_version_refuses_when_data_does_not_descend_from_the_named_version(
    committing: Settings, tmp_path: Path
) -> None:
    measure(committing)
    DatasetVersions(committing).version("first")
    run_git(tmp_path, "clone", "--quiet", str(committing.root), "clone")
    other = DatasetVersions(load_settings(tmp_path / "clone"))
    measure(other.settings, name="2", content="measured without the first ones")
    named = other.data_hash()
    with pytest.raises(WorkFailed, match="does not descend"):
        other.version("would lose the first ones")
    with pytest.raises(WorkFailed, match="in no version"):
        other.pull()
    assert other.data_hash() == named
    assert (other.settings.data_dir / "a" / "2.parquet").exists()


def test_pull_follows_data_dvc_only_when_data_holds_a_version(committing: Settings, tmp_path: Path) -> None:
    origin = DatasetVersions(committing)
    measure(committing)
    origin.version("first")
    run_git(tmp_path, "clone", "--quiet", str(committing.root), "clone")
    identify(tmp_path / "clone")
    clone = DatasetVersions(load_settings(tmp_path / "clone"))
    clone.pull()
    measure(committing, name="2")
    second = origin.version("second")
    run_git(tmp_path / "clone", "pull", "--quiet")
    assert clone.pull()
    assert (clone.settings.data_dir / "a" / "2.parquet").exists()
    measure(clone.settings, name="3")
    assert not clone.pull()  # new measurements on top of the named version stay
    assert clone.version("third").hash != second.hash


@pytest.fixture
def behind(committing: Settings, tmp_path: Path) -> DatasetVersions:
    """A clone that holds a version; its `data.dvc` names a later one, which its remote lacks."""
    origin = DatasetVersions(committing)
    measure(committing)
    origin.version("first")
    run_git(tmp_path, "clone", "--quiet", str(committing.root), "clone")
    clone = DatasetVersions(load_settings(tmp_path / "clone"))
    clone.pull()
    measure(committing, name="2", content="two")
    origin.version("second")
    shutil.copy(committing.root / "data.dvc", clone.root)
    return clone


@pytest.mark.parametrize("lost", [".dir", ""], ids=["all of it", "a file"])
def test_pull_leaves_data_alone_when_the_remote_lacks_files_of_the_version(
    behind: DatasetVersions, committing: Settings, lost: str
) -> None:
    known = {path.name for path in (behind.root / ".dvcstore").rglob("*")}
    shutil.copytree(committing.root / ".dvcstore", behind.root / ".dvcstore", dirs_exist_ok=True)
    for path in (behind.root / ".dvcstore").rglob("*"):
        if path.is_file() and path.name not in known and path.name.endswith(".dir") == bool(lost):
            path.unlink()
    with pytest.raises(WorkFailed, match=r"'store' lacks files of the version .*dvc push"):
        behind.pull()
    assert (behind.settings.data_dir / "a" / "1.parquet").read_text() == "one"
    status = behind.status()
    assert (status.fetched, status.dirty) == (False, False)
    shutil.copytree(committing.root / ".dvcstore", behind.root / ".dvcstore", dirs_exist_ok=True)
    assert behind.pull()
    assert (behind.settings.data_dir / "a" / "2.parquet").exists()


def test_status_tells_what_is_not_fetched_from_what_is_new(
    committing: Settings, behind: DatasetVersions, tmp_path: Path
) -> None:
    def where(versions: DatasetVersions) -> tuple[bool, bool]:
        return versions.status().fetched, versions.status().dirty

    run_git(tmp_path, "clone", "--quiet", str(committing.root), "fresh")
    fresh = DatasetVersions(load_settings(tmp_path / "fresh"))
    assert where(fresh) == where(behind) == (False, False)
    measure(fresh.settings, name="3")
    measure(behind.settings, name="3")
    assert where(fresh) == where(behind) == (False, True)
    measure(committing, name="3")
    assert where(DatasetVersions(committing)) == (True, True)


def test_a_file_in_the_place_of_data_is_refused_and_stays(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    versions.version("first")
    shutil.rmtree(settings.data_dir)
    settings.data_dir.write_text("mine")
    for use in (versions.pull, versions.status, lambda: versions.version("second")):
        with pytest.raises(BadInput, match="data is a file"):
            use()
    assert settings.data_dir.read_text() == "mine"


def test_version_refuses_when_there_is_no_data(settings: Settings) -> None:
    with pytest.raises(BadInput, match="tcl measure"):
        DatasetVersions(settings).version("nothing")
    assert not (settings.root / ".dvc").exists()


def test_version_names_known_remotes_when_the_remote_is_unknown(settings: Settings) -> None:
    measure(settings)
    DatasetVersions(settings).version("first")
    with pytest.raises(BadInput, match=r"'cloud' is unknown.*known: store"):
        DatasetVersions(load_settings(settings.root, {"dvc.remote": "cloud"})).version("second")


def test_version_works_when_the_project_is_a_folder_of_a_repository(committing: Settings) -> None:
    inner = committing.root / "inner"
    inner.mkdir()
    settings = load_settings(inner, {"dvc.git_commit": True})
    measure(settings)
    assert DatasetVersions(settings).version("inner").commit == git.head(committing.root)
    assert "inner/data.dvc" in run_git(committing.root, "show", "--name-only", "--format=").split()


def test_device_hash_sees_only_the_device(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings, "a")
    measure(settings, "b")
    first = versions.device_hash("a")
    measure(settings, "b", content="two")
    assert versions.device_hash("a") == first
    measure(settings, "a", content="onf")
    assert versions.device_hash("a") != first
    measure(settings, "a", content="one")
    assert versions.device_hash("a") == first
    with pytest.raises(BadInput):
        versions.device_hash("../a")


@pytest.mark.parametrize(
    "content",
    [
        b"outs:\n<<<<<<< ours\n",
        b"\xff\xfe",
        b"outs:\n- md5: 77f45152107a18c40f1f1888be7f718c.dir\n  path: ../../evil\n",
        b"outs:\n- md5: 77f45152107a18c40f1f1888be7f718c\n  path: data\n",
    ],
    ids=["conflict", "no text", "another path", "a file"],
)
def test_data_hash_refuses_when_data_dvc_is_broken(settings: Settings, content: bytes) -> None:
    (settings.root / "data.dvc").write_bytes(content)
    with pytest.raises(BadInput, match=r"data\.dvc names no version"):
        DatasetVersions(settings).data_hash()


@pytest.mark.parametrize("damage", [b"wdir: ..\n", b"# \xff\n"], ids=["another folder", "no text"])
def test_pull_fails_in_one_sentence_when_dvc_cannot_use_data_dvc(settings: Settings, damage: bytes) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    versions.version("first")
    shutil.rmtree(settings.data_dir)
    with (settings.root / "data.dvc").open("ab") as stream:
        stream.write(damage)
    for use in (versions.pull, versions.status):
        with pytest.raises(WorkFailed, match="DVC failed"):
            use()


def test_pull_goes_on_when_what_it_remembers_is_no_text(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    versions.version("first")
    (settings.state_dir / "data_base").write_bytes(b"\xff")
    assert not versions.pull()


@pytest.mark.parametrize("versions_before", [0, 1])
def test_version_goes_on_when_it_was_killed_while_data_dvc_was_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, versions_before: int
) -> None:
    versions = DatasetVersions(settings)
    for number in range(versions_before):
        measure(settings, name=f"before{number}")
        versions.version("before")
    measure(settings)

    def write_half(store: DataStore) -> None:
        (settings.root / "data.dvc").write_text("outs:\n- md")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DataStore, "add", write_half)
        versions.version("killed")
    assert not DatasetVersions(settings).pull()
    assert versions.version("again").changed
    shutil.rmtree(settings.data_dir)
    assert versions.pull()
    assert (settings.data_dir / "a" / "1.parquet").exists()


def test_version_never_removes_a_file_of_the_dataset(settings: Settings) -> None:
    measure(settings)
    before = (settings.data_dir / "a" / "1.parquet").stat()
    DatasetVersions(settings).version("first")
    after = (settings.data_dir / "a" / "1.parquet").stat()
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 1)


def test_version_works_when_a_killed_command_left_dvcs_locks_cut(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    versions.version("first")
    (settings.root / ".dvc" / "tmp" / "rwlock").write_text('{"read": {')
    measure(settings, name="2")
    assert versions.version("second").changed


def hold_dvc(root: Path, held: "multiprocessing.synchronize.Event") -> None:
    from dvc.repo import Repo

    with Repo(str(root)) as repo, repo.lock:
        held.set()
        time.sleep(5)  # longer than DVC itself waits


def test_version_waits_when_another_dvc_command_is_running(settings: Settings) -> None:
    versions = DatasetVersions(settings)
    measure(settings)
    first = versions.version("first")
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=hold_dvc, args=(settings.root, held))
    holder.start()
    assert held.wait(60)
    measure(settings, name="2")
    assert versions.version("second").hash != first.hash
    holder.join()


def version_one(root: Path, device: str) -> None:
    settings = load_settings(root)
    measure(settings, device)
    DatasetVersions(settings).version(device)


def test_version_holds_everything_when_two_processes_make_the_first_one(settings: Settings) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=version_one, args=(settings.root, device)) for device in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    versions = DatasetVersions(settings)
    assert not versions.status().dirty
    shutil.rmtree(settings.data_dir)
    versions.pull()
    assert sorted(path.name for path in settings.data_dir.iterdir()) == ["a", "b"]
