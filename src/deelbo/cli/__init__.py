"""The command `deelbo`: its main function, and errors as one line with an exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from deelbo._memory import keep_memory
from deelbo._processes import is_first, told_elsewhere
from deelbo.cli.wording import as_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for bad input, 1 for training that failed, 130 for Ctrl-C.

    Args:
        arguments: Arguments of the command; those of the process if None.
    """
    command = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # file names need not be valid Unicode
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    keep_memory()
    debug = "--debug" in command
    try:
        from deelbo.cli.app import app

        code = app([word for word in command if word != "--debug"], prog_name="deelbo", standalone_mode=False)
        if code == 130 and is_first():
            print("deelbo: interrupted", file=sys.stderr)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        if is_first():
            print("deelbo: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        message, code = _explain(error)
        if message is None:
            raise
        if message and not told_elsewhere(error):  # none where the help was shown instead
            print(f"deelbo: {message}", file=sys.stderr)
        return code


def _explain(error: Exception) -> tuple[str | None, int]:
    """Return a line and an exit code for an error that the user can correct; no line for a bug in deelbo."""
    if (formatted := getattr(error, "format_message", None)) is not None:  # wrong options
        return (f"{formatted()} (--help lists the options)" if formatted() and is_first() else ""), 2
    line = as_options("; ".join(part.strip() for part in str(error).splitlines() if part.strip()))
    if (code := getattr(error, "exit_code", None)) is not None:
        return line, code
    if isinstance(error, ModuleNotFoundError):
        of_command_line = (error.name or "").split(".")[0] in ("typer", "rich")
        return (f'{error.name} is missing: pip install "deelbo[training]"' if of_command_line else line), 2
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror, 2
    return (line, 2) if isinstance(error, (ValueError, OSError)) else (None, 1)
