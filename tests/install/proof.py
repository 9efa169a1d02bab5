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
    """The records of one installation, for one version of Python, of Spark and of Airflow."""

    python: str
    spark: str
    airflow: str
    produced: int
    arrived: int
    duplicates: int
    first_record: float
    """Seconds from the beginning of the installation until the handler had a record."""


def write(**kinds: Sequence[Proof]) -> None:
    """Keep them for `main`, beside those of other kinds."""
    FILE.parent.mkdir(exist_ok=True)
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    kept |= {kind: [asdict(proof) for proof in proofs] for kind, proofs in kinds.items()}
    FILE.write_text(json.dumps(kept), encoding="utf-8")


def main() -> int:
    """Print the last line; return the exit code."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if kept.keys() != {"installations", "upgrade"}:
        print("install: no proof, because a test did not get to its end, or was skipped")
        return 1
    proofs, [upgrade] = ([Proof(**each) for each in kept[kind]] for kind in ("installations", "upgrade"))
    produced, arrived = (sum(getattr(proof, name) for proof in proofs) for name in ("produced", "arrived"))
    missing, duplicates = produced - arrived, sum(proof.duplicates for proof in proofs)
    pythons, sparks, airflows = (
        len({getattr(proof, name) for proof in proofs}) for name in ("python", "spark", "airflow")
    )
    first = max(proof.first_record for proof in proofs)
    upgrade_lost, upgrade_doubled = upgrade.produced - upgrade.arrived, upgrade.duplicates
    print(
        f"install: {pythons=} {sparks=} {airflows=} {missing=} {duplicates=} {upgrade_lost=} {upgrade_doubled=} "
        f"first_record_s={first:.0f}"
    )
    return 1 if missing or duplicates or upgrade_lost or upgrade_doubled or not produced else 0


if __name__ == "__main__":
    sys.exit(main())
