"""What is told about dataset versions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataVersion:
    """What `DatasetVersions.version` did.

    Attributes
    ----------
    hash
        Names the version.
    changed
        False when `data/` was that version already.
    pushed
        Files sent to the remote.
    commit
        The git commit; None when none was made.
    to_commit
        Paths that a person should commit to git.
    """

    hash: str
    changed: bool
    pushed: int
    commit: str | None
    to_commit: list[str]


@dataclass(frozen=True)
class DataStatus:
    """Where `data/` stands.

    Attributes
    ----------
    hash
        The version that `data.dvc` names; None before the first one.
    fetched
        Whether `data/` holds it, and perhaps measurements made since; `pull` fetches it otherwise.
    dirty
        Whether `data/` holds measurements that are in no version.
    not_pushed
        How many of its files the remote lacks.
    to_commit
        Paths that git does not hold yet.
    """

    hash: str | None
    fetched: bool
    dirty: bool
    not_pushed: int
    to_commit: list[str]
