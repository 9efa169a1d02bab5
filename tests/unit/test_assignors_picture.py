"""The picture in docs/assignors.md shows what the assignors say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # our own file

from docs.pictures.assignors import CONSUMERS, CONTEXT, LEAVES, PICTURE, TOPICS
from muster.core.assignors import BUILT_IN, load_assignor, run_assignor
from muster.core.model import Assignment
from tests.support.assignor_cases import Case, moves

MEND = "run `make picture`"


def read(row: ET.Element, when: str) -> Assignment:
    """The assignment that a row of the picture shows."""
    shown: dict[str, dict[int, str]] = {topic: {} for topic in TOPICS}
    for box in row.iterfind(f".//*[@data-when='{when}']"):
        numbers = [text.text for text in box.iter("{http://www.w3.org/2000/svg}text")]
        assert numbers == [box.attrib["data-partition"]]
        owners = shown[box.attrib["data-topic"]]
        assert int(box.attrib["data-partition"]) not in owners
        owners[int(box.attrib["data-partition"])] = box.attrib["data-consumer"]
    return shown


def test_every_built_in_assignor_is_shown_with_what_it_says() -> None:
    root = ET.parse(PICTURE).getroot()  # noqa: S314
    rows = {row.attrib["data-assignor"]: row for row in root.iterfind(".//*[@data-assignor]")}
    assert rows.keys() == BUILT_IN.keys(), MEND
    left = {name: consumer for name, consumer in CONSUMERS.items() if name != LEAVES}
    for name, row in rows.items():
        assignor = load_assignor(name)
        before = run_assignor(assignor, TOPICS, CONSUMERS, {}, CONTEXT)
        after = run_assignor(assignor, TOPICS, left, before, CONTEXT)
        assert read(row, "before") == before, MEND
        assert read(row, "after") == after, MEND
        moved = moves(Case(TOPICS, left, before), after)
        text = " ".join(text.text or "" for text in row.iter("{http://www.w3.org/2000/svg}text"))
        assert re.findall(r"(\d+) moved", text) == [str(moved)], MEND
        frames = [box.attrib["class"].split()[1] for box in row.iterfind(".//*[@data-when='after']/*[@rx]")]
        assert frames.count("moved") == moved, MEND
        gone = sum(owner == LEAVES for owners in before.values() for owner in owners.values())
        assert frames.count("orphan") == gone, MEND
