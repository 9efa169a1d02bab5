"""Changes of the real code that concern where partitions go on, for how long batches take, and which records kill.

`MUTATIONS` and `HISTORIES` are as those of `mutations` and `histories`, of which they are a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from muster.commands.actions import seeks
from muster.consumer import commits as guarded
from muster.coordinator import view as viewing
from muster.coordinator.seeker import Seeker
from muster.core import diagnosis, ownership
from muster.core.apart import Apart
from muster.core.deaths import Deaths
from muster.core.diagnosis import Waiting
from muster.core.model import Seek
from muster.core.ownership import Ownership
from muster.core.positions import Note

TAKEN_BACK_AND_BROUGHT_BACK = """
settled/a
everybody
seek/t/0/-2
coordinate/first/end
cancel_seek/t/0
coordinate/first/end
everybody
coordinate/first/end
bring_seeks_back
coordinate/first/end
everybody
"""
SOUGHT_BACK = """
settled/a
everybody
everybody
everybody
everybody
seek/t/0/-2
coordinate/first/end
everybody
everybody
"""
SLOW_BATCH = """
batches_within/60
settled/a
everybody
fault/a/slow
time/30
everybody
"""
DEADLY = """
settled/a
everybody
kills/t/0
everybody
start/a
round
everybody
start/a
round
everybody
time/30
time/30
time/1
everybody
everybody
everybody
everybody
"""


def carry_out_seeks_that_are_over(patch: MonkeyPatch) -> None:
    """Only the very seek that was carried out last is known."""
    patch.setattr(Note, "has", lambda note, seek_id: note.sought == seek_id)


def forget_what_was_taken_back(patch: MonkeyPatch) -> None:
    """A seek that is taken back goes from Consul, and nothing is committed of it."""
    patch.setattr(seeks, "partitions_of", lambda *_: ({}, []))


def carry_out_a_seek_beside_its_owner(patch: MonkeyPatch) -> None:
    patch.setattr(viewing, "registered", lambda membership: {})


def carry_out_again_what_an_owner_has(patch: MonkeyPatch) -> None:
    """The coordinator believes what it read before its claim."""
    original = Seeker._due

    def due(self: Seeker, *arguments: Any) -> Any:
        with patch.context() as within:
            within.setattr(Note, "has", lambda note, seek_id: False)
            return original(self, *arguments)

    patch.setattr(Seeker, "_due", due)


def commit_over_a_seek_without_fences(patch: MonkeyPatch) -> None:
    def passed_by(present: Any, ours: Any) -> str:
        with patch.context() as within:
            within.setattr(Note, "has", lambda note, seek_id: True)
            return found(present, ours)

    found = guarded.passed_by
    patch.setattr(guarded, "passed_by", passed_by)


def hand_out_before_the_rebuild_is_committed(patch: MonkeyPatch) -> None:
    patch.setattr(ownership.Partition, "rebuilding", property(lambda partition: False))


def rebuild_under_the_same_number(patch: MonkeyPatch) -> None:
    original = Note.after

    def after(self: Note, seek: Seek, before: int) -> Note:
        return replace(original(self, seek, before), rebuild=max(self.rebuild, seek.rebuild))

    patch.setattr(Note, "after", after)


def forget_how_far_it_was_read(patch: MonkeyPatch) -> None:
    """A seek goes back, and nothing says from where."""
    patch.setattr(Note, "gone_back", lambda note, before: note)


def forget_how_far_it_was_read_at_the_next_commit(patch: MonkeyPatch) -> None:
    original = Note.at
    patch.setattr(Note, "at", lambda *arguments: replace(original(*arguments), reached=0))


def ask_about_batches_within_their_time(patch: MonkeyPatch) -> None:
    _change_batches(patch, lambda found: replace(found, asked=True))


def name_no_batch(patch: MonkeyPatch) -> None:
    _change_batches(patch, lambda found: None)


def _change_batches(patch: MonkeyPatch, change: Callable[[Waiting], Waiting | None]) -> None:
    original = diagnosis._batch

    def batch(*arguments: Any) -> Waiting | None:
        found = original(*arguments)
        return None if found is None else change(found)

    patch.setattr(diagnosis, "_batch", batch)


def ask_never_about_what_was_decided(patch: MonkeyPatch) -> None:
    original = diagnosis._failing

    def failing(*arguments: Any) -> Waiting:
        found = original(*arguments)
        return replace(found, asked=False) if arguments[-1].answer else found

    patch.setattr(diagnosis, "_failing", failing)


def take_an_end_in_order_for_a_death(patch: MonkeyPatch) -> None:
    original = Deaths.after
    patch.setattr(Deaths, "after", lambda deaths, offset, closing=False: original(deaths, offset))


def try_a_piece_before_that_is_committed(patch: MonkeyPatch) -> None:
    patch.setattr(Ownership, "not_noted", lambda own: frozenset())


def read_others_beside_what_may_kill(patch: MonkeyPatch) -> None:
    patch.setattr(Apart, "next", lambda apart, ready, now: apart._turns.next(ready, now))


MUTATIONS: dict[str, Callable[[MonkeyPatch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        carry_out_seeks_that_are_over,
        forget_what_was_taken_back,
        carry_out_a_seek_beside_its_owner,
        carry_out_again_what_an_owner_has,
        commit_over_a_seek_without_fences,
        hand_out_before_the_rebuild_is_committed,
        rebuild_under_the_same_number,
        forget_how_far_it_was_read,
        forget_how_far_it_was_read_at_the_next_commit,
        ask_about_batches_within_their_time,
        name_no_batch,
        ask_never_about_what_was_decided,
        take_an_end_in_order_for_a_death,
        try_a_piece_before_that_is_committed,
        read_others_beside_what_may_kill,
    )
}

HISTORIES = {
    "carry_out_seeks_that_are_over": TAKEN_BACK_AND_BROUGHT_BACK,
    "forget_what_was_taken_back": TAKEN_BACK_AND_BROUGHT_BACK,
    "forget_how_far_it_was_read": SOUGHT_BACK,
    "forget_how_far_it_was_read_at_the_next_commit": SOUGHT_BACK,
    "carry_out_a_seek_beside_its_owner": """
