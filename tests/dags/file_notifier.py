"""A notifier for tests: writes what it is given into a file."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Context
from airflow.sdk.bases.notifier import BaseNotifier


class FileNotifier(BaseNotifier):
    """Appends the rendered `text` to `path`."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.text = text

    def notify(self, context: Context) -> None:
        """A line for each alert."""
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}\n")
