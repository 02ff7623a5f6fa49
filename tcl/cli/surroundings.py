"""What the machine refuses, as one sentence: full disks, read-only folders and the like are no bugs."""

import errno
import re

_REASONS = {
    errno.ENOSPC: "the disk is full; make room and give the same command again",
    errno.EDQUOT: "the disk quota is used up; make room and give the same command again",
    errno.EFBIG: "the file would be larger than this system allows (see `ulimit -f`)",
    errno.EROFS: "the file system is read-only; work in a folder that can be written",
    errno.EACCES: "permission denied; work in a folder of your own, or ask its owner",
    errno.EPERM: "permission denied; work in a folder of your own, or ask its owner",
    errno.EIO: "the disk reports an error; check it before anything else",
    errno.EMFILE: "too many files are open; raise the limit (`ulimit -n`)",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "the machine has no memory left; end other programs and give the same command again",
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.ENOTDIR: "a folder is expected, but there is a file",
    errno.EISDIR: "a file is expected, but there is a folder",
}


def sentence_of(error: OSError) -> str | None:
    """Say what the machine refused and what to do; None when the error says nothing about the machine."""
    if "No usable temporary directory" in str(error):
        return (
            "no folder for temporary files can be written; make room in /tmp, or set TMPDIR to another folder"
        )
    number = error.errno
    if number is None and (found := re.search(r"\[errno (\d+)\]", str(error), re.IGNORECASE)):
        number = int(found[1])  # as Arrow reports it
    reason = _REASONS.get(number or 0)
    if reason is None:
        return None
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{names[-1]}: {reason}" if names else reason
