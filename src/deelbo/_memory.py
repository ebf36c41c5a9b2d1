"""Memory of a process that trains on the CPU: kept for the next step instead of given back.

The GNU C library gives large blocks back to the operating system as soon as they are free, and gets them anew, page by
page. A training step frees and allocates all of its activations, so that up to a quarter of it went into this.
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # numbers of the parameters of mallopt


def keep_memory() -> None:
    """Let this process keep memory that it has freed, for what it allocates next.

    For processes of our own, since it concerns the whole process. Nothing happens where the C library is another one,
    or where the user has set its environment variables.
    """
    chosen = "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ)
    if chosen or platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_MAX, 0)  # large blocks come from the heap as well
    library.mallopt(_TRIM_THRESHOLD, -1)  # and the heap does not shrink
