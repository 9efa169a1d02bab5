"""A StatsD server, as far as a test needs one: takes what comes by UDP and remembers it."""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType
from typing import Self

_LINE = re.compile(r"(?P<name>[^:]+):(?P<value>[^|]+)\|(?P<kind>c|g|ms)")


class StatsdListener:
    """A context manager. `seen` maps each name to its type and the values in the order they came."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[str, list[float]]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port: int = self._socket.getsockname()[1]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def total(self, name: str) -> float:
        """The sum of a counter, or of a timer's milliseconds; 0 if nothing came."""
        return sum(self.seen.get(name, ("", []))[1])

    def last(self, name: str) -> float | None:
        """The last value of a gauge."""
        return self.seen[name][1][-1] if name in self.seen else None

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                datagram = self._socket.recv(65_536)
            except TimeoutError:
                continue
            for line in datagram.decode().splitlines():
                if found := _LINE.fullmatch(line):
                    kind, values = self.seen.setdefault(found["name"], (found["kind"], []))
                    values.append(float(found["value"]))
                    assert kind == found["kind"]
