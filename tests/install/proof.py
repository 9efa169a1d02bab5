"""What came of the installations: the line that counts. `python -m tests.install.proof` prints that of the last run.

It ends with 1 if there is none, or if a record is missing or was read twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "artifacts" / "install.json"


@dataclass(frozen=True)
class Proof:
    """The records of one installation, for one version of Python."""

    python: str
    produced: int
    arrived: int
    duplicates: int


def write(proofs: Sequence[Proof]) -> None:
    """Keep them for `main`."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps([asdict(proof) for proof in proofs]), encoding="utf-8")


def main() -> int:
    """Print the last line; return the exit code."""
    if not FILE.exists():
        print("install: no proof, because the test did not get to its end, or was skipped")
        return 1
    proofs = [Proof(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))]
    produced, arrived = (sum(getattr(proof, name) for proof in proofs) for name in ("produced", "arrived"))
    missing, duplicates = produced - arrived, sum(proof.duplicates for proof in proofs)
    pythons = len({proof.python for proof in proofs})
    print(f"install: {pythons=} {produced=} {arrived=} {missing=} {duplicates=}")
    return 1 if missing or duplicates or not produced else 0


if __name__ == "__main__":
    sys.exit(main())
