"""`benchmarks/report.md`: the last line of each part's last run, from the parts' own reports."""

from __future__ import annotations

import re
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
        "Written by `make bench`: do not edit. Each part has a report of its own.",
        "",
    ]
    for part, title in PARTS.items():
        report = FOLDER / f"report-{part}.md"
        line = last_line(part, report)
        say(line or f"bench-{part}: no report; run 'make bench-{part}'")
        link = f"[{title}]({report.name})" if line else title
        text += [f"## {link}", "", f"`{line}`" if line else f"Not run yet: `make bench-{part}`.", ""]
    (FOLDER / "report.md").write_text("\n".join(text), encoding="utf-8")


def last_line(part: str, report: Path) -> str:
    """The line with the part's figures, '' if there is none."""
    if not report.exists():
        return ""
    found = re.findall(rf"bench-{part}: [^`\n]*", report.read_text(encoding="utf-8"))
    return str(found[-1]) if found else ""


if __name__ == "__main__":
    main()
