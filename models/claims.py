"""Creates folders that this process locks, and removes folders of killed processes.

A locked folder has a file `owner`. The lock on this file ends with the process.
"""

import fcntl
import logging
import os
import pathlib
import shutil

OWNER = "owner"
log = logging.getLogger(__name__)


def claim(folder: pathlib.Path, *, text: str = "", mode: int = 0o777) -> int:
    """Creates a folder with a locked file `owner`; returns the file's descriptor."""
    # Until it is locked, the folder has a name that `remove_abandoned` does not match.
    unlocked = folder.with_name(f".{folder.name}.unlocked")
    unlocked.mkdir(mode)
    try:
        lock = os.open(unlocked / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(lock, text.encode())
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.warning(
                "%s: file locks fail (%s); if this process is killed, delete %s",
                folder.parent,
                error.strerror,
                folder,
            )
        unlocked.rename(folder)
    except BaseException:  # a full disk or a signal
        shutil.rmtree(unlocked, ignore_errors=True)
        raise
    return lock


def remove_abandoned(parent: pathlib.Path, pattern: str) -> None:
    """Removes the folders in `parent` that match a glob pattern and are not locked."""
    for folder in parent.glob(pattern):
        try:
            with (folder / OWNER).open("r+") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:  # an earlier removal was interrupted
            pass
        except OSError:  # in use, or owned by another user
            continue
        log.info("removing %s, which no process uses", folder)
        shutil.rmtree(folder, ignore_errors=True)
