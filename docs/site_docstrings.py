"""How docstrings are read for the reference: an extension of griffe, named in mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


class Examples(Extension):
    """Reads the section `Example:` of our docstrings as `Examples:`, which is the name that griffe knows."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section of one object.

        Args:
            obj: A module, class, function or attribute.
        """
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
