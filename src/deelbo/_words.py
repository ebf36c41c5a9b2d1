"""What messages and tables are made of."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def some_of(names: Sequence[str], number: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:number]) + (f" and {len(names) - number} more" if len(names) > number else "")


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] | None = None) -> str:
    """Return rows as CSV: the columns given, or all that a row has."""
    file = io.StringIO(newline="")
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
