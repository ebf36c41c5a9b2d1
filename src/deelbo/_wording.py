"""Text for messages and tables: shortened lists, counted nouns, durations, natural order, CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def some_of(names: Sequence[str], number: int = 4) -> str:
    """Return the first few names, and how many more there are."""
    return ", ".join(names[:number]) + (f" and {len(names) - number} more" if len(names) > number else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the right form, such as "1 image" or "3 classes"."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours, such as "1.5 min"."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 3.6e6 else f"{seconds / 3600:,.0f} h"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders numbers inside names by value, so that "2" comes before "10"."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] | None = None) -> str:
    """Return rows as CSV, with the given columns or all that occur in a row."""
    file = io.StringIO(newline="")
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
