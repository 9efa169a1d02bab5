"""Whether a release would be in order. `python -m devstack.release` prints what is wrong, and a line.

Its tools are those of requirements-release.txt, in an environment of their own, and actionlint.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import muster
from devstack.airflow import ROOT
from devstack.errors import DevstackError
from devstack.wheel import build_wheel, home_of

DISTRIBUTION = "muster-kafka"
PLACEHOLDER = "OWNER"
"""Stands in `pyproject.toml` until the project has a place."""


def metadata_problems(tools: Path, wheel: Path, again: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel that was built twice."""
    if wheel.read_bytes() != again.read_bytes():
        yield "the wheel has other bytes when it is built again"
    if said := _run(tools / "twine", "check", "--strict", wheel):
        yield said
    if (version := _metadata(wheel)["Version"]) != muster.__version__:
        yield f"the wheel's version is {version}, the code's {muster.__version__}"
    if not re.search(
        rf"^## {re.escape(muster.__version__)} \(\d{{4}}-\d\d-\d\d\)$", _text("CHANGELOG.md"), re.MULTILINE
    ):
        yield f"CHANGELOG.md has no dated section {muster.__version__}"


def broken_links(wheel: Path) -> Iterator[str]:
    """Yield the links of a wheel's description that are relative, or lead to a file that is not there."""
    place = re.escape(home_of(_text("pyproject.toml"))) + rf"/(?:blob|raw)/v{re.escape(muster.__version__)}/"
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", str(_metadata(wheel).get_payload())):
        ours = re.fullmatch(f"{place}(.+)", link)
        if not link.startswith("https://") or (ours and not (ROOT / ours[1]).exists()):
            yield f"broken link in the description: {link}"


def sbom_problems(tools: Path, file: Path) -> Iterator[str]:
    """Write the bill of materials of the versions that are tested to `file`; yield what it lacks."""
    made = _run(
        *(
            tools / "cyclonedx-py",
            "requirements",
            "--pyproject",
            ROOT / "pyproject.toml",
            "--mc-type",
            "library",
        ),
        *("--output-reproducible", "--validate", "--output-file", file, ROOT / "requirements.txt"),
    )
    if made:
        yield made
        return
    bill = json.loads(file.read_text("utf-8"))
    bill["metadata"]["component"]["version"] = muster.__version__
    file.write_text(json.dumps(bill, indent=1, sort_keys=True), "utf-8")
    if (name := bill["metadata"]["component"]["name"]) != DISTRIBUTION:
        yield f"the bill of materials is of {name}"
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==", _text("requirements.txt"), re.MULTILINE)
    if missing := set(pinned) - {each["name"] for each in bill["components"]}:
        yield f"not in the bill of materials: {sorted(missing)}"


def workflow_findings(tools: Path) -> Iterator[str]:
    """Yield what actionlint and zizmor find in the workflows."""
    folder = ROOT / ".github"
    for file in sorted(folder.glob("workflows/*.yml")):
        yield from _run(tools / "actionlint", "-no-color", "-oneline", file).splitlines()
    found = subprocess.run(  # noqa: S603  our own command line
        [tools / "zizmor", "--offline", "--no-progress", "--format", "json", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if not found.stdout:
        raise DevstackError(f"zizmor: {found.stderr.strip()}")
    for each in json.loads(found.stdout):
        where = each["locations"][0]["symbolic"]["key"]
        yield f"{each['ident']}: {each['desc']} ({where}); {each['url']}"


def place_problems(project: str) -> Iterator[str]:
    """Yield what keeps a `pyproject.toml` from a release: it names no place for the project."""
    if PLACEHOLDER in project:
        yield f"pyproject.toml still says {PLACEHOLDER}: give the project's home page and its authors' address"


def _run(*command: str | Path) -> str:
    """Return what a command printed if it failed, '' if it did not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command line
    return (done.stdout + done.stderr).strip() or f"{command[0]} failed" if done.returncode else ""


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (each for each in files.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(files.read(name).decode())


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def main(arguments: Sequence[str]) -> int:
    """Check with the tools in the folder `arguments[0]`; `--release`: also that the project has a place."""
    tools = Path(arguments[0])
    with tempfile.TemporaryDirectory(prefix="muster-release-") as folder:
        wheel, again = (build_wheel(Path(folder, each)) for each in ("first", "again"))
        metadata = list(metadata_problems(tools, wheel, again))
        links = list(broken_links(wheel))
    (ROOT / "artifacts").mkdir(exist_ok=True)
    sbom = list(sbom_problems(tools, ROOT / "artifacts" / "sbom.json"))
    workflows = list(workflow_findings(tools))
    place = list(place_problems(_text("pyproject.toml"))) if "--release" in arguments else []
    for problem in (*metadata, *links, *sbom, *workflows, *place):
        print(problem)
    print(
        f"release: metadata={int(not metadata)} sbom={int(not sbom)} workflow_findings={len(workflows)} "
        f"broken_links={len(links)}"
    )
    return int(any((metadata, links, sbom, workflows, place)))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DevstackError as error:
        sys.exit(f"Error: {error}")
