"""A consumer's state machine against a model of ZooKeeper, Spark, Kafka and one other consumer.

Whatever order the events come in: every record is processed exactly once as long as no consumer dies. That is,
what is reported closed is committed and not read any more, and what starts does so from the committed offset.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan, Due, Offer, PlanRefusedError, Source
from tests.support.claiming import ClaimingOwnership
from tests.support.examples import examples

ME = "me"
TOPICS = ("a", "b")
PARTITIONS = range(2)
SOURCES = (Source("k1:9092", "g"), Source("k2:9092", "g"))
Key = tuple[Source, str, int]

subsets = st.frozensets(st.sampled_from(PARTITIONS))
topics = st.sampled_from(TOPICS)
sources = st.sampled_from((0, 0, 0, 1))


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ownership = ClaimingOwnership(ME)
        self.history: list[tuple[int, dict[str, TopicAssignment]]] = [(0, {})]
        self.newest = dict.fromkeys(TOPICS, 0)
        self.group: dict[Key, int] = {}
        self.processed: dict[Key, int] = {}
        self.running = self.first = False
        self.offer: Offer | None = None
        self.start: dict[str, dict[int, tuple[int, int]]] = {}
        self.start_sources: dict[str, Source] = {}
        self.batch: BatchPlan | None = None
        self.commit: tuple[Source, dict[tuple[str, int], Due]] | None = None
        self.highest: dict[str, int] = {}
        """Of each topic the highest epoch that was obeyed, or reported because ZooKeeper went back."""
        self.obeyed: dict[str, tuple[int, TopicAssignment]] = {}
        """Of each topic whose node is there, as far as is known, what was read last, and where it stood."""

    # -- ZooKeeper ----------------------------------------------------------------------------------------

    def _write(self, topic: str, mine: frozenset[int], source: int, behind: bool) -> None:
        """Write a node, above all epochs there were, or over one that is `behind` them."""
        zxid, nodes = self.history[-1]
        epoch = 1 if behind else self.newest[topic] + 1
        self.newest[topic] = max(epoch, self.newest[topic], self.highest.get(topic, 0))
        where = SOURCES[source]
        node = TopicAssignment(where.bootstrap_servers, where.group_id, dict.fromkeys(mine, ME), epoch)
        self.history.append((zxid + 1, {**nodes, topic: node}))

    @rule(topic=topics, mine=subsets, source=sources, behind=st.booleans(), seen=st.integers(0, 3))
    def write(self, topic: str, mine: frozenset[int], source: int, behind: bool, seen: int) -> None:
        self._write(topic, mine, source, behind)
        if seen:
            self.read(topic, 0)

    @rule(topic=topics)
    def move_elsewhere(self, topic: str) -> None:
        """The same owners, but the records are to come from another Kafka."""
        if node := self.history[-1][1].get(topic):
            there = int(node.bootstrap_servers == SOURCES[0].bootstrap_servers)
            self._write(topic, frozenset(node.owners), there, behind=False)
            self.read(topic, 0)

    @rule(topic=topics, seen=st.booleans())
    def delete(self, topic: str, seen: bool) -> None:
        zxid, nodes = self.history[-1]
        if topic in nodes:
            self.history.append((zxid + 1, {t: node for t, node in nodes.items() if t != topic}))
        if seen:
            self.read_list(0)

    def _changed(self, topic: str, upto: int) -> int:
        """When the topic's node got the content it has at `upto`: its mzxid."""
        while upto > 0 and self.history[upto - 1][1].get(topic) is self.history[upto][1].get(topic):
            upto -= 1
        return self.history[upto][0]

    def _listed(self, upto: int) -> int:
        while upto > 0 and self.history[upto - 1][1].keys() == self.history[upto][1].keys():
            upto -= 1
        return self.history[upto][0]

    @rule(topic=topics, lag=st.sampled_from((0, 0, 0, 1, 2)), synced=st.booleans())
    def read(self, topic: str, lag: int, synced: bool = False) -> None:
        """Only the newest state is read after a sync."""
        at = max(0, len(self.history) - 1 - (0 if synced else lag))
        node = self.history[at][1].get(topic)
        if node is None:
            return
        zxid = self._changed(topic, at)
        held = self._held(topic)
        taken = self.ownership.read(topic, node, zxid, synced)
        assert taken == self._is_newer(topic, node, zxid)
        status = self.ownership.status().get(topic)
        if taken:
            self.obeyed[topic] = zxid, node
            self.highest[topic] = node.epoch
            assert status is not None and status.epoch == node.epoch
            assert not (status.running | status.starting) - node.owners.keys(), "removed, but not closing"
        else:
            assert self._held(topic) == held, "what is refused changes nothing"
        if not taken and synced:
            assert status is not None and status.epoch is not None and status.epoch > node.epoch
            # What is reported of a topic whose node went was never obeyed.
            self.highest[topic] = max(self.highest.get(topic, 0), status.epoch - (topic not in self.obeyed))

    def _held(self, topic: str) -> object:
        status = self.ownership.status().get(topic)
        return (status.running, status.starting, status.closing) if status else (frozenset(),) * 3

    def _is_newer(self, topic: str, node: TopicAssignment, zxid: int) -> bool:
        highest = self.highest.get(topic, 0)
        if topic in self.obeyed and node.epoch == highest:
            before, obeyed = self.obeyed[topic]
            return replace(node, epoch=obeyed.epoch) == obeyed and zxid >= before
        return node.epoch > highest

    @rule(lag=st.sampled_from((0, 0, 1, 2)))
    def read_list(self, lag: int) -> None:
        at = max(0, len(self.history) - 1 - lag)
        zxid = self._listed(at)
        for topic in self.ownership.keep_only(self.history[at][1], zxid):
            self.obeyed.pop(topic, None)

    @rule(reason=st.sampled_from(("isolated", "stopping")))
    def bar(self, reason: str) -> None:
        if self.ownership.blocks:
            self.ownership.unblock(min(self.ownership.blocks))
        else:
            self.ownership.block(reason)

    # -- Spark --------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.running)
    @rule()
    def start_query(self) -> None:
        self.running = self.first = True
        self.start, self.start_sources, self.offer, self.batch = {}, {}, None, None
        self.ownership.query.start()

    @precondition(lambda self: self.running and self.start)
    @rule()
    def fail_query(self) -> None:
        self.running = False
        self.offer = self.batch = None
        self.ownership.query_ended()

    @precondition(lambda self: self.running and self.batch is None and self.offer is None)
    @rule()
    def ask_first(self) -> None:
        self.ask()

    @precondition(lambda self: self.running and self.batch is None)
    @rule()
    def ask(self) -> None:
        self.offer = self.ownership.offer()
        for topic, offered in self.offer.topics.items():
            if offered.partitions:
                assert not offered.partitions & self.ownership.status()[topic].closing
                assert not self.ownership.blocks

    @precondition(lambda self: self.running and self.batch is None and self.offer is not None)
    @rule(
        more=st.lists(st.integers(0, 3), min_size=4, max_size=4),
        leave_out=st.sampled_from((None, None, None, 0)),
    )
    def plan(self, more: list[int], leave_out: int | None) -> None:
        offer = self.offer
        assert offer is not None
        self.offer = None
        end: dict[str, dict[int, tuple[int, int]]] = {}
        moved = False
        for topic, offered in offer.topics.items():
            for partition in sorted(offered.partitions - {leave_out}):
                before = self.start.get(topic, {}).get(partition)
                if before is not None:
                    assert self.start_sources[topic] == offered.source
                begin = self.group.get((offered.source, topic, partition), 0) if before is None else before[1]
                grown = begin + more[TOPICS.index(topic) * len(PARTITIONS) + partition]
                end.setdefault(topic, {})[partition] = (begin, grown)
                moved = moved or before is None or grown > begin
        same_set = {t: set(r) for t, r in end.items()} == {t: set(r) for t, r in self.start.items()}
        if same_set and not moved and not self.first:
            return
        self.first = False
        self.ownership.planned(offer.asked, end)
        self.start = end
        self.start_sources = {topic: offer.topics[topic].source for topic in end}
        self.batch = self.ownership.query.batch()
        for topic, ranges in end.items():
            for partition, (begin, _) in ranges.items():
                key = (self.start_sources[topic], topic, partition)
                assert begin == max(self.processed.get(key, 0), self.group.get(key, 0)), "lost or read twice"

    @precondition(lambda self: self.running and self.batch is None)
    @rule()
    def whole_batch(self) -> None:
        self.ask()
        self.plan([1, 1, 1, 1], None)
        if self.batch is not None:
            self.finish_batch()

    @precondition(lambda self: self.running and self.offer is not None)
    @rule()
    def plan_from_an_older_offer(self) -> None:
        assert self.offer is not None
        try:
            self.ownership.planned(self.offer.asked - 1, {})
        except PlanRefusedError:
            return
        raise AssertionError("an old offer was taken")

    @precondition(lambda self: self.batch is not None)
    @rule()
    def finish_batch(self) -> None:
        assert self.batch is not None
        for topic, ranges in self.batch.offsets.items():
            for partition, (begin, end) in ranges.items():
                key = (self.start_sources[topic], topic, partition)
                assert begin == max(self.processed.get(key, 0), self.group.get(key, 0))
                self.processed[key] = end
        self.ownership.processed(self.batch, 0.0)
        self.batch = None

    # -- Kafka --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.commit is None)
    @rule(source=st.sampled_from(SOURCES))
    def begin_commit(self, source: Source) -> None:
        if offsets := self.ownership.due(0.0).get(source.place):
            self.commit = (source, offsets)
            held = self.ownership.held
            for topic_partition, due in offsets.items():
                assert topic_partition in held, "commits what it does not hold"
                assert due.offset >= self.group.get((source, *topic_partition), 0), "a commit goes backwards"

    @precondition(lambda self: self.commit is not None)
    @rule(outcome=st.sampled_from(("done", "lost", "refused")))
    def end_commit(self, outcome: str) -> None:
        assert self.commit is not None
        source, offsets = self.commit
        self.commit = None
        if outcome != "refused":
            for topic_partition, due in offsets.items():
                key = (source, *topic_partition)
                assert due.offset >= self.group.get(key, 0), "a commit goes backwards"
                self.group[key] = due.offset
        if outcome == "done":
            self.ownership.committed(offsets, 0.0)

    @rule(topic=topics, partition=st.sampled_from(PARTITIONS), count=st.integers(1, 4))
    def other_consumer_reads(self, topic: str, partition: int, count: int) -> None:
        """Another consumer reads a partition that is closed here, which must not be noticed."""
        if (topic, partition) in self.ownership.held:
            return
        if self.commit is not None and (topic, partition) in self.commit[1]:
            raise AssertionError("closed while a commit is under way")
        key = (SOURCES[0], topic, partition)
        self.group[key] = self.group.get(key, 0) + count

    # -- what always holds --------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.start_query()

    @invariant()
    def one_list_each(self) -> None:
        for status in self.ownership.status().values():
            assert len(status.held) == len(status.running) + len(status.starting) + len(status.closing)

    @invariant()
    def closed_is_committed_and_not_read(self) -> None:
        held = self.ownership.held
        batch = self.batch.offsets if self.batch is not None else {}
        for topic, ranges in batch.items():
            for partition in ranges:
                assert (topic, partition) in held, "read, but reported closed"
        for (source, topic, partition), offset in self.processed.items():
            if (topic, partition) not in held:
                assert self.group.get((source, topic, partition), 0) >= offset, "closed, but not committed"

    @invariant()
    def running_means_planned(self) -> None:
        planned = {(t, p) for t, ranges in self.start.items() for p in ranges} if self.running else set()
        running = {(t, p) for t, status in self.ownership.status().items() for p in status.running}
        assert running <= planned

    def teardown(self) -> None:
        """From wherever it stands, a stop ends with everything closed and committed."""
        if self.batch is not None:
            self.finish_batch()
        self.ownership.block("stopping")
        self.commit = None
        if self.running:
            offer = self.ownership.offer()
            assert not any(offered.partitions for offered in offer.topics.values())
            if self.start:
                self.ownership.planned(offer.asked, {})
                self.ownership.processed(self.ownership.query.batch(), 0.0)
        for offsets in self.ownership.due(0.0).values():
            self.ownership.committed(offsets, 0.0)
        assert self.ownership.closed


Model.TestCase.settings = settings(examples(300), stateful_step_count=60)
TestOwnership = Model.TestCase
