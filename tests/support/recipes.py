"""The recipes of the documentation, for tests that run them as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Recipe:
    """The one block of Python in a section of a page, and the configuration of Spark that the section names."""

    def __init__(self, page: str, heading: str) -> None:
        text = (DOCS / page).read_text(encoding="utf-8")
        self._section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        (self.code,) = re.findall(r"```python\n(.*?)```", self._section, re.DOTALL)

    @property
    def spark_conf(self) -> dict[str, str]:
        (line,) = re.findall(r"`spark_conf: (\{.*?\})`", self._section)
        conf: dict[str, str] = yaml.safe_load(line)
        return conf
