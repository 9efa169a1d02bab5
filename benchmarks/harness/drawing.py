"""What the benchmarks' plots have in common: they read on white and on black, and change only with their figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#808890"
"""Of text, lines and frames."""


@contextmanager
def drawing(path: Path, name: str, size: tuple[float, float]) -> Iterator[Figure]:
    """Yield a figure of `size` (inches), written to `path` at the end of the block. Plots have different `name`s."""
    # Text stays text, and nothing in the file depends on when or where it was written.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "text.color": INK}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(path, transparent=True, metadata={"Date": None})


def ink(panel: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Give ticks, frame and the `grid` their colour."""
    panel.tick_params(colors=INK, which="both")
    panel.grid(visible=True, axis=grid, color=INK, alpha=0.3)
    panel.set_facecolor("none")
    for spine in panel.spines.values():
        spine.set_color(INK)


def spans(found: Sequence[Collection[float]]) -> tuple[Any, Any]:
    """Return medians, and how far the least and the most are from them, as error bars are given."""
    middle = np.array([median(values) for values in found])
    return middle, np.abs(np.array([[m(values) for values in found] for m in (min, max)]) - middle)
