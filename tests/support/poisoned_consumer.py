"""A consumer whose handler raises for some records of one partition."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from muster.consumer.source.batch_size import Bounds
from muster.core.parking import OnPoison
from muster.core.turns import Failure
from tests.support.planned_consumer import PlannedConsumer, PlannedKafka

POISON = ("t", 1)


class Consumer(PlannedConsumer):
    """Its handler raises for offset 70 of partition 1 as long as it is `poisoned`; the others get more records."""

    def __init__(self, kafka: PlannedKafka, on_poison: OnPoison = OnPoison.PARK) -> None:
        self.poisoned: set[int] = {70}
        self.error = Failure("ValueError: poison")
        self.read: list[tuple[int, int, int]] = []
        super().__init__(kafka, Bounds(1000), on_poison=on_poison)

    def process(self) -> None:
        plan = self.agent.batch_started()
        ranges = plan.filled
        bad = any(begin <= at < end for begin, end in [ranges.get(POISON, (0, 0))] for at in self.poisoned)
        if bad:
            self.agent.batch_done(plan, self.error)
        else:
            self.read += [(p, begin, end) for (_, p), (begin, end) in sorted(ranges.items())]
            self.agent.batch_done(plan, None)

    def arrive(self) -> None:
        for tp in self.kafka.ends:
            if tp != POISON:
                self.kafka.ends[tp] += 1

    @property
    def tried(self) -> int:
        """How many times the record failed alone."""
        return self.agent.answers.failing[POISON].attempts

    def metric(self, name: str) -> float:
        families = text_string_to_metric_families(self.page.get("/metrics").text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def offsets_of(self, partition: int) -> set[int]:
        return {offset for begin, end in self.read_of(partition) for offset in range(begin, end)}

    def read_of(self, partition: int) -> list[tuple[int, int]]:
        return [(begin, end) for p, begin, end in self.read if p == partition]
