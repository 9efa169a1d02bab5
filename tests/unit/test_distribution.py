"""What the distribution, its pages and its workflows say of names, places and versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from devstack.release import place_problems

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]


def test_spark_extra_pins_one_version_of_both() -> None:
    pins = dict(each.split("==") for each in PROJECT["optional-dependencies"]["spark"] if "==" in each)
    assert pins.keys() == {"pyspark", "pyspark-client"}
    assert pins["pyspark"] == pins["pyspark-client"]


def test_no_page_installs_the_other_muster() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("include/muster/**/*.py")]
    other = re.compile(r"""pip install [^`\n]*?(?<![\w/.-])muster(?![\w-])""")
    assert other.search("pip install 'muster[airflow]'")
    assert not other.search("pip install 'muster-kafka[airflow]'")
    found = {page.name: other.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_ci_runs_each_python_of_the_classifiers() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    (image,) = re.findall(r"^python:(\d\.\d+)-", jobs["make"]["container"]["image"])
    assert "test" in jobs["make"]["strategy"]["matrix"]["target"]
    said = (each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each)
    assert [image, *jobs["python"]["strategy"]["matrix"]["python"]] == list(said) == ["3.11", "3.12", "3.13"]


def test_release_fails_on_placeholder_of_the_place() -> None:
    (said,) = place_problems('Homepage = "https://github.com/OWNER/REPO"')
    assert "pyproject.toml still says OWNER" in said
    (said,) = place_problems('Homepage = "https://github.com/ann/REPO"\nemail = "muster@OWNER.example"')
    assert not list(place_problems('Homepage = "https://github.com/ann/muster"'))
