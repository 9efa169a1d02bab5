"""What came of the installations: the line that counts. `python -m tests.install.proof` prints that of the last run.

It ends with 1 if there is none, or if a number in it falls short of its goal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "artifacts" / "install.json"
AT_LEAST = {"pythons": 3, "sparks": 4, "airflows": 2}
AT_MOST = {
    **dict.fromkeys(("missing", "duplicates", "upgrade_lost", "upgrade_doubled"), 0),
    "first_record_s": 600,
}


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
    first_hour: bool = False
    """Whether it was installed as the page *First hour* has it, with no other Spark beside it."""


def write(**kinds: Sequence[Proof]) -> None:
    """Keep them for `main`, beside those of other kinds."""
    FILE.parent.mkdir(exist_ok=True)
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    kept |= {kind: [asdict(proof) for proof in proofs] for kind, proofs in kinds.items()}
    FILE.write_text(json.dumps(kept), encoding="utf-8")


def numbers(installations: Sequence[Proof], upgrade: Proof) -> dict[str, float]:
    """Return what counts: minor versions, records that went wrong, and the longest of the first hours."""
    produced, arrived = (
        sum(getattr(each, name) for each in installations) for name in ("produced", "arrived")
    )
    first_hours = [each.first_record for each in installations if each.first_hour]
    return {
        **{
            f"{name}s": len({_minor(getattr(each, name)) for each in installations if each.produced})
            for name in ("python", "spark", "airflow")
        },
        "missing": produced - arrived,
        "duplicates": sum(each.duplicates for each in installations),
        "upgrade_lost": upgrade.produced - upgrade.arrived,
        "upgrade_doubled": upgrade.duplicates,
        "first_record_s": max(first_hours, default=math.inf),
    }


def short_of_goal(found: dict[str, float]) -> list[str]:
    """Return the names of the numbers that are not what they have to be."""
    few = [name for name, least in AT_LEAST.items() if found[name] < least]
    return few + [name for name, most in AT_MOST.items() if found[name] > most]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def main() -> int:
    """Print the last line; return the exit code."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if kept.keys() != {"installations", "upgrade"}:
        print("install: no proof, because a test did not get to its end, or was skipped")
        return 1
    proofs, [upgrade] = ([Proof(**each) for each in kept[kind]] for kind in ("installations", "upgrade"))
    found = numbers(proofs, upgrade)
    short = short_of_goal(found)
    for name in short:
        print(f"{name}={found[name]:.0f}: the goal is {(AT_LEAST | AT_MOST)[name]}")
    print("install: " + " ".join(f"{name}={number:.0f}" for name, number in found.items()))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
