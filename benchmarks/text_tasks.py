"""Make tables of texts with labels from public packages: more tasks than DATA has, to choose settings on.

    pip download --no-deps --no-binary :all: vaderSentiment==0.5
    apt-get update && apt-get install fortunes
    python benchmarks/text_tasks.py vaderSentiment-0.5.zip TABLES

Written to TABLES: films.csv, products.csv, editorials.csv and tweets.csv (sentences from vaderSentiment that people
rated, positive or negative; those with a mean rating between -0.5 and 0.5 are left out), sources.csv (which of the four
a sentence is from), fortunes.csv (the file of Debian's package fortunes, of ten) and packages.csv (the section of a
Debian package, of twelve, from the first line of its description); sections20.csv has twenty sections, sections.csv all
with a hundred packages.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
import subprocess
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RATED = {"movie": "films", "amazon": "products", "nytEditorial": "editorials", "tweets": "tweets"}
FORTUNES = Path("/usr/share/games/fortunes")
FILES = ["computers", "definitions", "food", "kids", "law", "literature", "medicine", "science", "sports", "work"]
SECTIONS = ["admin", "doc", "electronics", "fonts", "games", "graphics"]
SECTIONS += ["libs", "mail", "math", "python", "science", "sound"]
TWENTY = ["python", "gnu-r", "text", "java", "editors", "games", "perl", "doc", "localization", "ruby", "net", "x11"]
TWENTY += ["haskell", "science", "fonts", "mail", "video", "database", "kernel", "electronics"]
MOST = 3000  # rows of a table, drawn at random, from each class at most its share

Rows = list[tuple[str, str]]


def rated(archive: Path) -> Iterator[tuple[str, str, float]]:
    """Yield task, sentence and mean rating."""
    with zipfile.ZipFile(archive) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".tar.gz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
            for start, task in RATED.items():
                member = next(m for m in inner.getnames() if re.search(rf"/{start}\w*_GroundTruth", m))
                file = inner.extractfile(member)
                assert file is not None
                for line in file.read().decode("utf-8", "replace").splitlines():
                    parts = line.split("\t")
                    if len(parts) == 3:
                        yield task, parts[2].strip(), float(parts[1])


def fortunes() -> Rows:
    """Return the entries of some files with the file's name."""
    found = []
    for name in FILES:
        texts = (FORTUNES / name).read_text(errors="replace").split("\n%\n")
        found += [(" ".join(text.split()), name) for text in texts if text.strip()]
    return found


def packages() -> Rows:
    """Return the first lines of the descriptions of Debian's packages with their sections."""
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found = {}
    for entry in dump.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and line[0] != " ")
        if text := fields.get("Description-en", fields.get("Description")):
            found[text] = fields.get("Section", "").rpartition("/")[2]
    return list(found.items())


def write(path: Path, rows: Rows) -> None:
    """Write a table with some of the rows, and print the number of each label."""
    rows = sorted(set(rows))
    random.Random(0).shuffle(rows)
    share = MOST // len({label for _, label in rows})
    counts: Counter[str] = Counter()
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("text", "label"))
        for row in rows:
            counts[row[1]] += 1
            if counts[row[1]] <= share:
                table.writerow(row)
    print(path.name, {label: min(number, share) for label, number in counts.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("tables", type=Path)
    arguments = parser.parse_args()
    arguments.tables.mkdir(parents=True, exist_ok=True)
    sentences = list(rated(arguments.archive))
    for task in RATED.values():
        sure = [(text, rating > 0) for name, text, rating in sentences if name == task and abs(rating) > 0.5]
        write(arguments.tables / f"{task}.csv", [(text, "positive" if good else "negative") for text, good in sure])
    write(arguments.tables / "sources.csv", [(text, name) for name, text, _ in sentences])
    write(arguments.tables / "fortunes.csv", fortunes())
    described = packages()
    counts = Counter(section for _, section in described)
    write(arguments.tables / "packages.csv", [row for row in described if row[1] in SECTIONS])
    write(arguments.tables / "sections20.csv", [row for row in described if row[1] in TWENTY])
    write(arguments.tables / "sections.csv", [row for row in described if counts[row[1]] >= 100])


if __name__ == "__main__":
    main()
