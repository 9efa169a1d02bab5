"""What persons decided about a cluster, as far as it keeps anything from going its usual way or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from muster.cluster.state import ClusterState
from muster.core.assignors import AssignorError
from muster.doctor.findings import Check, Part, named
from muster.settings.assignor_choice import load_chosen

NAMES = ("coordination", "assignor", "keys")


def check_decisions(part: Part, state: ClusterState) -> Iterator[Check]:
    """Whether coordination is paused, whether a chosen assignor can be loaded here, and whether all that
    was decided can be read."""
    if state.consul is None:  # the checks of Consul say what is wrong
        yield from (part.skipped(name, "Consul cannot say what was decided") for name in NAMES)
        return
    found, cluster = state.decisions, state.settings
    if found.paused is not None:
        yield part.warning(
            "coordination",
            f"{found.paused}; nothing is planned or written",
            f"when the reason is gone: muster resume --cluster {cluster.name} --reason ...",
        )
    else:
        asked = f"goes on; {found.rebalance}, not carried out yet" if found.rebalance else "goes on"
        yield part.ok("coordination", asked)
    clear = f"take the choice back: muster assignor --clear --cluster {cluster.name} --reason ..."
    if found.assignor_error:
        yield part.failed("assignor", found.assignor_error, clear)
    elif found.assignor is None:
        yield part.ok("assignor", f"{cluster.assignor.name}, as in clusters.yaml")
    else:
        try:
            load_chosen(cluster, found.assignor.name, found.assignor.options)
        except AssignorError as error:
            yield part.failed("assignor", f"{found.assignor}: {error}", clear)
        else:
            yield part.ok(
                "assignor", f"{found.assignor}, instead of {cluster.assignor.name} in clusters.yaml"
            )
    if found.errors:
        yield part.warning("keys", named(found.errors), "correct or delete these keys", found.errors)
    else:
        count = len(found.pins) + len(found.exclusions) + len(found.subscriptions)
        yield part.ok("keys", f"{count} pins, exclusions and decisions on topics can be read")
