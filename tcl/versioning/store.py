"""DVC's part: one repository object with the steps that a dataset version needs."""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tcl.errors import BadInput, WorkFailed
from tcl.settings import DvcSettings, Settings
from tcl.versioning.git import worktree_of

if TYPE_CHECKING:
    from dvc.repo import Repo

STORE = ".dvcstore"
"""The default remote: a folder of the project, so that a clone can pull without a network."""
_BUSY_SECONDS = 60.0
_Result = TypeVar("_Result")


class DataStore:
    """`data/` in the DVC repository of a project folder; made by `open_store`.

    Every method raises `WorkFailed` when DVC fails. While another DVC command holds the repository, they wait
    for up to a minute.
    """

    def __init__(self, repo: "Repo", settings: Settings) -> None:
        self._repo = repo
        self._remote = settings.dvc.remote
        self._data = str(settings.data_dir)

    def current_hash(self) -> str:
        """Return the hash that `data/` would have as a version; nothing is changed."""
        return str(self._retried(lambda: self._repo.find_outs_by_path(self._data)[0].get_hash().value))

    def add(self) -> None:
        """Make `data/` the version that `data.dvc` names."""
        # By default DVC removes each file and links it again from its cache: killed in between, it loses the file.
        self._retried(lambda: self._repo.add(self._data, relink=False))

    def push(self) -> int:
        """Send the version's files to the remote and return how many it lacked."""
        return int(self._retried(lambda: self._repo.push(targets=[self._data], remote=self._remote)))

    def fetch(self) -> bool:
        """Bring the version that `data.dvc` names into DVC's cache; tell whether all its files are there."""
        from dvc.exceptions import DownloadError

        def work() -> bool:
            with contextlib.suppress(DownloadError):
                self._repo.fetch(targets=[self._data], remote=self._remote)
            output = self._repo.find_outs_by_path(self._data)[0]
            files = output.get_obj()  # None: the remote lacks even the list of the files, which DVC lets pass
            return files is not None and all(output.cache.exists(file.value) for _, _, file in files)

        return self._retried(work)

    def checkout(self) -> None:
        """Replace `data/` by the version that `data.dvc` names, which was fetched: DVC empties it otherwise."""
        self._retried(lambda: self._repo.checkout(targets=[self._data], force=True))

    def not_pushed(self) -> int:
        """Return how many of the version's files the remote lacks."""
        states = self._retried(
            lambda: self._repo.status(targets=[self._data], cloud=True, remote=self._remote)
        )
        return sum(state in ("new", "missing") for state in states.values())

    def _retried(self, work: Callable[[], _Result]) -> _Result:
        from dvc.exceptions import DvcException
        from dvc.lock import LockError

        end = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return work()
            except LockError as error:
                if time.monotonic() > end:
                    raise WorkFailed(f"another DVC command holds {self._repo.root_dir}: {error}") from error
                time.sleep(0.2)
            except DvcException as error:
                reason = " ".join(str(error).split())
                raise WorkFailed(f"DVC failed in {self._repo.root_dir}: {reason}") from error
            except Exception as error:  # each kind of remote has errors of its own
                reason = " ".join(str(error).split()) or type(error).__name__
                raise WorkFailed(f"the DVC remote {self._remote!r} failed: {reason}") from error


@contextlib.contextmanager
def open_store(settings: Settings) -> Iterator[DataStore]:
    """Open the project's DVC repository; make it and the default remote when they are absent.

    Raises
    ------
    BadInput
        When the remote of the settings is unknown.
    WorkFailed
        When DVC cannot open the repository.
    """
    os.environ.setdefault("DVC_NO_ANALYTICS", "true")
    os.environ.setdefault("DVC_SITE_CACHE_DIR", str(settings.state_dir / "dvc"))
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    for name in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(name).setLevel(logging.ERROR)  # their advice goes to standard output
    root = settings.root
    git = worktree_of(root)
    _drop_broken_lock(root / ".dvc" / "tmp" / "rwlock")
    try:
        if not (root / ".dvc").is_dir():
            Repo.init(str(root), no_scm=git is None, subdir=git not in (None, root)).close()
        repo = Repo(str(root), config=None if git else {"core": {"no_scm": True}})
    except DvcException as error:
        raise WorkFailed(f"DVC cannot open {root}: {error}") from error
    with repo:
        _ensure_remote(repo, settings)
        yield DataStore(repo, settings)


def _drop_broken_lock(path: Path) -> None:
    """Remove DVC's list of locks when a killed command left it cut: DVC would refuse to work for ever."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except ValueError:
        path.unlink(missing_ok=True)


def _ensure_remote(repo: "Repo", settings: Settings) -> None:
    known = repo.config["remote"]
    name = settings.dvc.remote
    if name in known:
        return
    if name != DvcSettings().remote:
        raise BadInput(
            f"the DVC remote {name!r} is unknown in {settings.root}; known: {', '.join(known) or 'none'}"
            f" (`dvc remote add {name} URL` adds it)"
        )
    with repo.config.edit("repo") as config:
        # DVC reads it relative to the current folder, writes it relative to .dvc/config, keeps absolute ones.
        config["remote"][name] = {"url": os.path.relpath(settings.root / STORE)}
        config["core"].setdefault("remote", name)
