"""What a real Prometheus finds in a running stack."""

from __future__ import annotations

import pytest

from tests.conftest import Eventually
from tests.monitoring.conftest import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.stack]


def test_the_tasks_send_what_they_did_along_airflows_own_path(stack: Stack, eventually: Eventually) -> None:
    """The stack's first run has given the partitions away."""
    name = stack.cluster.name
    eventually(lambda: stack.statsd.total(f"airflow.muster.{name}.rebalances") == 2, 10)
    seen = stack.statsd.seen
    print(sorted((k, v) for k, v in seen.items() if "muster" in k))
    assert stack.statsd.total("airflow.muster.rebalances") == 2
