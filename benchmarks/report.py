"""`benchmarks/report.md`: plot, main table and last line of each part's last run, from the parts' own reports."""

from __future__ import annotations

import re
from pathlib import Path

import click

from benchmarks.harness.report import FOLDER, first_table
from devstack.progress import say

PARTS = {
    "assignors": "Planning, beside Kafka's assignors",
    "throughput": "Reading, beside Spark's own Kafka source",
    "failover": "Failover, beside Kafka's own groups",
    "state": "State by key, beside Spark's own",
    "scale": "The coordinator at scale",
    "airflow-share": "Airflow's own share",
}


@click.command()
def main() -> None:
    """Write the report, and print the lines."""
    sections = []
    for part, title in PARTS.items():
        report, plot = FOLDER / f"report-{part}.md", FOLDER / f"plot-{part}.svg"
        line = last_line(part, report)
        say(line or f"bench-{part}: no report; run 'make bench-{part}'")
        section = [f"## [{title}]({report.name})" if line else f"## {title}"]
        section += [f"![{title}]({plot.name})"] if plot.exists() else []
        section += (
            [first_table(report.read_text(encoding="utf-8")), f"`{line}`"]
            if line
            else [f"Not run yet: `make bench-{part}`."]
        )
        sections += section
    head = (
        "Written by `make bench`: do not edit. Of each part the plot and the first table; its own report says how it "
        "was measured, and has the rest."
    )
    text = "\n\n".join(["# Benchmarks", head, *sections])
    (FOLDER / "report.md").write_text(f"{text}\n", encoding="utf-8")


def last_line(part: str, report: Path) -> str:
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    return str(["", *re.findall(rf"bench-{part}: [^`\n]*", text)][-1])
