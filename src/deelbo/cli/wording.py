"""Messages of the library for the command line: arguments become options."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

# How messages write an argument: train_size=500, task='regression'.
_ARGUMENT = re.compile(r"""(?<!--calibrate )\b([a-z][a-z_]*)=('[^']*'|"[^"]*"|[^\s,;:()]+)""")


def shown_number(value: float) -> str:
    """Return a metric with four decimals, or four digits if it is so small that decimals would hide it."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.01 else f"{value:.4g}"


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f" {name:{width}}  {value}")


def as_options(message: str, names: Collection[str] | None = None) -> str:
    """Return a message in which `train_size=500` is `--train-size 500`, and `pairs=False` is `--no-pairs`.

    Args:
        message: A message that speaks of arguments.
        names: Names of the arguments that are options; those of all commands if None.
    """
    known = _option_names() if names is None else names

    def option(match: re.Match[str]) -> str:
        if match[1] not in known:
            return match[0]
        name, value = f"--{match[1].replace('_', '-')}", match[2].strip("'\"")
        return {"True": name, "False": f"--no-{name[2:]}"}.get(value, f"{name} {value}")

    return _ARGUMENT.sub(option, message)


def _option_names() -> Collection[str]:
    """Return the names of the arguments of all commands; none if the command line's libraries are missing."""
    try:
        from deelbo.cli.app import option_names  # here, since the commands import this module
    except ModuleNotFoundError:
        return ()
    return option_names()
