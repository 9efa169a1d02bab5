"""ZooKeeper in memory: nodes with versions and transactions, and as much of kazoo's client as Muster uses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.serialization import Transaction

from muster.edges.zookeeper_multi_read import DATA
from muster.settings.connections import ZooKeeperSettings

SETTINGS = ZooKeeperSettings(hosts="z:2181")
"""What a store or a watch over a client in memory is made with."""


@dataclass(frozen=True, slots=True)
class Znode:
    """A node, which is its own stat. Times are in seconds since the epoch, but `mtime` in milliseconds."""

    data: bytes = b""
    version: int = 0
    mzxid: int = 0
    pzxid: int = 0
    created: float = 0.0
    mtime: int = 0
    children: frozenset[str] = frozenset()
    numbered: int = 0
    """Children that were created so far: the number of the next one of a sequence."""

    @property
    def data_length(self) -> int:
        return len(self.data)


Tree = Mapping[str, Znode]
"""Nodes by path; the root's is empty."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One of a transaction: 'create', 'create numbered', 'set', 'delete' or 'check'; -1 is any version."""

    kind: str
    path: str
    data: bytes = b""
    version: int = -1


class MemoryZooKeeper:
    """The servers: one order of transactions."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.zxid = 0
        """The last transaction."""
        self._nodes = {"": Znode()}

    @property
    def tree(self) -> Tree:
        """All nodes after the last transaction."""
        return self._nodes

    def write(self, *operations: Operation) -> list[Any]:
        """Do all `operations` or none: return their results, or the error of the one that cannot be done."""
        changes: dict[str, Znode | None] = {}
        results: list[Any] = []
        for operation in operations:
            result = self._do(operation, changes)
            if isinstance(result, Exception):
                return [result]
            results.append(result)
        if changes:
            self._commit(changes)
        return results

    def missing(self, path: str) -> list[Operation]:
        """Return what has to be done so that `path` is there."""
        found = []
        while path not in self.tree:
            found.append(Operation("create", path))
            path = path.rpartition("/")[0]
        return found[::-1]

    def data(self) -> dict[str, bytes]:
        """Return what every node holds."""
        return {path: node.data for path, node in self.tree.items()}

    def put(self, path: str, data: bytes = b"") -> None:
        """Write `path` whatever its version, with its parents."""
        self.write(*self.missing(path), Operation("set", path, data))

    def _do(self, operation: Operation, changes: dict[str, Znode | None]) -> Any:
        """Add what `operation` does to `changes`; return its result or its error."""
        if operation.kind.startswith("create"):
            return self._create(operation, changes)
        node = self._look(operation.path, changes)
        if node is None:
            return NoNodeError()
        if operation.version not in {-1, node.version}:
            return BadVersionError()
        if operation.kind == "set":
            node = replace(
                node, data=operation.data, version=node.version + 1, mzxid=self.zxid + 1, mtime=self._now()
            )
            changes[operation.path] = node
        elif operation.kind == "delete":
            if node.children:
                return NotEmptyError()
            above, _, name = operation.path.rpartition("/")
            parent = self._look(above, changes)
            assert parent is not None
            changes[operation.path] = None
            changes[above] = replace(parent, pzxid=self.zxid + 1, children=parent.children - {name})
        return node

    def _create(self, operation: Operation, changes: dict[str, Znode | None]) -> Any:
        above, _, name = operation.path.rpartition("/")
        parent = self._look(above, changes)
        if parent is None:
            return NoNodeError()
        if operation.kind == "create numbered":
            name = f"{name}{parent.numbered:010d}"
        path = f"{above}/{name}"
        if self._look(path, changes) is not None:
            return NodeExistsError()
        changes[path] = Znode(
            operation.data, mzxid=self.zxid + 1, pzxid=self.zxid + 1, created=self.clock(), mtime=self._now()
        )
        changes[above] = replace(
            parent, pzxid=self.zxid + 1, children=parent.children | {name}, numbered=parent.numbered + 1
        )
        return path

    def _now(self) -> int:
        return int(1000 * self.clock())

    def _look(self, path: str, changes: Mapping[str, Znode | None]) -> Znode | None:
        return changes[path] if path in changes else self.tree.get(path)

    def _commit(self, changes: Mapping[str, Znode | None]) -> None:
        self.zxid += 1
        for path, node in changes.items():
            if node is None:
                del self._nodes[path]
            else:
                self._nodes[path] = node


@dataclass(frozen=True, slots=True)
class Result:
    """What kazoo's `..._async` calls return."""

    value: Any = None
    error: Exception | None = None

    def get(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _result(value: Any) -> Result:
    return Result(error=value) if isinstance(value, Exception) else Result(value)


class Multi(Protocol):
    """kazoo's request of many reads or many writes, as Muster makes it."""

    type: int
    operations: Sequence[Any]


@dataclass
class MultiResult:
    """The outcomes of a request of many reads or writes: what was read or written, or why it was not."""

    outcomes: list[Any] = field(default_factory=list)

    def get(self, timeout: float | None = None) -> list[Any]:
        return self.outcomes


class MemoryClient:
    """A session that sees every transaction at once. Its watches never fire."""

    logger = None
    client_state = "CONNECTED"
    chroot = ""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.zookeeper = zookeeper
        self._session_id = 1

    @property
    def tree(self) -> Tree:
        """The nodes as the session's server has them."""
        return self.zookeeper.tree

    @property
    def connected(self) -> bool:
        return True

    @property
    def handler(self) -> MemoryClient:
        return self

    @property
    def last_zxid(self) -> int:
        return self.zookeeper.zxid

    def sync_async(self, path: str) -> Result:
        return Result(path)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        return Result(self.tree.get(path))

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        node = self.tree.get(path)
        return Result(error=NoNodeError()) if node is None else Result((node.data, node))

    def get_children_async(
        self, path: str, watch: Callable[[Any], None] | None = None, include_data: bool = False
    ) -> Result:
        node = self.tree.get(path)
        if node is None:
            return Result(error=NoNodeError())
        return Result((list(node.children), node) if include_data else list(node.children))

    def async_result(self) -> MultiResult:
        return MultiResult()

    def _call(self, request: Multi, result: MultiResult) -> None:
        if request.type == Transaction.type:
            result.outcomes = self.zookeeper.write(*request.operations)
            return
        for read in request.operations:
            one = self.get_async(read.path) if read.kind == DATA else self.get_children_async(read.path)
            result.outcomes.append(one.value if one.error is None else one.error)

    def ensure_path_async(self, path: str) -> Result:
        self.zookeeper.write(*self.zookeeper.missing(path))
        return Result(True)

    def set_async(self, path: str, data: bytes) -> Result:
        return self._write(Operation("set", path, data))

    def create_async(self, path: str, data: bytes = b"", sequence: bool = False) -> Result:
        return self._write(Operation("create numbered" if sequence else "create", path, data))

    def delete_async(self, path: str) -> Result:
        return self._write(Operation("delete", path))

    def _write(self, operation: Operation) -> Result:
        return _result(self.zookeeper.write(operation)[0])

    def transaction(self) -> MemoryTransaction:
        return MemoryTransaction()


@dataclass
class MemoryTransaction:
    operations: list[Operation] = field(default_factory=list)

    def create(self, path: str, data: bytes = b"", sequence: bool = False) -> None:
        self.operations.append(Operation("create numbered" if sequence else "create", path, data))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.operations.append(Operation("set", path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        self.operations.append(Operation("delete", path, version=version))

    def check(self, path: str, version: int) -> None:
        self.operations.append(Operation("check", path, version=version))
