"""Reports: a template in `benchmarks/templates`, filled with figures, and a last line that a script reads."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from devstack.progress import say

FOLDER = Path(__file__).parents[1]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def first_table(text: str) -> str:
    """Return the first Markdown table of a text, '' if it has none."""
    found = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return found[0].strip() if found else ""


def middle(values: Iterable[float]) -> float:
    """Return the median, nan of nothing."""
    found = list(values)
    return median(found) if found else math.nan


def spread(values: Collection[float], form: str = ".2f") -> str:
    """Format the median, and in brackets the least and the most; '' of nothing."""
    if len(values) < 2:  # noqa: PLR2004  one value has no spread
        return "".join(f"{value:{form}}" for value in values)
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def last_line(name: str, figures: Mapping[str, str]) -> str:
    """Format the line that a script reads."""
    return f"bench-{name}: " + " ".join(f"{key}={value}" for key, value in figures.items())


def render(template: str, **values: object) -> str:
    """Fill a template; nothing is escaped."""
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(FOLDER / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        "machine": _machine,
        "middle": middle,
        "spread": spread,
        "python": f"Python {platform.python_version()}",
        "cores": f"{os.cpu_count()} cores",
    }
    environment.filters["f"] = format
    return environment.get_template(f"{template}.j2").render(values)


def publish(
    folder: Path | None, name: str, line: str, plot: Callable[[Path], None] | None = None, **values: object
) -> None:
    """Print the first table of a report and its `line`; write it, and its `plot`, if there is a `folder` for it.

    The report is the template `name`, filled with `values`.
    """
    text = render(f"{name}.md", line=line, **values)
    say(first_table(text))
    if folder is not None:
        if plot is not None:
            plot(folder / f"plot-{name}.svg")
        (folder / f"report-{name}.md").write_text(text, encoding="utf-8")
        say(f"Written to {folder}")
    say(line)


def _machine(load: float, not_quiet: str, more: str = "") -> str:
    """Say what the machine is, and `not_quiet` if other work took a core of it, the `load`, before the run."""
    text = (
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before the run{more}."
    )
    return text if load < 1 else f"{text}\n{not_quiet}"
