"""Pipes and devices in the place of files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def refuse_special(path: Path) -> None:
    """Raise an OSError for a pipe or a device: it may have no end, or keep whoever opens it waiting for ever.

    What a shell hands over, as in <(zcat rows.gz), has a writer and is read like a file.
    """
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a name that no file can have
        raise OSError(errno.EINVAL, str(error)) from None
    handed_over = stat.S_ISFIFO(mode) and os.path.basename(os.path.realpath(path)).startswith("pipe:[")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or handed_over):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")