settled/a
everybody
seek/t/0/-2
coordinate/first/end
coordinate/first/end
""",
    "carry_out_again_what_an_owner_has": """
settled/a
everybody
seek/t/0/-2
crash/a
checks
forget/a
coordinate/first/claim to seek
start/a
everybody
everybody
everybody
stop/a
everybody
everybody
coordinate/first/end
""",
    "commit_over_a_seek_without_fences": """
sticky/0//guarded
settled/a
everybody
everybody
fault/a/hung
checks
start/b
round
round
seek/t/0/earliest
round
everything/b
fault/a/hung
work/a
""",
    "hand_out_before_the_rebuild_is_committed": """
settled/a
everybody
everybody
seek/t/0/-2/rebuild
coordinate/first/end
fault/a/commits_fail
everything/a
everything/a
""",
    "rebuild_under_the_same_number": """
settled/a
everybody
seek/t/0/-2/rebuild
round
round
seek/t/0/-2/rebuild
round
round
""",
    "ask_about_batches_within_their_time": SLOW_BATCH,
    "name_no_batch": SLOW_BATCH,
    "ask_never_about_what_was_decided": """
settled/a
everybody
breaks/t/0
everybody
time/9
everybody
time/9
everybody
time/9
everybody
fault/a/commits_fail
skip_records
time/30
everybody
""",
    "take_an_end_in_order_for_a_death": """
settled/a
stop/a
everybody
everybody
start/b
everybody
everybody
fault/b/slow
coordinate/first/end
everybody
everybody
""",
    "try_a_piece_before_that_is_committed": DEADLY.replace("time/1", "time/1\nfault/a/commits_fail"),
    "read_others_beside_what_may_kill": DEADLY,
}
