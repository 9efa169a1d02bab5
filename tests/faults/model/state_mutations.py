"""Changes of the real code that concern state by key.

`MUTATIONS` and `HISTORIES` are as those of `mutations` and `histories`, of which they are a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from muster.consumer.state import store
from muster.consumer.state.position import Position, TakenUp
from muster.consumer.state.restores import Restores
from muster.core.model import TopicPartition
from muster.core.state_topics import NO_STATE
from tests.faults.model.commits import fencing
from tests.faults.model.seeks import SimulatedSeeker
from tests.faults.model.state import shards
from tests.faults.model.threads import process_at_work

READS = """
keep_state
settled/a
everybody
everybody"""
SOUGHT_BACK = f"""{READS}
everybody
seek/t/0/-2
round
everybody
everybody
everybody
"""
SKIPPED = SOUGHT_BACK.replace("-2", "-2/skip")
REBUILT = SOUGHT_BACK.replace("-2", "earliest/rebuild")
LOST = f"""{READS}
lose_changelog/t/0
everybody
everybody
"""
STUCK = f"""{READS}
stick/a
everything/a
time/9
everybody
everybody
everybody
"""
REBOOTED = f"""{READS}
reboot/A
start/a
round
round
everybody
"""


def commit_without_what_was_computed(patch: MonkeyPatch) -> None:
    patch.setattr(shards.States, "computed", lambda states, batches: None)


def change_the_store_before_the_commit(patch: MonkeyPatch) -> None:
    original = shards.States.computed

    def computed(self: Any, batches: Mapping[TopicPartition, Any]) -> None:
        original(self, batches)
        for tp, one in batches.items():
            shard = self._shards[tp]
            shard.store.apply(zip(one.keys, one.values, strict=True), shard.mark, shard.mark)

    patch.setattr(shards.States, "computed", computed)


def run_though_changelog_and_group_differ(patch: MonkeyPatch) -> None:
    original = shards.take_up

    def take_up(found: Position | None, *more: Any) -> TakenUp:
        taken: TakenUp = original(found, *more)
        return TakenUp(found) if taken.position is None and found is not None else taken

    patch.setattr(shards, "take_up", take_up)


def say_nothing_of_what_differs(patch: MonkeyPatch) -> None:
    original = Restores.ended
    patch.setattr(
        Restores, "ended", lambda restores, tp, claim_epoch, differs: original(restores, tp, claim_epoch, "")
    )


def write_behind_another_end(patch: MonkeyPatch) -> None:
    """The changelog is not where its owner left it, and the transaction goes on."""

    original = fencing.write_carried

    def write(producer: Any, carried: Any, timeout: float) -> Any:
        log = producer._reach().changelog(carried.topic, carried.partition)
        landed = original(producer, replace(carried, end=log.end), timeout)
        return replace(landed, carried=carried)

    patch.setattr(fencing, "write_carried", write)


def replace_the_producer_of_a_shard(patch: MonkeyPatch) -> None:
    """A stuck producer of a partition with state is replaced as that of another one."""
    patch.setattr(fencing._Fence, "has_state", property(lambda fence: False, lambda fence, value: None))


def trust_a_store_of_another_boot(patch: MonkeyPatch) -> None:
    patch.setattr(store, "_same", lambda mark: mark.identity)


def let_a_zombie_land(patch: MonkeyPatch) -> None:
    """Each process has an id of its own, and does not look where the changelog ends."""
    original = fencing.transactional_id

    def of_process(cluster: str, group: str, topic: str, partition: int) -> str:
        own = f"{process_at_work().incarnation}/" if topic == "t" else ""
        return f"{own}{original(cluster, group, topic, partition)}"

    patch.setattr(fencing, "transactional_id", of_process)
    write_behind_another_end(patch)


def trust_a_store_with_a_lost_commit(patch: MonkeyPatch) -> None:
    """The store is ahead of the changelog, whose offsets were taken by what was aborted."""
    patch.setattr(
        shards,
        "_is_outdated",
        lambda found, read, before: read is not None and not shards.follows(read, before),
    )


def trust_a_store_of_another_history(patch: MonkeyPatch) -> None:
    patch.setattr(shards, "follows", lambda position, before: True)


def forget_the_seek_in_the_changelog(patch: MonkeyPatch) -> None:
    _change_moves(
        patch, lambda now, new: {t: replace(p, move=now.places[t].move) for t, p in new.places.items()}
    )


def forget_what_a_seek_skips(patch: MonkeyPatch) -> None:
    _change_moves(patch, lambda _, new: {t: replace(place, done=0) for t, place in new.places.items()})


def keep_the_watermark_over_a_seek(patch: MonkeyPatch) -> None:
    _change_moves(
        patch, lambda now, new: {t: replace(p, top=now.places[t].top) for t, p in new.places.items()}
    )


def _change_moves(patch: MonkeyPatch, change: Callable[[Position, Position], Any]) -> None:
    original = shards.moved

    def moved(now: Position, *more: Any) -> Position:
        new: Position = original(now, *more)
        return replace(new, places=change(now, new))

    patch.setattr(shards, "moved", moved)


def rebuild_state_under_the_same_number(patch: MonkeyPatch) -> None:
    original = shards.moved

    def moved(now: Position, *more: Any) -> Position:
        return replace(original(now, *more), rebuild=now.rebuild)

    patch.setattr(shards, "moved", moved)


def carry_out_a_seek_of_state_without_an_owner(patch: MonkeyPatch) -> None:
    original = SimulatedSeeker.carry_out

    def carry_out(self: SimulatedSeeker, *arguments: Any) -> Any:
        self.state = NO_STATE
        return original(self, *arguments)

    patch.setattr(SimulatedSeeker, "carry_out", carry_out)


MUTATIONS: dict[str, Callable[[MonkeyPatch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        commit_without_what_was_computed,
        change_the_store_before_the_commit,
        run_though_changelog_and_group_differ,
        say_nothing_of_what_differs,
        write_behind_another_end,
        replace_the_producer_of_a_shard,
        trust_a_store_of_another_boot,
        let_a_zombie_land,
        trust_a_store_with_a_lost_commit,
        trust_a_store_of_another_history,
        forget_the_seek_in_the_changelog,
        forget_what_a_seek_skips,
        keep_the_watermark_over_a_seek,
        rebuild_state_under_the_same_number,
        carry_out_a_seek_of_state_without_an_owner,
    )
}

HISTORIES = {
    "commit_without_what_was_computed": READS,
    "change_the_store_before_the_commit": READS.replace(
        "everybody\neverybody", "everybody\nfault/a/commits_fail\neverybody\nfault/a/commits_fail\neverybody"
    ),
    "run_though_changelog_and_group_differ": LOST,
    "say_nothing_of_what_differs": LOST,
    "write_behind_another_end": LOST,
    "replace_the_producer_of_a_shard": STUCK,
    "trust_a_store_of_another_boot": REBOOTED,
    "let_a_zombie_land": f"""{READS}
fault/a/hung
checks
start/b
round
round
round
everybody
fault/a/hung
work/a
""",
    "trust_a_store_with_a_lost_commit": LOST,
    "trust_a_store_of_another_history": f"""{READS}
crash/a
lose_changelog/t/0
checks
start/b/current/new/B
round
round
seek/t/0/committed
coordinate/first/after
time/9
everything/b
everything/b
crash/b
checks
start/a
round
round
round
everybody
""",
    "forget_the_seek_in_the_changelog": SOUGHT_BACK,
    "forget_what_a_seek_skips": SKIPPED,
    "keep_the_watermark_over_a_seek": SOUGHT_BACK,
    "rebuild_state_under_the_same_number": REBUILT,
    "carry_out_a_seek_of_state_without_an_owner": f"""{READS}
seek/t/0/-2
crash/a
checks
forget/a
coordinate/first/end
coordinate/first/end
""",
}
