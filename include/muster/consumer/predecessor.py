"""Wait for the consumer that had this id before, so that the two do not read the same partitions.

Whoever registers under an id that is taken replaces the older process, which sees it, closes its partitions in
order and exits. Until then the newer one takes nothing up, or records would be read twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import httpx
from pydantic import SecretStr

from muster.core.wire import WireError, parse_status
from muster.edges.consul import Registration
from muster.edges.status import bearer

log = logging.getLogger(__name__)

SILENT = 5.0
"""Seconds without an answer after which the older process counts as gone."""
POLL = 0.2


def wait_for(
    older: Registration, timeout: float, given_up: Callable[[], bool], token: SecretStr | None = None
) -> str:
    """Return, in words, why there is no more need to wait for `older`: at the latest after `timeout` seconds.

    `token` is the bearer token of its status page, if it has one.
    """
    host = f"[{older.address}]" if ":" in older.address else older.address
    url = f"http://{host}:{older.port}/status"
    began = heard = time.monotonic()
    with httpx.Client(timeout=1.0, trust_env=False, headers=bearer(token)) as client:
        while time.monotonic() - began < timeout and not given_up():
            try:
                status = parse_status(client.get(url).content, url)
            except httpx.ConnectError:
                return "it is gone"
            except (httpx.HTTPError, WireError) as error:
                if time.monotonic() - heard > SILENT:
                    return f"it does not answer ({error})"
            else:
                heard = time.monotonic()
                if status.incarnation != older.incarnation:
                    return "it is gone"
                if not any(topic.held for topic in status.topics.values()):
                    return "it has closed everything"
            time.sleep(POLL)
    return f"it has not closed everything within {timeout:g} s"
