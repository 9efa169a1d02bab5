"""The number of a rebuild over owners that die, seeks that come again, and clocks that go back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.consumer.source.batch_size import Bounds
from muster.core.model import Seek
from muster.core.positions import NO_NOTE, Committed, format_stamp, noted
from muster.core.turns import Failure
from tests.support.examples import examples
from tests.support.planned_consumer import PlannedConsumer, PlannedKafka

TP = ("t", 0)


class Kafka(PlannedKafka):
    """One partition, of which the group has an offset."""

    def __init__(self) -> None:
        super().__init__(1)
        self.committed[TP], self.stamps[TP] = 0, format_stamp("c", "A")

    @property
    def number(self) -> int:
        return noted(Committed(self.committed[TP], self.stamps[TP]), "A").rebuild


class Owner(PlannedConsumer):
    """Notes the numbers that its batches are handed out under, and what Kafka had then."""

    def __init__(self, kafka: Kafka, seeks: dict[int, Seek]) -> None:
        self.of = kafka
        self.numbers: list[tuple[int, int]] = []
        self.fails = False
        super().__init__(kafka, Bounds(records=10))
        self.assign({0}, 2, seeks)

    def process(self) -> None:
        plan = self.agent.batch_started()
        self.numbers += [(plan.rebuilds.get(tp, 0), self.of.number) for tp in plan.filled]
        self.agent.batch_done(plan, Failure("no", of_record=False) if self.fails else None)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, 100), st.sampled_from([0, 0, 1, 5, 90])),
        st.tuples(st.just("restored"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("plan"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("commit"), st.just(0), st.just(0)),
        st.tuples(st.just("dies"), st.just(0), st.just(0)),
        st.tuples(st.just("none"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@examples(50)
@given(steps)
def test_number_only_grows_and_is_acknowledged_before_it_is_used(taken: list[tuple[str, int, int]]) -> None:
    """`restored` puts an earlier seek into the node again; `none` has the coordinator carry the seek out."""
    kafka, seeks, last_sought = Kafka(), [Seek("s000", 0)], ""
    owner, epoch, handed_out = Owner(kafka, {}), 2, [0]
    for step, number, moment in taken:
        before = kafka.number
        if step in {"seek", "restored"}:
            again = seeks[number % len(seeks)] if step == "restored" else None
            seeks.append(again or Seek(f"s{len(seeks):03}", number, moment))
            epoch += 1
            owner.assign({0}, epoch, {0: seeks[-1]})
        elif step == "plan":
            owner.fails = bool(moment)
            for _ in range(number):
                if owner.plan():
                    owner.process()
        elif step == "commit":
            owner.commit()
        else:
            last = Committed(kafka.committed[TP], kafka.stamps[TP])
            if step == "none" and not noted(last, "A").has(seeks[-1].id):
                kafka.committed[TP] = seeks[-1].offset
                kafka.stamps[TP] = format_stamp("c", "A", noted(last, "A").after(seeks[-1]))
            owner = Owner(kafka, {0: seeks[-1]})
            epoch += 1
        committed = noted(Committed(kafka.committed[TP], kafka.stamps[TP]), "A")
        assert kafka.number >= before
        assert committed.sought >= last_sought, "a backup has it carried out again"
        if committed.sought != last_sought:
            last_sought = committed.sought
            asked = next(each.rebuild for each in seeks if each.id == committed.sought)
            assert (kafka.number > before and kafka.number >= asked) if asked else kafka.number == before
        for used, acknowledged in owner.numbers:
            assert used == acknowledged >= handed_out[-1]
            handed_out.append(used)
        owner.numbers.clear()


@given(st.integers(0, 9), st.lists(st.integers(1, 9), max_size=4))
def test_seek_that_is_carried_out_twice_has_one_number(first: int, moments: list[int]) -> None:
    """By an owner that dies before its commit, and by the next."""
    note = NO_NOTE if not first else NO_NOTE.after(Seek("s", 0, first))
    for number, moment in enumerate(moments):
        seek = Seek(f"s{number}", 0, moment)
        assert note.after(seek) == note.after(seek)
        assert note.after(seek).rebuild == max(note.rebuild + 1, moment)
        assert note.after(Seek("t", 0)).rebuild == note.rebuild
        note = note.after(seek)
