"""What docs/install.md says of Airflow's settings is what this checkout's files have."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<use>required|useful|local only) \| `\[(?P<section>\w+)\] (?P<option>\w+)` \| (?P<value>[^|]*) \|",
    re.MULTILINE,
)


def test_table_of_airflow_cfg_has_each_option_of_the_file_with_its_value() -> None:
    file = ConfigParser(interpolation=None)
    file.read(ROOT / "airflow.cfg", encoding="utf-8")
    options = {(section, key): value for section in file.sections() for key, value in file.items(section)}
    said = {(row["section"], row["option"]): row["value"].strip("`") for row in ROW.finditer(PAGE)}
    assert {row["use"] for row in ROW.finditer(PAGE)} == {"required", "useful", "local only"}
    assert {key: value for key, value in said.items() if value != "not set"} == options


def test_page_has_the_lines_that_load_modules_beforehand() -> None:
    (lines,) = re.findall(r"```python\n(import logging\n.*?)```", PAGE, re.DOTALL)
    file = (ROOT / "config" / "airflow_local_settings.py").read_text(encoding="utf-8")
    code = "\n".join(line for line in file.splitlines() if "# " not in line)
    assert lines.strip() in code
