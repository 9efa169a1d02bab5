"""Which task reads which share of a batch: whoever comes first chooses, and a choice is for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.consumer.source import shares
from muster.consumer.source.shares import Choice, ShareBooks, ShareError


@pytest.fixture
def books(tmp_path: Path) -> ShareBooks:
    return ShareBooks(str(tmp_path))


def test_first_task_gets_the_share_it_prefers(books: ShareBooks) -> None:
    first, second, third = books.open(3)
    assert second.make([2, 0, 1]) == 2
    assert first.make([2, 1, 0]) == 1
    assert third.make([2, 1, 0]) == 0


def test_a_task_that_runs_again_has_the_same_share(books: ShareBooks) -> None:
    first, second = books.open(2)
    assert first.make([1, 0]) == 1
    assert first.make([0, 1]) == 1, "in another worker, which wishes for the other one"
    assert second.make([1, 0]) == 0
    assert second.make([1, 0]) == 0


def test_batches_have_nothing_to_do_with_each_other(books: ShareBooks) -> None:
    assert [books.open(2)[0].make([1, 0]) for _ in range(2)] == [1, 1]


def test_no_two_tasks_have_the_same_share_however_many_run_at_once(books: ShareBooks) -> None:
    """Each three times at once, as in a handler that reads the batch several times side by side."""
    with ThreadPoolExecutor(24) as pool:
        for _ in range(20):
            choices = books.open(8)
            made = list(pool.map(lambda choice: choice.make([3, 1, 2, 0, 4, 5, 6, 7]), choices * 3))
            assert sorted(made[:8]) == list(range(8))
            assert made[:8] == made[8:16] == made[16:]


def test_only_the_last_batches_are_kept(
    books: ShareBooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_KEPT", 2)
    old, *_ = [books.open(2)[0] for _ in range(3)]
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ShareError, match="is over; use a batch within the handler, or cache"):
        old.make([0, 1])


@pytest.mark.parametrize("text", ["0\n", "0 x\n", "0 0\n1 1\n", "\x00\n"])
def test_a_file_that_something_else_has_written_to_is_not_believed(tmp_path: Path, text: str) -> None:
    book = tmp_path / "batch-x"
    book.write_text(text)
    with pytest.raises(ShareError, match="batch-x does not say which part of the batch is whose"):
        Choice(str(book), 2).make([0, 1])


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShareError, match=r"cannot be written to .*Is a directory"):
        Choice(str(tmp_path), 0).make([0, 1])
