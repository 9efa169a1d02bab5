"""State by key: the owner of a shard is killed, and the next one counts on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from devstack.demo.flights import FlightsProducer
from devstack.incident.kafka_log import records
from devstack.incident.part import ON_CLUSTER, RATE, SHARES, Part
from devstack.leftovers import kill_consumer

COUNTED, COUNTS = "flights-by-carrier", "carrier-counts"
"""The topic whose records are counted by key, and the topic that gets each new count."""
SHARDS = 2


class KeptCounts(Part):
    """Flights with their carrier as the key go to a topic of their own."""

    def _count_goes_on(self) -> int:
        """Have the owner of shard 0 killed while flights flow. Returns how many carriers have a wrong count."""
        self.create_topic(SHARDS, COUNTED)
        self.create_topic(1, COUNTS)
        self._muster("subscribe", COUNTED, *ON_CLUSTER, "--reason", "count the flights of each carrier")
        producer = FlightsProducer(self.stack.kafka.address, COUNTED, 0, RATE, by_carrier=True)
        producer.start()
        with self.timeline.step("State: flights are counted by carrier") as progress:

            def owned() -> bool:
                return self.view.stable(COUNTED) and len(self.view.live()) == len(SHARES)

            self.wait(progress, "its shards have owners, and both consumers are live", owned)
            self._settle(progress, COUNTED)
            progress.result = f"{self._newest()}; {self.view.describe(COUNTED)}"
        owner = self.view.owners(COUNTED)[0]
        kill_consumer(self.stack.folder, self._statuses()[owner]["pid"])
        self.timeline.say(f"{owner}, the owner of {COUNTED} [0], is killed by SIGKILL: JVM and Python")
        with self.timeline.step("State: the next owner counts on") as progress:
            taken = f"{COUNTED} [0] has another owner"
            self.wait(progress, taken, lambda: self.view.owners(COUNTED).get(0, owner) != owner)
            self._settle(progress, COUNTED)
            producer.stop()
            self.wait(progress, "the last flight", lambda: not producer.running)
            producer.join(5)
            self._settle(progress, COUNTED)
            wrong = wrong_counts(producer.carriers, self._counts())
            progress.result = f"{self._newest()}, {wrong} of them wrong; {producer.produced:,} were produced"
        return wrong

    def _counts(self) -> list[tuple[str, int]]:
        """Return each carrier and count that is committed in the topic of counts, in order."""
        found = records(self.stack.kafka.address, COUNTS, 1)
        return [((message.key() or b"").decode(), int(message.value() or 0)) for message in found]

    def _newest(self) -> str:
        newest = dict(self._counts())
        return f"{sum(newest.values()):,} flights of {len(newest)} carriers"


def wrong_counts(produced: Mapping[str, int], written: Iterable[tuple[str, int]]) -> int:
    """Count the keys whose newest count is not how many records of theirs were `produced`, or whose counts that were
    `written` do not grow from each to the next, as where one is there twice. Pure."""
    counts: dict[str, list[int]] = {}
    for key, count in written:
        counts.setdefault(key, []).append(count)
    return sum(
        (found := counts.get(key, [0]))[-1] != produced.get(key, 0) or found != sorted({*found})
        for key in produced.keys() | counts.keys()
    )
