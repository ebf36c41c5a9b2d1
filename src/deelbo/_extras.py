"""Libraries beyond the core, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Args:
        module: Its name, with dots.
        extra: Of this package, which installs it.

    Raises:
        ModuleNotFoundError: If it is missing; the message says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[{extra}]"', name=error.name) from error
