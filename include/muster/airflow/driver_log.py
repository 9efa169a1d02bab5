"""Reading a driver's log file while it grows, so that it can be followed from the consumer's task."""

from __future__ import annotations

from pathlib import Path

CHUNK = 64 * 1024
"""Bytes read at once. A driver that writes faster is not followed line by line: what is passed over is said."""


class DriverLog:
    """A log file that another process writes, from byte `position` on. A file that is not there is empty."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position

    def new_lines(self, final: bool = False) -> list[str]:
        """Return the complete lines written since the last call; with `final` also the one not ended yet."""
        if not self.path:
            return []
        try:
            with Path(self.path).open("rb") as file:
                size = file.seek(0, 2)
                passed_over = size - CHUNK - self.position
                if passed_over > 0:
                    self.position = size - CHUNK
                file.seek(self.position)
                data = file.read(CHUNK)
        except OSError:
            # The file is on another machine or was pruned; the consumer itself is watched by other means.
            return []
        complete = data if final else data[: data.rfind(b"\n") + 1]
        self.position += len(complete)
        lines = complete.decode(errors="replace").splitlines()
        if passed_over > 0:
            lines.insert(0, f"... {passed_over} bytes passed over, they are in {self.path}")
        return lines

    def tail(self, lines: int = 40) -> str:
        """The end of the file, for an error message."""
        if not self.path:
            return ""
        try:
            with Path(self.path).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(size - CHUNK, 0))
                data = file.read(CHUNK)
        except OSError as error:
            return f"(its log {self.path} cannot be read: {error.strerror})"
        found = data.decode(errors="replace").splitlines()[-lines:]
        return "\n".join(found) if found else "(its log is empty)"
