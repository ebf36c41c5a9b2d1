"""Errors that are more than wrong arguments, each with the exit code that the command line gives it.

Wrong arguments and bad input are ordinary `ValueError`s and `OSError`s (exit code 2).
"""

from __future__ import annotations


class TrainingError(RuntimeError):
    """Training did not lead to a result."""

    exit_code = 1


class AllDivergedError(TrainingError):
    """Every learning rate led to an infinite or undefined objective."""

    of_all = True  # several processes that train together come to it at the same step


class LostProcessError(TrainingError):
    """One of several processes that train together has ended; the message says how to continue."""


class DivergedError(TrainingError):
    """The loss on the source task became infinite or undefined."""


class FailedRunsError(TrainingError):
    """Some training runs of a comparison failed."""


class Interrupted(Exception):
    """Ctrl-C was pressed; the message says what was saved and how to continue.

    Not a `KeyboardInterrupt`, because the library behind the command line would swallow that one's message.
    """

    exit_code = 130
    of_all = True
