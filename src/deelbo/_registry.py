"""Registries: what can be chosen by name, such as methods, priors and optimizers. A new entry is a new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to entries, which register themselves in the modules of one package.

    The modules are imported when the registry is first looked at, so that a package may define its registry and its
    entries without importing in circles. A package outside deelbo may register entries as well.

    Args:
        argument: Name of the argument that chooses an entry, such as "method"; error messages speak of it.
        package: Name of the package whose modules register entries.
    """

    def __init__(self, argument: str, package: str) -> None:
        self.argument, self.package = argument, package
        self._entries: dict[str, T] = {}
        self._summaries: dict[str, str] = {}
        self._complete = False

    def register(self, name: str, summary: str) -> Callable[[Any], Any]:
        """Return a decorator that makes a class or function known under a name.

        Args:
            name: Name that users write.
            summary: A few words for the help texts of the command line.
        """

        def keep(entry: Any) -> Any:
            self._entries[name], self._summaries[name] = entry, summary
            return entry

        return keep

    def __getitem__(self, name: str) -> T:
        self._import_modules()
        if name not in self._entries:
            raise ValueError(f"{self.argument}={name!r}, but it is one of {', '.join(self.names())}")
        return self._entries[name]

    def get(self, name: str, default: T) -> T:
        """Return the entry of a name, or the default if there is none."""
        self._import_modules()
        return self._entries.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Return all names, in alphabetical order."""
        self._import_modules()
        return sorted(self._entries)

    def entries(self) -> list[T]:
        """Return all entries, in the order in which they were registered."""
        self._import_modules()
        return list(self._entries.values())

    def help(self) -> str:
        """Return all names with their summaries, for the command line."""
        return "; ".join(f"{name}: {self._summaries[name]}" for name in self.names()) + "."

    def _import_modules(self) -> None:
        if not self._complete:
            self._complete = True  # first, since a module may look at the registry while it is imported
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
