"""Wait for the consumers that had this id before, so that no two read the same partitions.

A process that registers under an id that is taken replaces the older process, which sees it, closes its partitions in
order and exits. Until then the newer one takes nothing up, or records would be read twice, and reports nothing, or
what the older one still holds would be taken for closed.

An older process is gone when nothing listens at its address any more, when another incarnation answers there, or when
it has been silent for `SILENT` seconds; or it is leaving and has closed everything. Each is asked until the newer one
is live as well, because one that was cut off may be back by then. That it holds nothing is not enough, because it may
not know yet that it was replaced, and be about to take something up. One that answers is otherwise waited for as long
as it takes: it ends by itself once it sees that it was replaced.

The newer registration names those it waits for (metadata `replaces`), so that its successor, should it die
while it waits, waits for them too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import httpx

from muster.core.model import ConsumerStatus
from muster.core.wire import WireError, parse_status
from muster.edges.consul import Registration
from muster.edges.status import (
    LARGEST_ANSWER,
    StatusFailure,
    StatusResult,
    guard,
    page_url,
    was_refused,
)
from muster.settings.connections import OPEN_PAGES, StatusPageSettings

log = logging.getLogger(__name__)

SILENT = 5.0
"""Seconds without an answer after which an older process counts as gone."""
POLL = 0.2
"""Seconds between two questions."""
KEY = "replaces"
"""The metadata key that names the incarnations that are waited for."""
LONGEST_VALUE = 512
"""Characters; Consul takes no longer metadata value."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An incarnation that had this id, and where its status page was."""

    incarnation: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.incarnation}@{self.address}:{self.port}"


Ask = Callable[[Predecessor], StatusResult]


def predecessors(registration: Registration, own: str) -> tuple[Predecessor, ...]:
    """Return the processes that may still hold partitions when incarnation `own` replaces `registration`.

    They are the registered one, and those that it was itself waiting for.
    """
    found = [_parse(text) for text in registration.meta.get(KEY, "").split(",")]
    found.append(Predecessor(registration.incarnation or "", registration.address, registration.port))
    return tuple(older for older in found if older is not None and older.incarnation != own)


def to_meta(waited_for: Iterable[Predecessor]) -> dict[str, str]:
    """Return the metadata that names them, the newest last; nothing if there are none."""
    names = [str(older) for older in waited_for]
    while len(",".join(names)) > LONGEST_VALUE:
        names.pop(0)
    return {KEY: ",".join(names)} if names else {}


def ask(older: Predecessor, pages: StatusPageSettings = OPEN_PAGES) -> StatusResult:
    """Ask for the status of an older process; `pages` says how status pages are guarded."""
    try:
        url = page_url(older.address, older.port, pages.scheme)
        with (
            httpx.Client(timeout=1.0, trust_env=False, **guard(pages)) as client,
            client.stream("GET", url) as response,
        ):
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if len(body) > LARGEST_ANSWER:
                    too_large = f"its status page {url} answered with more than {LARGEST_ANSWER} bytes"
                    return StatusFailure(older.incarnation, too_large)
            return parse_status(bytes(body), url)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError, WireError) as error:
        return StatusFailure(older.incarnation, str(error) or type(error).__name__, was_refused(error))


@dataclass
class Waiting:
    """The processes that had this id. `began` is a moment of the clock of `look`."""

    older: Sequence[Predecessor]
    began: float
    _heard: dict[str, float] = field(default_factory=dict, init=False)
    _gone_by: dict[str, str] = field(default_factory=dict, init=False)

    def look(self, ask: Ask, now: float) -> list[Predecessor]:
        """Ask each once; returns those that have to be waited for."""
        return [older for older in self.older if not self._gone(older, ask(older), now)]

    def _gone(self, older: Predecessor, answer: StatusResult, now: float) -> bool:
        why = ""
        match answer:
            case ConsumerStatus():
                self._heard[older.incarnation] = now
                if older.incarnation not in {"", answer.incarnation}:
                    why = "it is gone"
                elif answer.leaving and not any(topic.held for topic in answer.topics.values()):
                    why = "it has closed everything"
            case StatusFailure(refused=True):
                why = "it is gone"
            case StatusFailure(reason=problem):
                silent = now - self._heard.get(older.incarnation, self.began)
                why = f"it does not answer ({problem})" if silent > SILENT else ""
        if why != self._gone_by.get(older.incarnation, ""):
            log.info("incarnation %s: %s", older.incarnation, why or "it is there")
            self._gone_by[older.incarnation] = why
        return bool(why)


def _parse(text: str) -> Predecessor | None:
    incarnation, at, where = text.rpartition("@")
    address, _, port = where.rpartition(":")
    if not at or not incarnation or not port.isascii() or not port.isdigit():
        return None
    return Predecessor(incarnation, address, int(port))
