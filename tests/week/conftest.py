"""One stack for the whole week, brought up once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.week.clock import LONG
from tests.week.stack import WeekStack
from tests.week.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    stack = WeekStack(tmp_path_factory.mktemp("week").resolve(), LONG)
    with stack.up(), World(stack) as world:
        yield world
