"""As much of kazoo's client as `TopicStore` and `AssignmentWatch` use, over a dict; the edges above are real."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from muster.edges.zookeeper import TopicStore
from muster.edges.zookeeper_multi_read import DATA, Read
from muster.settings.connections import ZooKeeperSettings

SETTINGS = ZooKeeperSettings(hosts="z:2181")


@dataclass(frozen=True, slots=True)
class Stat:
    version: int
    mzxid: int
    pzxid: int
    created: float = 0.0
    data_length: int = 0
    mtime: int = 0
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Result:
    value: Any = None
    error: Exception | None = None

    def get(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class MultiRead(Protocol):
    """kazoo's request of many reads, as Muster makes it."""

    operations: Sequence[Read]


@dataclass
class MultiResult:
    """What a request of many reads is answered with: of each what was read, or why it was not."""

    outcomes: list[Any] = field(default_factory=list)

    def get(self, timeout: float | None = None) -> list[Any]:
        return self.outcomes


@dataclass
class MemoryClient:
    """`nodes` maps paths to data, version and zxid, `listed` maps those whose children changed to the zxid of that.
    Watches never fire: whoever reads, reads again."""

    nodes: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    zxid: int = 0
    numbered: int = 0
    connected: bool = True
    logger: None = None
    client_state: str = "CONNECTED"
    chroot: str = ""
    clock: Callable[[], float] = time.time

    @property
    def handler(self) -> MemoryClient:
        return self

    @property
    def last_zxid(self) -> int:
        return self.zxid

    def put(self, path: str, data: bytes = b"") -> None:
        """Whoever it is writes whatever it is; parents are made."""
        self._ensure(path.rpartition("/")[0])
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        self.zxid += 1
        if path not in self.nodes:
            self._listed_anew(path)
        self.nodes[path] = (data, version, self.zxid)

    def data(self) -> dict[str, bytes]:
        return {path: data for path, (data, _, _) in self.nodes.items()}

    def children(self, path: str) -> list[str]:
        return [
            name
            for name in (p.removeprefix(f"{path}/") for p in self.nodes if p.startswith(f"{path}/"))
            if "/" not in name
        ]

    # kazoo's

    def sync_async(self, path: str) -> Result:
        return Result(path)

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        if path not in self.nodes:
            return Result(error=NoNodeError())
        data, version, zxid = self.nodes[path]
        return Result((data, Stat(version, zxid, self.listed.get(path, 0), float(zxid), len(data))))

    def get_children_async(
        self, path: str, watch: Callable[[Any], None] | None = None, include_data: bool = False
    ) -> Result:
        if path not in self.nodes:
            return Result(error=NoNodeError())
        found = self.children(path)
        return Result((found, Stat(0, 0, self.zxid)) if include_data else found)

    def async_result(self) -> MultiResult:
        return MultiResult()

    def _call(self, request: MultiRead, result: MultiResult) -> None:
        for read in request.operations:
            one = self.get_async(read.path) if read.kind == DATA else self.get_children_async(read.path)
            result.outcomes.append(one.value if one.error is None else one.error)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        found = self.nodes.get(path)
        return Result(
            None if found is None else Stat(found[1], found[2], found[2], float(found[2]), len(found[0]))
        )

    def ensure_path_async(self, path: str) -> Result:
        self._ensure(path)
        return Result(True)

    def set_async(self, path: str, data: bytes) -> Result:
        error = self.apply(("set", path, data, -1))
        if error is not None:
            return Result(error=error)
        _, version, zxid = self.nodes[path]
        return Result(Stat(version, zxid, 0, data_length=len(data), mtime=int(1000 * self.clock())))

    def create_async(self, path: str, data: bytes = b"", sequence: bool = False) -> Result:
        made = self.named(path, sequence)
        return Result(made, self.apply(("create", made, data, -1)))

    def delete_async(self, path: str) -> Result:
        error = self.apply(("delete", path, b"", -1))
        return Result(True, error)

    def transaction(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    def apply(self, operation: tuple[str, str, bytes, int]) -> Exception | None:
        kind, path, data, version = operation
        if kind == "create":
            if path in self.nodes:
                return NodeExistsError()
            if path.rpartition("/")[0] not in self.nodes:
                return NoNodeError()
        elif path not in self.nodes:
            return NoNodeError()
        elif version not in {-1, self.nodes[path][1]}:
            return BadVersionError()
        if kind == "delete":
            if self.children(path):
                return NotEmptyError()
            del self.nodes[path]
            self.zxid += 1
            self._listed_anew(path)
        elif kind != "check":
            self.put(path, data)
        return None

    def named(self, path: str, sequence: bool) -> str:
        """The path that is made: with a number behind it if it is one of a sequence."""
        if not sequence:
            return path
        self.numbered += 1
        return f"{path}{self.numbered - 1:010d}"

    def _ensure(self, path: str) -> None:
        while path and path not in self.nodes:
            self.zxid += 1
            self.nodes[path] = (b"", 0, self.zxid)
            self._listed_anew(path)
            path = path.rpartition("/")[0]

    def _listed_anew(self, path: str) -> None:
        self.listed[path.rpartition("/")[0]] = self.zxid


@dataclass
class MemoryTransaction:
    client: MemoryClient
    operations: list[tuple[str, str, bytes, int]] = field(default_factory=list)

    def create(self, path: str, data: bytes = b"", sequence: bool = False) -> None:
        self.operations.append(("create", self.client.named(path, sequence), data, -1))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.operations.append(("set", path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        self.operations.append(("delete", path, b"", version))

    def check(self, path: str, version: int) -> None:
        self.operations.append(("check", path, b"", version))

    def commit_async(self) -> Result:
        """All of it, or nothing and the reason."""
        before = dict(self.client.nodes)
        for operation in self.operations:
            error = self.client.apply(operation)
            if error is not None:
                self.client.nodes = before
                return Result([error])
        return Result([True] * len(self.operations))


class MemoryStore(TopicStore):
    """The real store over a client that is there already."""

    def __init__(self, client: MemoryClient, cluster: str) -> None:
        super().__init__(SETTINGS, cluster)
        self._client = self._session.client = client
        self._ensure_parents(self._session.deadline())

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *_: object) -> None:
        pass
