"""The former place of `PlanningContext` (`muster.core.assignors`); it goes with the next version."""

from muster.core.assignors.api import EMPTY_CONTEXT as NOTHING_FURTHER
from muster.core.assignors.api import PlanningContext as Circumstances
from muster.core.assignors.api import Standbys

__all__ = ["NOTHING_FURTHER", "Circumstances", "Standbys"]
