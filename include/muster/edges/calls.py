"""Calls that wait for a thread, each with a future for its end."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

Calls = queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]]
"""The futures, with function and arguments."""


def make_calls(work: Calls) -> None:
    """Make calls until there is none left."""
    while True:
        try:
            future, function, arguments = work.get_nowait()
        except queue.Empty:
            return
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
