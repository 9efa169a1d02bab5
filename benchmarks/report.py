"""`benchmarks/report.md`: plot, main table and last line of each part's last run, from the parts' own reports."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path

from devstack.progress import say

FOLDER = Path(__file__).parent
PARTS = {
    "assignors": "Planning, beside Kafka's assignors",
    "throughput": "Reading, beside Spark's own Kafka source",
    "failover": "Failover, beside Kafka's own groups",
    "scale": "The coordinator at scale",
    "airflow-share": "Airflow's own share",
}


def main() -> None:
    """Write the report, and print the lines."""
    text = [
        "# Benchmarks",
        "",
        "Written by `make bench`: do not edit. Of each part the plot and the first table; its own report says how it "
        "was measured, and has the rest.",
        "",
    ]
    for part, title in PARTS.items():
        report = FOLDER / f"report-{part}.md"
        line = last_line(part, report)
        say(line or f"bench-{part}: no report; run 'make bench-{part}'")
        link = f"[{title}]({report.name})" if line else title
        text += [f"## {link}", ""]
        if (FOLDER / f"plot-{part}.svg").exists():
            text += [f"![{title}](plot-{part}.svg)", ""]
        text += (
            [*first_table(report), f"`{line}`", ""] if line else [f"Not run yet: `make bench-{part}`.", ""]
        )
    (FOLDER / "report.md").write_text("\n".join(text), encoding="utf-8")


def last_line(part: str, report: Path) -> str:
    """Return the last line with the part's figures, '' if there is none."""
    if not report.exists():
        return ""
    found = re.findall(rf"bench-{part}: [^`\n]*", report.read_text(encoding="utf-8"))
    return str(found[-1]) if found else ""


def first_table(report: Path) -> list[str]:
    """Return the lines of the report's first table and an empty one, nothing if it has none."""
    lines = report.read_text(encoding="utf-8").splitlines()
    table = list(takewhile(_in_table, dropwhile(lambda line: not _in_table(line), lines)))
    return [*table, ""] if table else []


def _in_table(line: str) -> bool:
    return line.startswith("|")


if __name__ == "__main__":
    main()
