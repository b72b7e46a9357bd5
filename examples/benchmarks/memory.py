"""The peak memory of this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path


def forget_peak() -> None:
    """Let the peak start again from the memory that is in use, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike getrusage, this does not include the peak of the parent process.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
