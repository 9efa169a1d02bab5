"""What counts as two owners of a partition, or as given twice, in the tests on several hosts: on made-up notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.noted_batches import GRACE, Away, Batches, gaps

KEY = ("c", "numbers", 0, 0)


def note(
    folder: Path, who: str, began: float, ended: float | None, first: int, end: int, generation: int = 0
) -> None:
    """A batch of process `who` with partition 0."""
    host = {"P": 1, "Q": 2}[who]
    name = f"{who}{began}"
    lines: list[dict[str, object]] = [
        {
            "batch": name,
            "began": began,
            "ranges": [["numbers", generation, 0, first, end]],
            "consumer": f"c-{who}",
            "host": host,
            "incarnation": who,
        }
    ]
    if ended is not None:
        lines.append({"batch": name, "ended": ended})
    with (folder / f"{who}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_partition_that_changes_hands_in_order_has_one_owner(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, 2.0, 0, 10)
    note(tmp_path, "Q", 3.0, 4.0, 10, 20)
    note(tmp_path, "P", 5.0, 6.0, 20, 30)
    batches = Batches(tmp_path)
    assert batches.double_owners() == []
    assert batches.doubled(0.0, 9.0) == 0


def test_handlers_at_work_at_the_same_time_are_two_owners(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, 5.0, 0, 10)
    note(tmp_path, "Q", 3.0, 4.0, 0, 12)
    batches = Batches(tmp_path)
    assert [(early.incarnation, late.incarnation, key) for early, late, key in batches.double_owners()] == [
        ("P", "Q", KEY)
    ]
    assert batches.doubled(0.0, 9.0) == 10
    assert batches.doubled(3.5, 9.0) == 0


def test_process_that_went_on_beside_its_successor_is_a_second_owner(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, 1.5, 0, 10)
    note(tmp_path, "Q", 2.0, 2.5, 10, 20)
    note(tmp_path, "P", 3.0, 3.5, 10, 25)
    assert len(Batches(tmp_path).double_owners()) == 1


def test_partition_taken_up_again_after_a_successor_without_records_has_one_owner(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, 1.5, 0, 10)
    note(tmp_path, "Q", 2.0, 2.5, 5, 10)
    note(tmp_path, "P", 3.0, 3.5, 10, 25)
    assert Batches(tmp_path).double_owners() == []


def test_offsets_of_the_next_topic_of_that_name_are_another_partition(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, 5.0, 0, 10, generation=0)
    note(tmp_path, "Q", 3.0, 4.0, 0, 10, generation=1)
    batches = Batches(tmp_path)
    assert batches.double_owners() == []
    assert batches.doubled(0.0, 9.0) == 0


@pytest.mark.parametrize("away", [Away(2.0, 3.5, host=1), Away(2.0, 3.5, incarnation="P")])
def test_process_out_of_reach_counts_again_only_after_the_grace(tmp_path: Path, away: Away) -> None:
    note(tmp_path, "P", 1.0, 5.0, 0, 10)
    note(tmp_path, "Q", 3.0, 4.0, 0, 12)
    note(tmp_path, "Q", 4.1, 4.5, 12, 15)
    late = 3.5 + GRACE
    note(tmp_path, "P", 6.0, late + 9, 10, 40)
    batches = Batches(tmp_path, [away])
    assert batches.double_owners() == []
    note(tmp_path, "Q", late + 1, late + 2, 15, 40)
    assert len(batches.double_owners()) == 1


def test_batch_that_never_ended_is_given_but_not_delivered(tmp_path: Path) -> None:
    note(tmp_path, "P", 1.0, None, 0, 10)
    note(tmp_path, "Q", 3.0, 4.0, 0, 8)
    batches = Batches(tmp_path)
    assert batches.doubled(0.0, 9.0) == 8
    assert batches.delivered()[KEY] == set(range(8))
    assert batches.double_owners() == []


def test_gaps_are_what_is_missing() -> None:
    assert gaps({0, 1, 4, 5}, 8) == [(2, 4), (6, 8)]
    assert gaps({0, 1}, 2) == []
