"""What has to hold after every step, whatever happened before.

A consumer process *is in contact* while Consul lists its id as passing and not isolated, and it is the one that is
registered, or was until another process under its id replaced it, and answers. ZooKeeper does not matter for that: a
consumer that cannot see ZooKeeper is still counted on. What a process holds at a moment when it is not in contact is
*estranged*: it may have been given to others. It stays so until the process has let go of it, or is in contact again
and the assignment names it and nobody else holds it.

- No partition is held, not estranged, by two processes.
- Nothing is held by a process that was never live, and an id does not seem gone because one process replaces another.
- The group's offset never goes backwards, whoever commits. What a process holds unestranged it commits before it lets
  go, and whoever begins after it begins where it ended. It is refused only where one that is estranged has claimed.
- Nothing is begun that was not claimed. What was refused is taken back only by who has been assigned it and
  registered since.
- At rest every pin that can be obeyed is obeyed, and nobody reads a topic it is excluded from if another one can.
- A partition that stays assigned to a process in contact goes on running.
- A partition is taken from a live owner only to go to another, in balance, or because it vanished from Kafka; and
  nobody is given a partition in the write that takes it from another.
- Assignments are written only after a reading of Consul that succeeded and was to be trusted, and epochs grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.core.model import State, Transition, by_partition
from tests.faults.model.kafka import TopicPartition

if TYPE_CHECKING:
    from tests.faults.model.coordinator import CoordinatorProcess
    from tests.faults.model.process import Process
    from tests.faults.model.world import World


class ViolationError(AssertionError):
    """Something happened that is promised not to; the message tells the history."""

    def __init__(self, what: str, world: World) -> None:
        super().__init__(f"{what}\n" + "\n".join(world.story))
        self.what = what
        self.setting = world.setting
        self.history = tuple(world.history)


class Watchman:
    def __init__(self, world: World) -> None:
        self.world = world
        self.estranged: set[tuple[str, TopicPartition]] = set()
        self.was_held: dict[str, set[TopicPartition]] = {}
        self.was_running: dict[str, dict[TopicPartition, int]] = {}
        """What each process ran, and by which write of the assignment."""
        self.were_in_contact: set[str] = set()
        """Who was in contact at the last look."""
        self.taken_up: set[str] = set()
        """Who was in contact at some time, and may hold something."""
        self.registered: dict[str, tuple[str, bool]] = {}
        """By consumer: the incarnation, and whether it passed, at the last look."""
        self.estranged_once: set[tuple[str, TopicPartition]] = set()
        """What was estranged at some time since it was taken up."""
        self.claimed: dict[TopicPartition, tuple[Process, bool]] = {}
        """Who claimed each partition last, and whether it was estranged at that moment."""
        self.refusals: dict[tuple[str, TopicPartition], set[str]] = {}
        """What each process was refused, and what it could have learnt since: still assigned, still registered."""
        self.done: dict[TopicPartition, tuple[Process, int]] = {}
        """By whom each partition was read last in contact, and how far."""
        self.furthest: dict[TopicPartition, int] = {}
        """How far each partition was read by anybody."""
        self.live_since: dict[str, int] = {}
        """Since which moment each consumer is live, of those that are."""
        self.owner_since: dict[TopicPartition, int] = {}
        """Since which write a partition's owner is the same."""

    def fail(self, what: str) -> None:
        raise ViolationError(what, self.world)

    # -- contact --------------------------------------------------------------------------------------------

    def in_contact(self, process: Process) -> bool:
        consul = self.world.consul
        if not process.alive or not consul.live(process.id):
            return False
        if consul.services[process.id].incarnation == process.incarnation:
            return True
        return process.incarnation in self.were_in_contact and process.answers()

    def look(self) -> None:
        moment = self.world.moment()
        for consumer in self.world.consul.services.keys() | self.live_since.keys():
            if not self.world.consul.live(consumer):
                self.live_since.pop(consumer, None)
            else:
                self.live_since.setdefault(consumer, moment)
        self._stays_live()
        contacts = {p.incarnation for p in self.world.processes if self.in_contact(p)}
        self.were_in_contact = contacts
        self.taken_up |= contacts
        holders: dict[TopicPartition, Process] = {}
        for process in self.world.processes:
            name = process.incarnation
            if not process.alive:
                self.was_held.pop(name, None)
                self.was_running.pop(name, None)
                self.estranged = {e for e in self.estranged if e[0] != name}
                self.estranged_once = {e for e in self.estranged_once if e[0] != name}
                continue
            held = process.held
            contact = name in contacts
            if held and name not in self.taken_up:
                self.fail(f"{name} takes up {held}, and was never live")
            for key in self.was_held.get(name, set()) - held:
                self._let_go(process, key)
                self.estranged.discard((name, key))
                self.estranged_once.discard((name, key))
            self.was_held[name] = held
            if not contact:
                self.estranged |= {(name, key) for key in held}
                self.estranged_once |= {(name, key) for key in held}
            self._keeps_running(process, contact)
            for key in held:
                if (name, key) in self.estranged:
                    continue
                if key in holders:
                    self.fail(f"{key} is held by {holders[key].incarnation} and by {name}, both in contact")
                holders[key] = process
        self._reconcile()
        self._learn()

    def _stays_live(self) -> None:
        services = self.world.consul.services
        for consumer, (incarnation, passed) in self.registered.items():
            service = services.get(consumer)
            if service is not None and service.incarnation != incarnation and passed and not service.passing:
                self.fail(f"{consumer} seems gone, because {service.incarnation} replaces {incarnation}")
        self.registered = {
            c: (service.incarnation, service.passing and not service.maintenance)
            for c, service in services.items()
        }

    def _reconcile(self) -> None:
        for name, key in list(self.estranged):
            process = self.world.process(name)
            others = [p for p in self.world.processes if p is not process and p.alive and key in p.held]
            if self.world.zookeeper.owner(*key) == process.id and self.in_contact(process) and not others:
                self.estranged.discard((name, key))

    # -- what runs goes on ------------------------------------------------------------------------------------

    def _keeps_running(self, process: Process, contact: bool) -> None:
        name = process.incarnation
        before = self.was_running.get(name, {})
        topics = process.agent._ownership.topics
        running = {key: topics[key[0]].zxid for key in process.running}
        self.was_running[name] = running
        failed, process.query_failed = process.query_failed, False
        if not contact or failed or process.ending.asked or process.agent._ownership.bars:
            return
        for key in before.keys() - running.keys():
            if (name, key) in self.estranged or self.world.zookeeper.owner(*key) != process.id:
                continue
            if key[1] in topics[key[0]].held_off:
                continue  # refused, because one that is estranged has claimed it
            if self.owner_since[key] <= before[key]:
                self.fail(f"{key} stays with {name}, but does not run any more")

    # -- offsets ----------------------------------------------------------------------------------------------

    def begins(self, process: Process, key: TopicPartition, offset: int, anew: bool) -> None:
        """A batch begins with a partition at `offset`; `anew`: from what was committed."""
        if offset > self.furthest.get(key, 0):
            self.fail(f"{process.incarnation} begins {key} at {offset}, which nobody has read up to")
        if self._estranged_now(process, key):
            return
        if anew and self.claimed.get(key, (None, False))[0] is not process:
            self.fail(f"{process.incarnation} begins {key}, which it has not claimed")
        last, end = self.done.get(key, (None, 0))
        if offset < end and last is process and (process.incarnation, key) not in self.estranged_once:
            self.fail(f"{process.incarnation} begins {key} at {offset}, but has processed up to {end}")

    def processed(self, process: Process, key: TopicPartition, end: int) -> None:
        self.furthest[key] = max(end, self.furthest.get(key, 0))
        if not self._estranged_now(process, key):
            self.done[key] = (process, end)

    def _estranged_now(self, process: Process, key: TopicPartition) -> bool:
        return (process.incarnation, key) in self.estranged or not self.in_contact(process)

    def _let_go(self, process: Process, key: TopicPartition) -> None:
        batch = process.query.batch
        if batch is not None and key[1] in batch.offsets.get(key[0], {}):
            self.fail(f"{process.incarnation} reports {key} closed while a batch that holds it is under way")
        if key not in self.done or (process.incarnation, key) in self.estranged_once:
            return
        last, end = self.done[key]
        if last is process and self.world.kafka.committed.get(key, 0) < end:
            self.fail(f"{process.incarnation} reports {key} closed, but has not committed up to {end}")

    # -- claims and commits -----------------------------------------------------------------------------------

    def claims(self, process: Process, key: TopicPartition) -> None:
        """The process has claimed a partition: who had it before is fenced off, or finds the group ahead of it."""
        known = self.refusals.pop((process.incarnation, key), None)
        if known is not None and known != {"assigned", "registered"}:
            self.fail(f"{process.incarnation} takes {key} back, which it was refused, and knows no better")
        self.claimed[key] = (process, self._estranged_now(process, key))

    def refused(self, process: Process, key: TopicPartition) -> None:
        """A commit of the process was refused for good."""
        claimer, estranged = self.claimed[key]
        excused = (process.incarnation, key) in self.estranged_once or not self.in_contact(process)
        if not excused and not (claimer is not process and estranged):
            self.fail(
                f"{process.incarnation}, in contact, is refused {key}, which {claimer.incarnation} claimed"
            )
        self.refusals[process.incarnation, key] = set()
        # Thrown out by one that should have known better: what it has processed comes again.
        self.estranged_once.add((process.incarnation, key))
        if key in self.done and self.done[key][0] is process:
            del self.done[key]

    def commits(self, process: Process, key: TopicPartition, offset: int) -> None:
        """A commit is about to be made, which Kafka has not refused."""
        before = self.world.kafka.committed.get(key, 0)
        if offset < before:
            self.fail(f"{process.incarnation} commits {offset} for {key}, which stood at {before}")

    def _learn(self) -> None:
        """What can be known anew of partitions whose commit was refused."""
        for (name, key), known in self.refusals.items():
            process = self.world.process(name)
            service = self.world.consul.services.get(process.id)
            if self.world.zookeeper.owner(*key) == process.id:
                known.add("assigned")
            if service is not None and service.incarnation == name:
                known.add("registered")

    # -- Consul -----------------------------------------------------------------------------------------------

    def heard(self, process: Process) -> None:
        """The process has just heard what Consul says."""
        isolated = self.world.consul.isolated(process.id) and not process.ending.asked
        if isolated and "isolated" not in process.agent._ownership.bars:
            self.fail(f"{process.incarnation} is isolated and hears it, but goes on")

    # -- writes -----------------------------------------------------------------------------------------------

    def written(self, transitions: Sequence[Transition], writer: CoordinatorProcess | None) -> None:
        """These are about to be written; `writer` is None if nobody waits for them any more."""
        if writer is not None and not writer.discovery.trusted:
            self.fail(f"{writer.name} writes, but its last reading of Consul failed or is in doubt")
        for transition in transitions:
            self._check_write(transition, 0 if writer is None else writer.discovery.read_at)

    def _check_write(self, transition: Transition, read_at: int) -> None:
        topic, zookeeper = transition.topic, self.world.zookeeper
        before = zookeeper.tree[topic]
        after = transition.assignment
        to_close = by_partition(transition.state.to_close)
        to_start = by_partition(transition.state.to_start)
        if after.epoch < before.epoch or (after.owners != before.owners and after.epoch == before.epoch):
            self.fail(f"topic {topic}: owners change, but the epoch does not grow")
        for partition in before.owners.keys() | after.owners.keys():
            old, new = before.owners.get(partition), after.owners.get(partition)
            if old == new:
                continue
            key = (topic, partition)
            self.owner_since[key] = zookeeper.last + 1
            if old is None:
                continue
            if new is not None:
                self.fail(f"{key} goes from {old} to {new} in one write")
            if to_close.get(partition) != old:
                self.fail(f"{key} is taken from {old}, and that it has to close it is forgotten")
            self._may_be_taken(transition, key, old, to_start.get(partition), read_at)

    def _may_be_taken(
        self, transition: Transition, key: TopicPartition, old: str, target: str | None, read_at: int
    ) -> None:
        if target is None:
            if key not in self.world.kafka.vanished:
                self.fail(f"{key} is taken from {old} and given to nobody, though it never vanished")
            return
        if self.live_since.get(old, read_at) >= read_at or key in self.world.kafka.vanished:
            return
        if target == old:
            self.fail(f"{key} is taken from {old} only to be given back")
        if transition.before.name in {State.STARTING, State.CLOSING}:
            self.fail(f"{key} is taken from {old}, which is live, in the middle of a rebalance")
