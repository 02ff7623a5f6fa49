"""The few git questions and the one commit that dataset versions need."""

import subprocess
from pathlib import Path

from tcl.errors import WorkFailed


def worktree_of(folder: Path) -> Path | None:
    """Return the root of the git work tree that holds `folder`; None when there is none."""
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


def head(folder: Path) -> str | None:
    """Return the commit that `folder`'s work tree is at; None without git or before the first commit."""
    if worktree_of(folder) is None:
        return None
    result = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    return result.stdout.strip() if result.returncode == 0 else None


def uncommitted(folder: Path, paths: list[str]) -> list[str]:
    """Return those of `paths`, relative to `folder`, that differ from the last commit or are new."""
    return [path for path in paths if _run(folder, "status", "--porcelain", "--", path)]


def commit(folder: Path, paths: list[str], message: str) -> str:
    """Commit `paths` alone, whatever else is staged, and return the commit.

    Raises
    ------
    WorkFailed
        When git refuses, with its reason.
    """
    _run(folder, "add", "--", *paths)
    _run(folder, "commit", "--quiet", "--message", message, "--", *paths)
    return _run(folder, "rev-parse", "HEAD").strip()


def _run(folder: Path, *arguments: str) -> str:
    result = _git(folder, *arguments)
    if result.returncode != 0:
        reason = " ".join((result.stderr or result.stdout).split())
        raise WorkFailed(f"git {arguments[0]} failed in {folder}: {reason}")
    return result.stdout


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise WorkFailed("git is not installed; install it, or work in a folder without .git") from None
