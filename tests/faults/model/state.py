"""State by key in the model: changelogs in its Kafka, and local stores on its hosts.

The shards, the keeper that takes them up, and the position in changelog and group are the project's own. A store is
a dictionary that outlives its process, so faults can wipe, tear or age it.

The handler is a *fold* over batches: it writes down each range that it has handled, without what a seek left out and
what comes too late. The event time of a record is its offset. So the state says by itself which batches are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.consumer.state import store
from muster.consumer.state.position import KEY, Position, TakenUp
from muster.consumer.state.store import Change, Mark
from muster.core.model import TopicPartition
from muster.core.ownership import BatchPlan, ToRestore
from muster.core.state_topics import StateTopics
from muster.edges.kafka import KafkaError
from muster.edges.state_changelog import Landed, Read, changelog_topic
from muster.settings.connections import KafkaSettings
from tests.faults.model.threads import TIME, copy_of, process_at_work, wait_until

if TYPE_CHECKING:
    from tests.faults.model.process import Process

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})
VALUE = b"vv"
"""What the keys of a shard begin with, behind the number of its rebuild."""
KEYS = 3
"""So many keys has a shard; each batch changes one of them."""
AT_ONCE = 2
"""Records of a partition with state in one batch, where they are not halved."""
KEPT = 12
"""So many moments of a store can be brought back."""


@dataclass
class Log:
    """One partition of a changelog: what has landed, and what open transactions have written, by producer."""

    records: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    open: dict[str, list[tuple[int, bytes, bytes | None]]] = field(default_factory=dict)
    end: int = 0

    def write(self, producer: str, key: bytes, value: bytes | None) -> int:
        """Add a record to the producer's transaction; return its offset."""
        self.open.setdefault(producer, []).append((self.end, key, value))
        self.end += 1
        return self.end - 1

    def close(self, producer: str, lands: bool) -> None:
        """End a transaction, if there is one, with a marker."""
        if (written := self.open.pop(producer, None)) is not None:
            self.records += written if lands else []
            self.end += 1

    def lose(self) -> None:
        """Lose the last transaction that has landed, and all after it."""
        at = max((offset for offset, key, _ in self.records[:-1] if key == KEY), default=-2) + 2
        self.records = [each for each in self.records if each[0] < at]
        self.open.clear()
        self.end = min(self.end, at)

    def image(self, upto: int | None = None) -> dict[bytes, bytes]:
        """What all records before an offset come to."""
        latest = {key: value for offset, key, value in self.records if upto is None or offset < upto}
        return {key: value for key, value in latest.items() if value is not None}

    @property
    def position(self) -> Position | None:
        text = self.image().get(KEY)
        return None if text is None else Position.of(text)


@dataclass
class Message:
    """What librdkafka says of a record that was delivered."""

    at: int

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 2, round(1000 * process_at_work().world.now)


class ChangelogTopic:
    """`muster.edges.state_changelog.ChangelogTopic`, which always has as many partitions as are asked for."""

    def __init__(self, _settings: object, cluster: str, topics: Sequence[str]) -> None:
        self.name = changelog_topic(cluster, topics[0])
        self.partitions = 0

    def ensure(self) -> str:
        if process_at_work().cut_off_from_kafka:
            raise KafkaError("Kafka does not answer")
        return "changelog"


