"""Which assignors a person may choose by hand, and loading the one that was chosen.

A choice comes from Consul's KV or from a form, and a dotted path is code that the coordinator imports. So that who
may write that key, or fill in that form, does not choose what code runs, it has to be a built-in assignor or one that
the settings name: as `assignor`, as `shadow_assignor` or among `allowed_assignors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core.assignors import BUILT_IN, Assignor, AssignorError, load_assignor
from muster.core.overrides import NO_OVERRIDES, AssignorChoice, Overrides
from muster.settings.cluster_settings import AssignorSettings, ClusterSettings
from muster.settings.shared_state import why_split


def choosable(cluster: ClusterSettings) -> list[str]:
    """Return the names and dotted paths that may be chosen by hand, sorted."""
    named = {each.name for each in (cluster.assignor, cluster.shadow_assignor) if each is not None}
    return sorted(named | set(cluster.allowed_assignors) | BUILT_IN.keys())


def load_chosen(cluster: ClusterSettings, name: str, options: Mapping[str, Any]) -> Assignor:
    """Load the assignor that a person chose.

    Raises `AssignorError` for one that may not be chosen, before anything is imported, for standbys without room, and
    as `load_assignor` does.
    """
    if "." in name and name not in choosable(cluster):
        raise AssignorError(
            f"assignor {name!r} may not be chosen by hand; there are: {', '.join(choosable(cluster))}. To allow it, "
            f"add it to 'allowed_assignors' of cluster {cluster.name!r} in the settings"
        )
    if wrong := why_split(cluster.state, name, options):
        raise AssignorError(wrong)
    if why := cluster.without_room(options):
        raise AssignorError(f"assignor {name!r} may not be chosen: {why}")
    return load_assignor(name, options)


def in_force(cluster: ClusterSettings, choice: AssignorChoice | None) -> AssignorSettings:
    """Return the assignor that counts: the one that a person chose, else that of the settings. Not checked."""
    return (
        cluster.assignor
        if choice is None
        else AssignorSettings(name=choice.name, options=dict(choice.options))
    )


def load_in_force(cluster: ClusterSettings, overrides: Overrides = NO_OVERRIDES) -> Assignor:
    """Load the assignor that counts. Raises `AssignorError` as `load_chosen` does, and if it is unknown."""
    if overrides.assignor_error:
        raise AssignorError(overrides.assignor_error)
    choice = overrides.assignor
    if choice is None:
        return load_assignor(cluster.assignor.name, cluster.assignor.options)
    try:
        return load_chosen(cluster, choice.name, choice.options)
    except AssignorError as error:
        raise AssignorError(f"{error} (chosen instead of that in the settings: {choice})") from error
