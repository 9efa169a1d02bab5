"""Co-partitioned with a group and one standby, as an assignor without options."""

from __future__ import annotations

from muster.core.assignors.co_partitioned import CoPartitioned


class OneStandby(CoPartitioned):
    name = "one-standby"

    def __init__(self) -> None:
        super().__init__(groups=[["t", "u"]], standbys=1)


ONE_STANDBY = "tests.support.standing_by.OneStandby"
"""The dotted path of `OneStandby`, for `clusters.yaml`."""
