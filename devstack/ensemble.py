"""Three ZooKeeper servers that elect a leader, each a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devstack.errors import DevstackError
from devstack.place import HERE, Place
from devstack.zookeeper import ZooKeeper

SIZE = 3


class Member(ZooKeeper):
    """One server of the ensemble. `number` is its id, from 1."""

    roles = ("client", "quorum", "election")

    def __init__(self, data_dir: Path, number: int, all_members: list[Member], place: Place = HERE) -> None:
        super().__init__(data_dir, guarded=True, place=place)
        self.number = number
        self._all = all_members

    def settings(self) -> dict[str, str]:
        """Return those of one alone, with quick elections and the others' addresses."""
        servers = {
            f"server.{one.number}": f"{one.place.address}:{one.ports['quorum']}:{one.ports['election']}"
            for one in self._all
        }
        return {**super().settings(), "initLimit": "20", "syncLimit": "6", "cnxTimeout": "1", **servers}

    def prepare(self) -> None:
        """Write `zoo.cfg` and `myid`."""
        super().prepare()
        (self.data_dir / "data").mkdir(exist_ok=True)
        (self.data_dir / "data" / "myid").write_text(str(self.number), encoding="utf-8")

    def healthy(self) -> bool:
        """Tell whether it serves, as leader or follower."""
        return self.mode() in {"leader", "follower"}


class Ensemble:
    """The three of them, below `folder`, at `places`."""

    def __init__(self, folder: Path, places: Sequence[Place] = (HERE,) * SIZE) -> None:
        self.members: list[Member] = []
        for number in range(1, SIZE + 1):
            self.members.append(Member(folder / str(number), number, self.members, places[number - 1]))
        for member in self.members:
            member.choose_ports()

    @property
    def hosts(self) -> str:
        """kazoo's connection string."""
        return ",".join(member.address for member in self.members)

    def leader(self) -> Member:
        """Tell who leads now. Raises `DevstackError` while none does."""
        found = [member for member in self.members if member.mode() == "leader"]
        if len(found) != 1:
            raise DevstackError(f"ZooKeeper has {len(found)} leaders now")
        return found[0]

    def start(self) -> None:
        """Start those that do not run; an election needs two, so all at once."""
        self._all(lambda member: member.start())

    def stop(self) -> None:
        """End all in order."""
        self.resume()
        self._all(lambda member: member.stop())

    def kill(self) -> None:
        """Send all SIGKILL."""
        self._all(lambda member: member.kill())

    def pause(self) -> None:
        """Freeze all."""
        self._all(lambda member: member.pause())

    def resume(self) -> None:
        """Let all go on."""
        self._all(lambda member: member.resume())

    def _all(self, do: Callable[[Member], None]) -> None:
        with ThreadPoolExecutor(SIZE) as pool:
            list(pool.map(do, self.members))

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)
