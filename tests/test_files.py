import json
import multiprocessing
import os
import tempfile
import threading
from pathlib import Path

import pytest

from tcl.errors import WorkFailed
from tcl.files import (
    atomic_directory,
    atomic_json,
    atomic_write,
    claim,
    locked,
    private_text,
    sha256_file,
    sha256_tree,
)
from tcl.scratch import machine_folder, scratch_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_atomic_write_replaces_content_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    atomic_write(path, "old")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["a.txt"]


def test_atomic_write_makes_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    assert atomic_write(tmp_path / "a", "").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_atomic_json_keeps_old_file_when_value_is_not_json(tmp_path: Path) -> None:
    path = atomic_json(tmp_path / "a.json", {"x": [1, 2.5]})
    with pytest.raises(TypeError):
        atomic_json(path, object())
    assert json.loads(path.read_text()) == {"x": [1, 2.5]}
    assert names(tmp_path) == ["a.json"]


def test_atomic_directory_replaces_whole_folder_when_it_exists(tmp_path: Path) -> None:
    target = tmp_path / "package"
    for content in ("one", "two"):
        with atomic_directory(target) as folder:
            (folder / content).write_text(content)
    assert names(target) == ["two"]
    assert names(tmp_path) == ["package"]


def test_atomic_directory_keeps_old_folder_when_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "package"
    with atomic_directory(target) as folder:
        (folder / "one").write_text("one")
    with pytest.raises(RuntimeError), atomic_directory(target) as folder:
        (folder / "two").write_text("two")
        raise RuntimeError
    assert names(target) == ["one"]
    assert names(tmp_path) == ["package"]


def test_atomic_directory_refuses_when_target_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "package").write_text("mine")
    with pytest.raises(OSError), atomic_directory(tmp_path / "package"):
        pass
    assert (tmp_path / "package").read_text() == "mine"


def hold_lock(path: Path, held: "multiprocessing.synchronize.Event") -> None:
    with locked(path, 10, "the test"):
        held.set()
        threading.Event().wait()


def test_locked_names_holder_when_time_is_over_and_is_free_when_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "state" / "x.lock"
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=hold_lock, args=(path, held))
    holder.start()
    try:
        assert held.wait(60)
        complaint = rf"the registry is in use by process {holder.pid} on .*x\.lock"
        with pytest.raises(WorkFailed, match=complaint), locked(path, 0.1, "the registry"):
            pass
    finally:
        holder.kill()
        holder.join()
    with locked(path, 10, "the registry"):
        assert path.exists()


def test_locked_excludes_other_threads(tmp_path: Path) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with locked(tmp_path / "x.lock", 30, "the counter"):
            with guard:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.02)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_sha256_tree_changes_when_a_byte_or_a_name_changes(tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    file = atomic_write(tmp_path / "d" / "sub" / "a", "one")
    first = sha256_tree(tmp_path / "d")
    atomic_write(file, "two")
    second = sha256_tree(tmp_path / "d")
    file.rename(file.with_name("b"))
    third = sha256_tree(tmp_path / "d")
    file.with_name("b").rename(file)
    atomic_write(file, "one")
    assert len({first, second, third}) == 3
    assert sha256_tree(tmp_path / "d") == first
    assert sha256_tree(tmp_path / "absent") == sha256_tree(tmp_path / "also absent")


def test_sha256_file_is_the_standard_digest(tmp_path: Path) -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(atomic_write(tmp_path / "a", "abc")) == expected


def left_behind(folder: Path) -> tuple[Path, Path]:
    """A file and a folder as a killed process leaves them: under temporary names, and unlocked."""
    file, directory = (folder / f".package.{digit * 32}.tmp" for digit in "ab")
    file.write_text("half")
    directory.mkdir()
    (directory / "half").write_text("")
    return file, directory


def test_writing_again_removes_what_killed_writers_left_but_not_what_is_in_use(tmp_path: Path) -> None:
    file, directory = left_behind(tmp_path)
    with atomic_directory(tmp_path / "package"):
        in_use = next(path for path in tmp_path.iterdir() if path not in (file, directory))
        atomic_write(tmp_path / "package.txt", "")
        with atomic_directory(tmp_path / "package"):
            assert in_use.exists()
    assert names(tmp_path) == ["package", "package.txt"]


def test_claim_is_none_when_another_holds_it_or_it_is_gone(tmp_path: Path) -> None:
    first = claim(tmp_path)
    assert first is not None and claim(tmp_path) is None
    os.close(first)
    assert claim(tmp_path / "absent") is None


def test_private_text_is_written_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert private_text(path, lambda: "first") == private_text(path, lambda: "second") == "first"
    assert path.stat().st_mode & 0o777 == 0o600


def test_scratch_folder_takes_all_temporary_files_and_removes_those_of_killed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TMPDIR", raising=False)
    stale = tmp_path / f"tcl-command-{os.getuid()}-killed"
    stale.mkdir()
    foreign = tmp_path / "tcl-command-999999-other"
    foreign.mkdir()
    pipe = tmp_path / f"tcl-command-{os.getuid()}-pipe"
    os.mkfifo(pipe)  # opening one waits for ever
    with scratch_folder() as outer, scratch_folder() as inner:
        assert Path(tempfile.mkdtemp()).parent == inner and inner.parent == outer
        assert os.environ["TMPDIR"] == str(inner)
        assert machine_folder() == tmp_path
    assert names(tmp_path) == sorted([foreign.name, pipe.name])
    assert tempfile.gettempdir() == str(tmp_path) and "TMPDIR" not in os.environ