class ChangelogReader:
    """`muster.edges.state_changelog.ChangelogReader`, which gives a changelog in two parts."""

    def __init__(self, _settings: object, _group: str, topic: str, partition: int) -> None:
        self.process = process_at_work()
        if self.process.cut_off_from_kafka:
            raise KafkaError("Kafka does not answer")
        self.topic, self.where = topic, f"{topic}, partition {partition}"
        self.log = self.process.world.kafka.changelog(topic, partition)
        self.begin, self.end = 0, self.log.end

    def read(self, begin: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[Read]:
        for upto in sorted({(begin + self.end) // 2, self.end} - {begin}):
            wait_until(lambda: not self.process.faults.slow_restores or not wanted())
            if not wanted():
                return
            found = [each for each in self.log.records if begin <= each[0] < upto]
            yield Read([each[1:] for each in found], upto, max((each[0] for each in found), default=-1))
            begin = upto

    def close(self) -> None: ...


@dataclass
class Disk:
    """What stands in the folder of a store."""

    data: dict[bytes, bytes] = field(default_factory=dict)
    mark: Mark | None = None
    past: list[tuple[dict[bytes, bytes], Mark | None]] = field(default_factory=list)
    """What stood there before."""

    def put(self, data: dict[bytes, bytes], mark: Mark) -> None:
        self.past = [*self.past[1 - KEPT :], (self.data, self.mark)]
        self.data, self.mark = data, mark


class Store:
    """`muster.consumer.state.store.Store`, without a disk."""

    def __init__(self, folder: Path, identity: str, now: float, _boot: str = "") -> None:
        world = process_at_work().world
        self.folder = folder
        self.disk = world.disks.setdefault(folder, Disk())
        self._new = Mark(identity, world.boots.get(folder.parts[1], "first"), current=now)
        found = self.disk.mark
        if found is None or store._same(found) != store._same(self._new):
            self.clear(now)

    @property
    def mark(self) -> Mark:
        assert self.disk.mark is not None
        return self.disk.mark

    def clear(self, now: float) -> None:
        self.disk.put({}, replace(self._new, current=now))

    def apply(self, changes: Iterable[Change], before: Mark, after: Mark) -> bool:
        if store._place(self.mark) != store._place(before):
            return False
        data = {**self.disk.data, **dict(changes)}
        self.disk.put({key: value for key, value in data.items() if value is not None}, after)
        return True

    def count(self) -> tuple[int, int]:
        return len(self.disk.data), 0

    def reader(self) -> Reader:
        return Reader(self.disk.data)

    def close(self) -> None: ...


@dataclass(frozen=True)
class Reader:
    """`muster.consumer.state.store.Reader`."""

    data: Mapping[bytes, bytes]

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in sorted(self.data.items()) if key.startswith(prefix))

    def highest(self) -> bytes:
        return max((key[:4] for key in self.data if key[:1] != b"\x00"), default=b"")

    def below(self, first: bytes, most: int) -> list[bytes]:
        return sorted(key for key in self.data if b"\x01" <= key < first)[:most]

    def close(self) -> None: ...


stores = copy_of("muster.consumer.state.stores", Store=Store)


class Stores(stores.Stores):  # type: ignore[misc]  # a copy of the module
    """The real ones, in a folder that no process has that lives."""

    def place(self) -> Path:
        process = process_at_work()
        if self._own is None:
            others = {p.folder for p in process.world.processes if p.alive and p is not process}
            names = (Path("/", process.host, f"{self.consumer}~{number}") for number in range(9))
            self._own = process.folder = next(name for name in names if name not in others)
        return self._own


shards = copy_of(
    "muster.consumer.state.shards",
    Stores=Stores,
    ChangelogReader=ChangelogReader,
    ChangelogTopic=ChangelogTopic,
)


class Pool:
    """The threads that restore shards."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        process_at_work().threads.start(partial(work, *arguments))


keeper = copy_of("muster.consumer.state.keeper", time=TIME, ThreadPoolExecutor=Pool)


class States(shards.States):  # type: ignore[misc]  # a copy of the module
    """The real ones, which tell the watchman of what they take up and of what has landed."""

    def __init__(self, process: Process) -> None:
        world = process.world
        super().__init__("c", process.id, KAFKA, StateTopics(world.state), None, world.clock, world.clock)
        self.process = process

    def take_up(self, tp: TopicPartition, asked: ToRestore, wanted: Callable[[], bool]) -> TakenUp | None:
        found: TakenUp | None = super().take_up(tp, asked, wanted)
        if found is not None:
            self.process.world.watchman.state.takes_up(self.process, tp, asked, found)
        return found

    def landed(self, tp: TopicPartition, landed: Landed) -> None:
        super().landed(tp, landed)
        self.process.world.watchman.state.trusts(self.process, tp)


Values = Mapping[bytes, bytes]


def values_of(image: Values, position: Position) -> dict[bytes, bytes]:
    """The keys of a shard with their values, without those of lower rebuilds."""
    prefix = position.prefix + VALUE
    return {key: value for key, value in image.items() if key.startswith(prefix)}


def fold(values: Values, begin: int, end: int, position: Position) -> dict[bytes, bytes]:
    """What the handler changes with a batch of a shard that is at `position`."""
    (place,) = position.places.values()
    first, key = max(begin, place.done, place.top or 0), position.prefix + VALUE + b"%d" % (end % KEYS)
    return {key: values.get(key, b"") + b" %d-%d" % (first, end)} if first < end else {}


def compute(states: States, batch: BatchPlan) -> dict[TopicPartition, Any]:
    """What a batch makes of its shards. Raises `StateStoreError`."""
    computed = {}
    for tp, (begin, end) in batch.filled.items():
        if not states.topics.has(tp[0]):
            continue
        view = states.view(tp, {tp[0]: begin})
        place = view.position.places[tp[0]]
        changes = fold(dict(states.reader(tp).scan(view.position.prefix)), begin, end, view.position)
        top = end - 1 if place.top is None else max(place.top, end - 1)
        after = replace(view.position, time=view.now, places={tp[0]: replace(place, top=top)})
        computed[tp] = shards.Computed({tp[0]: (begin, end)}, after, [*changes], [*changes.values()])
    return computed


class Harm:
    """The events of `Model` that concern local stores and changelogs."""

    kafka: Any
    processes: list[Process]
    state: tuple[str, ...]

    def __init__(self) -> None:
        self.disks: dict[Path, Disk] = {}
        """The stores by their folders, which begin with the host."""
        self.boots: dict[str, str] = {}
        """The last start of each host that was started again."""

    def wipe_stores(self, host: str) -> None:
        """The disk of a host is emptied."""
        self.disks = {folder: disk for folder, disk in self.disks.items() if folder.parts[1] != host}

    def age_stores(self, host: str, back: str) -> None:
        """The disk of a host is as it was so many writes ago; what is open stays as it is."""
        for folder, disk in self.disks.items():
            if folder.parts[1] == host and disk.past:
                data, mark = disk.past[max(-len(disk.past), -int(back))]
                self.disks[folder] = Disk(data, mark)

    def reboot(self, host: str) -> None:
        """A host dies and starts again: of what was written last to a store some stands on the disk."""
        for process in self.processes:
            if process.alive and process.host == host:
                process.crash()
        self.boots[host] = f"{self.boots.get(host, '')}again"
        for folder, disk in self.disks.items():
            if folder.parts[1] == host and disk.past:
                torn = {key: value for key, value in disk.data.items() if key == KEY}
                self.disks[folder] = Disk({**disk.past[-1][0], **torn}, disk.mark)

    def lose_changelog(self, topic: str, partition: str) -> None:
        """The changelog of a partition loses its last transaction: a broker became its leader that had not all."""
        if topic in self.state:
            self.kafka.changelog(changelog_topic("c", topic), int(partition)).lose()
