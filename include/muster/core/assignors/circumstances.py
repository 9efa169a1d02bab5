"""The former place of `PlanningContext` (`muster.core.assignors`); it goes with the next version."""

from muster.core.assignors.api import PlanningContext as Circumstances
from muster.core.assignors.api import Standbys

__all__ = ["Circumstances", "Standbys"]
