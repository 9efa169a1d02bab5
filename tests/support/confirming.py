"""Confirms an agent as an owner, as ZooKeeper and Consul do, in tests that assign its partitions themselves."""

from __future__ import annotations

import time

from muster.consumer.agent import Agent


def confirm(agent: Agent) -> None:
    number = agent.blocks.reading_wanted()
    if number is not None:
        agent.blocks.has_read(number)
    agent.blocks.is_registered(time.monotonic())
