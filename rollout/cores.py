"""Counts the CPU cores that a process may use."""

import contextlib
import os
import pathlib

_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_OWN = pathlib.Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use.

    CPU affinity and the CPU quotas of a container (cgroups) limit this number.
    """
    cores = len(os.sched_getaffinity(0))
    groups = []
    with contextlib.suppress(OSError):
        for line in _OWN.read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            if not controllers:
                groups.append(_CGROUPS / own.strip("/"))
            elif "cpu" in controllers.split(","):  # version 1
                groups.append(_CGROUPS / "cpu" / own.strip("/"))
    for group in groups:
        for folder in (group, *group.parents):
            # Without a quota, the files are missing, or the quota is "max" or -1.
            with contextlib.suppress(OSError, ValueError):
                if (folder / "cpu.max").is_file():
                    text = (folder / "cpu.max").read_text()
                else:
                    pair = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                    text = " ".join((folder / name).read_text() for name in pair)
                quota, period = map(int, text.split())
                if quota > 0:
                    cores = min(cores, max(1, -(-quota // period)))
    return cores
