"""What keeps a consumer from taking partitions up, and ends by a reading of ZooKeeper or an answer of discovery.

Some things may be done only once ZooKeeper was read again, from a server that does not lag: taking partitions up
after this consumer could not be relied on (`Blocks.unblock_once_read`), and taking up again what was refused
(`Blocks.refused`). Readings are numbered for that. A caller that needs one gets the number of the next
(`Blocks.reading_wanted`); a complete reading that began with that number, or a later one, is what was waited for
(`Blocks.has_read`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from muster.consumer.problems import of_partition
from muster.consumer.shared import Shared
from muster.core.model import TopicPartition
from muster.core.ownership import Ownership
from muster.core.refusals import Refusals

log = logging.getLogger(__name__)

STOPPING = "stopping"
"""The reason of a block that is never taken back: the process ends."""
TAKING_OVER = "taking over"
"""The reason of a block while another process may still hold what is assigned to this id. No topic is reported
meanwhile, so that 'closed' is not read from it."""


class Blocks:
    """The blocks, refusals and doubts of one consumer, and the readings that they wait for. Thread-safe."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.wake_reader = threading.Event()
        """Is set whenever `reading_wanted` gets something."""
        self.refusals = Refusals()
        self._doubts = Refusals(first_pause=0.0)
        self._went_back: dict[str, tuple[int, int | None]] = {}
        """For each topic the transaction and epoch of what was older than what is known also after a sync."""
        self._to_unblock: dict[str, int] = {}
        self._to_check: int | None = None
        self._wanted = 0

    # -- the whole consumer -------------------------------------------------------------------------------

    def block(self, reason: str) -> None:
        """Close everything, because of `reason`, and take nothing up until it is taken back."""
        with self._shared.change() as own:
            self._to_unblock.pop(reason, None)
            if reason not in own.blocks:
                log.info("%s: closing all partitions", reason)
                own.block(reason)

    def unblock(self, reason: str) -> None:
        """Take back `reason`; without another one, take up what is assigned."""
        with self._shared.change() as own:
            self._to_unblock.pop(reason, None)
            if reason in own.blocks:
                log.info("no longer %s", reason)
                own.unblock(reason)

    def unblock_once_read(self, reason: str) -> None:
        """Take back `reason` after everything has been read from ZooKeeper again, from a server that does not lag.

        What was read before does not count: while this consumer could not be relied on, its partitions may have been
        given to others.
        """
        with self._shared.locked() as own:
            if reason in own.blocks and reason not in self._to_unblock:
                self._to_unblock[reason] = self._want_reading()

    # -- one partition ------------------------------------------------------------------------------------

    def refused(self, tp: TopicPartition, claim_epoch: int, why: str) -> None:
        """Close a partition as it stands, because its commit was refused for good. `why` is for people."""
        with self._shared.change() as own:
            if own.refuse(tp, claim_epoch):
                self._shared.counters.refused_commits += 1
                self.refusals.note(tp, why, self._shared.clock(), self._want_reading())
                self._shared.problems.note(of_partition("fenced", tp), why)

    def owns_still(self, tp: TopicPartition, claim_epoch: int, since: float) -> bool | None:
        """Return whether this consumer still owns a partition that it holds under this claim epoch, by ZooKeeper and
        discovery, which have to be asked after `since` (of the agent's clock).

        None: not known yet. Both are being asked; call again.
        """
        with self._shared.locked() as own:
            if not own.keeps(tp, claim_epoch):
                return False
            doubt = self._doubts.all.get(tp)
            if doubt is None or doubt.at < since:
                self._doubts.note(tp, "", self._shared.clock(), self._want_reading())
                return None
            return True if doubt.over else None

    # -- from ZooKeeper and discovery ---------------------------------------------------------------------

    def obeyed(self, topic: str) -> None:
        """Take note that the assignment of a topic, or its absence, is obeyed. Under the lock."""
        self._went_back.pop(topic, None)
        self._shared.problems.note(f"restored {topic}", None)

    def older(self, topic: str, zxid: int, epoch: int | None, synced: bool) -> None:
        """Take note of an assignment, or of its absence (`epoch` is None), that is older than the one known.

        A server that lags behind is the likely reason: everything is read again after a sync, once. If this was
        `synced`, ZooKeeper went back, which is noted for people."""
        with self._shared.locked() as own:
            if synced:
                self._went_back[topic] = (zxid, epoch)
                why = _went_back(zxid, epoch, own.topics[topic].epoch)
                self._shared.problems.note(f"restored {topic}", why)
            elif self._to_check is None and self._went_back.get(topic) != (zxid, epoch):
                log.warning("topic %r: ignored what is older than the assignment known; reading again", topic)
                self._to_check = self._want_reading()

    def reading_wanted(self) -> int | None:
        """Return the number of the newest reading that something waits for, None if nothing waits."""
        with self._shared.locked():
            read_for = self.refusals.to_be_read or self._doubts.to_be_read
            return self._wanted if self._to_unblock or read_for or self._to_check is not None else None

    def has_read(self, number: int, unread: Collection[str] = ()) -> None:
        """Take note that a complete reading has ended, after a sync, that began when `reading_wanted` was `number`.

        Of the topics `unread` it does not know the present assignment, nor of those that went back in ZooKeeper. What
        was read of them before counts no longer, where nothing may be taken up by it.
        """
        with self._shared.change() as own:
            unread = {*unread, *self._went_back}
            if self._to_check is not None and self._to_check <= number:
                self._to_check = None
            due = [reason for reason, wanted in self._to_unblock.items() if wanted <= number]
            if due:
                own.forget_assigned(unread)
            for reason in due:
                self.unblock(reason)
            for each in (self.refusals, self._doubts):
                each.was_read(number, unread)
            self._allow_ready(own)

    def is_registered(self, asked: float) -> None:
        """Take note that discovery has this very process registered, by a question that began at `asked`, of the
        agent's clock."""
        with self._shared.change() as own:
            for each in (self.refusals, self._doubts):
                each.registered(asked)
            self._allow_ready(own)

    @property
    def asks_discovery(self) -> bool:
        """Whether partitions that were refused, or are in doubt, wait for nothing but `is_registered`."""
        with self._shared.locked():
            return any(
                each.wait_for_discovery(self._shared.clock()) for each in (self.refusals, self._doubts)
            )

    def _allow_ready(self, own: Ownership) -> None:
        self._doubts.take_ready(self._shared.clock())
        for tp in self.refusals.take_ready(self._shared.clock()):
            own.allow(tp)
            self._shared.problems.note(of_partition("fenced", tp), None)

    def _want_reading(self) -> int:
        self._wanted += 1
        self.wake_reader.set()
        return self._wanted


def _went_back(zxid: int, epoch: int | None, known: int | None) -> str:
    """Say that ZooKeeper went back to an earlier assignment of a topic, or to none (`epoch` is None)."""
    if epoch is None:
        return (
            "its assignment node is not in ZooKeeper any more, which went back to an earlier transaction: it was "
            "restored from a backup. This consumer keeps what it has until the coordinator has planned the topic "
            "again; if it does not, look at the coordinator's last run"
        )
    return (
        f"its assignment in ZooKeeper went back to epoch {epoch} (transaction {zxid}), from epoch {known}, also "
        "after a sync: ZooKeeper was restored from a backup. This consumer keeps what it has until the "
        f"coordinator, which sees epoch {known} in its status, has planned again; if it does not, look at the "
        "coordinator's last run"
    )
