"""Dataset versions: `data/` is tracked by `data.dvc` and pushed to a DVC remote.

`data.dvc` names a version; `data/` holds that version and what was measured since. To keep the two from
overwriting each other, `.tcl/data_base` remembers the version that `data/` was last known to hold.
"""

import contextlib
import re
from collections.abc import Iterator

from tcl.devices.device import check_name
from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_write, locked, sha256_tree
from tcl.settings import Settings
from tcl.versioning import git
from tcl.versioning.store import STORE, DataStore, open_store
from tcl.versioning.versions import DataStatus, DataVersion

_LOCK_SECONDS = 600.0
_COMMITTED = ["data.dvc", STORE, ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"]
_NAMED = re.compile(r"^- md5: (\w+\.dir)$", re.MULTILINE)
_OF_DATA = re.compile(r"^  path: data$", re.MULTILINE)
_WAYS_OUT = "move data/ aside and run `dvc pull`, or run `dvc add data` to let data/ replace it"


class DatasetVersions:
    """The dataset's versions in a project folder; DVC is imported at first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = settings.root
        self._base = settings.state_dir / "data_base"
        self._kept = settings.state_dir / "data.dvc"  # the last one, while DVC writes the next

    def data_hash(self) -> str | None:
        """Return the hash of the version that `data.dvc` names; None before the first one."""
        try:
            text = (self.root / "data.dvc").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        found = _NAMED.search(text)
        if found is not None and _OF_DATA.search(text):
            return found[1]
        if self._restore(text):
            return self.data_hash()
        raise BadInput(f"{self.root / 'data.dvc'} names no version of data/; restore it from git")

    def device_hash(self, device: str) -> str:
        """Return the content hash of one device's measurements; other devices do not count."""
        return sha256_tree(self.settings.data_dir / check_name(device))

    def version(self, message: str) -> DataVersion:
        """Make `data/` a version: add it, push it and, where the settings say so, commit it to git.

        Parameters
        ----------
        message
            The git commit's message.

        Raises
        ------
        BadInput
            When there is no data.
        WorkFailed
            When `data.dvc` names a version that `data/` does not descend from, or DVC or git fails.
        """
        if not self._has_files():
            raise BadInput(f"{self.settings.data_dir} holds no measurements; `tcl measure` makes some")
        with self._open() as store:
            before = self.data_hash()
            if before is not None and before != self._known_base() and store.current_hash() != before:
                raise WorkFailed(
                    f"{self.settings.data_dir} does not descend from the version that data.dvc names"
                    f" ({before}), so a new version would lose measurements; {_WAYS_OUT}"
                )
            self._keep()
            store.add()
            self._kept.unlink()
            pushed = store.push()
            after = self.data_hash()
            assert after is not None
            atomic_write(self._base, after)
            pending = self._uncommitted()
            commit = None
            if self.settings.dvc.git_commit and pending:
                commit, pending = git.commit(self.root, pending, message), []
        return DataVersion(after, after != before, pushed, commit, pending)

    def pull(self) -> bool:
        """Bring `data/` to the version that `data.dvc` names; call it before new measurements are added.

        Measurements made since that version stay.

        Returns
        -------
        bool
            Whether files were fetched.

        Raises
        ------
        WorkFailed
            When `data/` holds measurements that belong to another version, or the remote lacks files; `data/` stays
            as it is then.
        """
        recorded = self.data_hash()
        if recorded is None:
            return False
        with self._open() as store:
            base = self._known_base()
            if self._has_files():
                current = store.current_hash()
                if recorded in (current, base):
                    atomic_write(self._base, recorded)
                    return False
                if current != base:
                    raise WorkFailed(
                        f"{self.settings.data_dir} holds measurements that are in no version, and data.dvc"
                        f" names another one ({recorded}); {_WAYS_OUT}"
                    )
            if not store.fetch():
                raise WorkFailed(
                    f"the DVC remote {self.settings.dvc.remote!r} lacks files of the version that data.dvc names"
                    f" ({recorded}), so data/ stays as it is; whoever made that version must push it (`dvc push`)"
                )
            store.checkout()
            atomic_write(self._base, recorded)
        return True

    def status(self) -> DataStatus:
        """Compare `data/`, `data.dvc`, the remote and git."""
        recorded = self.data_hash()
        has_files = self._has_files()
        if recorded is None:
            return DataStatus(None, True, has_files, 0, [])
        with self._open() as store:
            current, base = store.current_hash() if has_files else None, self._known_base()
            return DataStatus(
                recorded,
                fetched=has_files and recorded in (current, base),
                dirty=has_files and current not in (recorded, base),
                not_pushed=store.not_pushed(),
                to_commit=self._uncommitted(),
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[DataStore]:
        lock = locked(self.settings.state_dir / "data.lock", _LOCK_SECONDS, "the dataset")
        with lock, open_store(self.settings) as store:
            yield store

    def _keep(self) -> None:
        path = self.root / "data.dvc"
        atomic_write(self._kept, path.read_bytes() if path.exists() else b"")

    def _restore(self, broken: str) -> bool:
        """Undo a `data.dvc` that a killed command left cut; tell whether that is what happened."""
        if "<<<<<<<" in broken or not self._kept.exists():
            return False
        content = self._kept.read_bytes()
        if content:
            atomic_write(self.root / "data.dvc", content)
        else:
            (self.root / "data.dvc").unlink()
        return True

    def _known_base(self) -> str | None:
        return self._base.read_text(encoding="utf-8", errors="replace") if self._base.exists() else None

    def _has_files(self) -> bool:
        folder = self.settings.data_dir
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file where the folder of the measurements belongs; move it aside")
        return any(path.is_file() for path in folder.rglob("*"))

    def _uncommitted(self) -> list[str]:
        if git.worktree_of(self.root) is None:
            return []
        return git.uncommitted(self.root, [path for path in _COMMITTED if (self.root / path).exists()])
