"""Changing a cluster's assignor by hand, without touching clusters.yaml, and taking the change back.

The choice stands in Consul and overrides clusters.yaml until it is cleared, also when the file changes meanwhile. The
next coordinator run plans with it; `muster plan --assignor` shows beforehand what that would move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.core.assignors import AssignorError
from muster.core.coordination import shown_options
from muster.edges.consul import Discovery
from muster.levers.outcome import LeverError, Outcome, Word, pulled
from muster.settings.assignor_choice import load_chosen
from muster.settings.clusters import ClusterSettings


def set_assignor(
    discovery: Discovery, cluster: ClusterSettings, name: str, options: Mapping[str, Any], word: Word
) -> Outcome:
    """Plan with the assignor `name`, made with `options`, from now on; an earlier choice is replaced.

    Raises `LeverError` if there is no such assignor, it may not be chosen by hand or it refuses the options. One of
    your own has to be importable here and where the coordinator runs; where it is not, the coordinator says so and
    leaves everything as it is.
    """
    try:
        load_chosen(cluster, name, options)
        json.dumps(dict(options), allow_nan=False)
    except (AssignorError, TypeError, ValueError) as error:
        raise LeverError(f"{error}; the assignor of cluster {cluster.name!r} stays as it is") from error
    before = discovery.decisions().assignor
    discovery.choose_assignor(name, options, by=word.who, why=word.why, at=word.at)
    own = f"{cluster.assignor.name}{shown_options(cluster.assignor.options)}"
    lines = [
        f"cluster {cluster.name} is planned with {name}{shown_options(options)}: {word.why} (by {word.who})",
        f"it was {before} before"
        if before
        else f"clusters.yaml says {own}, which is overridden until it is cleared",
    ]
    return pulled("assignor", cluster.name, word, lines, assignor=name, options=dict(options))


def clear_assignor(discovery: Discovery, cluster: ClusterSettings, word: Word) -> Outcome:
    """Plan with the assignor of clusters.yaml again. Raises `LeverError` if no other one was chosen."""
    before = discovery.decisions().assignor
    own = f"{cluster.assignor.name}{shown_options(cluster.assignor.options)}"
    if not discovery.clear_assignor():
        raise LeverError(
            f"cluster {cluster.name!r} is planned with {own} of clusters.yaml already; nothing to clear"
        )
    lines = [
        f"cluster {cluster.name} is planned with {own} of clusters.yaml again: {word.why} (by {word.who})",
        *([f"it was {before} before"] if before else []),
    ]
    return pulled(
        "clear-assignor",
        cluster.name,
        word,
        lines,
        assignor=cluster.assignor.name,
        options=cluster.assignor.options,
    )
