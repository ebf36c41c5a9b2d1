"""Optional libraries (the package's extras), imported only where they are used."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import a module of an optional library.

    Args:
        module: Full name of the module, such as "torchvision.models".
        extra: Name of the extra of deelbo that installs the library.

    Raises:
        ModuleNotFoundError: If the library is missing; the message says how to install it.
    """
    try:
        with warnings.catch_warnings():  # what a library's own imports will have to change is not for our users
            warnings.simplefilter("ignore", FutureWarning)
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[{extra}]"', name=error.name) from error
