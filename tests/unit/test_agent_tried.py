"""When a consumer can be counted on to read: its query has come through a batch, or has shown that it fails."""

from __future__ import annotations

import pytest

from muster.consumer.agent import Agent


@pytest.mark.parametrize("fails", [False, True])
def test_a_query_is_tried_by_its_first_batch_or_its_failure(fails: bool) -> None:
    agent = Agent("a")
    assert not agent.wait_tried(0.0)
    agent.query_started()
    assert not agent.wait_tried(0.0), "it has only been told to start"
    if fails:
        agent.query_ended(failed=True)
    else:
        agent.batch_done(agent.batch_started(), None)
    assert agent.wait_tried(0.0)
