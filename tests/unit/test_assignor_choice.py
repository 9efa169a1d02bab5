"""Who may write Consul's key may choose among assignors, and not what code is imported."""

from __future__ import annotations

import sys

import pytest

from muster.core.assignors import AssignorError
from muster.core.overrides import AssignorChoice, Overrides
from muster.settings.assignor_choice import choosable, load_chosen, load_in_force
from muster.settings.cluster_settings import ClusterSettings

STRANGE = "this.Assignor"  # importing `this` shows: it prints, and stands in sys.modules
OWN = "muster.core.assignors.sticky.Sticky"


def cluster(**more: object) -> ClusterSettings:
    return ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "c",
            "group_id": "g",
            "topics": ["t"],
            "consumers": {"handler": "a.b"},
            **more,
        }
    )


def test_a_dotted_path_that_the_file_does_not_name_is_not_even_imported() -> None:
    sys.modules.pop("this", None)
    with pytest.raises(AssignorError, match=r"may not be chosen by hand.*'allowed_assignors' of cluster 'c'"):
        load_chosen(cluster(), STRANGE, {})
    choice = AssignorChoice(by="ann", why="r", at=1.0, name=STRANGE)
    with pytest.raises(
        AssignorError, match=r"may not be chosen by hand.*chosen instead of that in the settings"
    ):
        load_in_force(cluster(), Overrides(assignor=choice))
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "named", [{"allowed_assignors": [OWN]}, {"assignor": OWN}, {"shadow_assignor": {"name": OWN}}]
)
def test_assignor_that_the_file_names_may_be_chosen(named: dict[str, object]) -> None:
    assert OWN in choosable(cluster(**named))
    assert load_chosen(cluster(**named), OWN, {"rack_moves": 3}).name == "sticky"


def test_the_file_names_dotted_paths() -> None:
    with pytest.raises(ValueError, match="'os' is not a dotted path"):
        cluster(allowed_assignors=["os"])
