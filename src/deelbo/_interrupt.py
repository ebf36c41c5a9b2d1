"""Ctrl-C that waits until work that must not be interrupted is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """Context manager inside which a Ctrl-C only sets `requested` to True.

    Outside the main thread it does nothing, because Python delivers signals to the main thread only.

    Args:
        insistent: Whether a second Ctrl-C raises KeyboardInterrupt at once.
    """

    def __init__(self, insistent: bool) -> None:
        self.requested = False
        self._insistent = insistent
        self._previous: Any = None

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def deliver(self) -> None:
        """After the block, do what a Ctrl-C inside it would have done: usually raise KeyboardInterrupt."""
        if self.requested and callable(self._previous):
            self._previous(signal.SIGINT, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and self._insistent:
            raise KeyboardInterrupt
        self.requested = True
