"""`python -m devstack.incident`: what goes wrong with data, what a person does about it, and each record counted.

The person uses the doors that people have: the command `muster`, and Airflow's questions and tasks. The offsets of an
old consumer are imported first, because that is refused while consumers run.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from devstack.demo.needs import Needs
from devstack.demo.story import CONSUMER_TASK, TOPIC, command, opened
from devstack.errors import DevstackError
from devstack.incident.account import account
from devstack.incident.bad_records import BadRecords
from devstack.incident.command_line import muster
from devstack.incident.gaps import GapWatch
from devstack.incident.handlers.flights import HANG, HANGS, MENDED
from devstack.incident.kafka_log import produce_one, produced_and_replayed
from devstack.incident.kept_counts import COUNTED, COUNTS, KeptCounts
from devstack.incident.old_consumer import read_as_before
from devstack.incident.part import CLUSTER, ON_CLUSTER, PARTITIONS, SHARES
from devstack.incident.report import Verdict
from devstack.incident.stored_data import StoredData
from devstack.progress import console
from devstack.stack import Stack
from muster.commands.table import COMMANDS
from muster.settings.connections import ZooKeeperSettings

HANDLERS = Path(__file__).resolve().parent / "handlers"
OLD_GROUP, OLD_EACH = "old-flights", 50
"""The consumer from before Muster, and how many flights of each partition it wrote."""
POISONED = 0
"""The partition that gets the record that the handler cannot take."""
POISON = {"row": -1, "carrier": "XX", "dep_delay": "late"}
MOVES = 15
"""Batches of each partition over which gaps are measured before the poison record comes, at least."""
FAILURES = 3
"""Batches that each consumer fails with while the sink is away, at least."""
BACK, BACK_SECONDS = "2m", 120.0
"""By how much the topic is sought back."""
SHOWN_ERROR = 200
"""Characters of an error that the timeline has."""
NEEDS = Needs("The incident", minutes=18, memory=5.0, disk=1.0)


def settings(folder: Path) -> str:
    """Return the story's `clusters.yaml`, as JSON, which is YAML. Its switches, Delta table and state are in
    `folder`."""
    cluster = {
        "consul_service": f"muster-{CLUSTER}",
        "group_id": f"{CLUSTER}-tables",
        "topics": [TOPIC],
        "long_poll_timeout": "5s",
        "stuck_after": "30s",
        "closing_timeout": "10s",
        "consumers": {
            "count": len(SHARES),
            "handler": "flights.Flights",
            "handler_options": {
                "switches": str(folder),
                "path": str(folder / "delta"),
                "database": "${MUSTER_DATABASE}",
            },
            "handlers": {COUNTED: {"handler": "carriers.Carriers", "handler_options": {"topic": COUNTS}}},
            "state": [COUNTED],
            "state_folder": str(folder / "state"),
            "spark_conf": {"spark.driver.memory": "512m", "spark.ui.enabled": "false"},
            "trigger_interval": "500ms",
            "startup_timeout": "10m",  # on a machine that is busy, as the next one
            "lost_after": "5m",
            "graceful_timeout": "10s",  # of the one that hangs
        },
    }
    return json.dumps({"clusters": {CLUSTER: cluster}}, indent=2)


class Incident(BadRecords, StoredData, KeptCounts):
    """One run of the whole story."""

    def run(self) -> Verdict:
        """Do everything and return what came of it. Raises TimeoutError or `DevstackError` with what did not come."""
        self.create_topic(PARTITIONS)
        self.tables.create()
        self.producer.start()
        self._move_in()
        self.unpause_dags()
        with self.timeline.step("Consumers: two Spark jobs are submitted by Airflow") as progress:
            self.wait(progress, "3/3", lambda: self.shares() == SHARES)
            self._settle(progress)
            progress.result = self.view.describe(TOPIC)
        paused = self._poison()
        self._mend_and_replay()
        since = time.monotonic()
        self._hang()
        self._sink_goes_away()
        self._seek_back(since)
        self._bad_records()
        self._flapping_sink()
        self._clear_a_table()
        self._restore_a_table()
        wrong = self._count_goes_on()
        return replace(self._account(paused), state_counts_wrong=wrong)

    def _move_in(self) -> None:
        with self.timeline.step(
            "Moving in: a consumer from before Muster writes, and is stopped"
        ) as progress:
            zookeeper = ZooKeeperSettings(hosts=self.stack.zookeeper.address)
            kafka = self.stack.kafka.address
            left = read_as_before(kafka, zookeeper, OLD_GROUP, TOPIC, PARTITIONS, OLD_EACH, self.tables)
            progress.result = f"{OLD_EACH * PARTITIONS} flights; its offsets are left in ZooKeeper"
        command = ("import-offsets", *ON_CLUSTER, "--zookeeper-group", OLD_GROUP)
        self._muster(*command, "--preview")
        imported = self._muster(*command, "--reason", "we move in")["offsets"][TOPIC]
        if imported != {str(partition): offset for partition, offset in left.items()}:
            raise DevstackError(f"imported are {imported}, while the old consumer left {left}")

    def _poison(self) -> float:
        """Have a poison record come, and dead-letter it. Returns how long the others paused beyond what is usual."""
        others = set(range(PARTITIONS)) - {POISONED}
        pages = self.view.pages().values()
        with (
            self.timeline.step("Flights flow: the usual gap between batches is measured") as progress,
            GapWatch(pages, TOPIC, others) as usual,
        ):
            self.wait(progress, "batches of all", lambda: usual.gaps.moved(others, MOVES))
            progress.result = f"at most {usual.gaps.longest:.1f} s"
        with GapWatch(pages, TOPIC, others) as meanwhile:
            value = json.dumps(POISON).encode()
            offset = produce_one(self.stack.kafka.address, TOPIC, POISONED, value)
            where = f"{TOPIC} [{POISONED}], offset {offset}"
            self.bad.add((POISONED, offset))
            self.timeline.say(f"A poison record arrives: {where}: {value.decode()}")
            with self.timeline.step("Poison: it is found, and tried alone for two minutes") as progress:
                found = self.wait(
                    progress,
                    "it is asked about",
                    lambda: self._parked(self.view.statuses(), offset),
                )
                progress.result = f"after {found['attempts']} attempts alone: {found['error'][:SHOWN_ERROR]}"
            with self.timeline.step("Poison: a person is asked, and answers") as progress:
                dead_letter = COMMANDS["dead-letter-record"].label
                self._answer(
                    progress,
                    f"Is it the record or the sink? {where}",
                    dead_letter,
                    lambda: self.view.committed(TOPIC)[POISONED] > offset,
                )
                progress.result = "the partition goes on after the record"
        paused = max(0.0, meanwhile.gaps.longest - usual.gaps.longest)
        self.timeline.say(
            f"The other partitions went on: at most {meanwhile.gaps.longest:.1f} s from one batch to the next, "
            f"{paused:.1f} s more than before"
        )
        return paused

    def _mend_and_replay(self) -> None:
        (self.stack.data / MENDED).touch()
        self.timeline.say("The handler is mended")
        done = self._muster("deadletters", "replay", *ON_CLUSTER, "--reason", "the handler takes them now")
        if done["replayed"] != 1:
            raise DevstackError(f"1 letter was to be written back, not {done['replayed']}")
        with self.timeline.step(
            "Replay: the record comes again, after what its partition got since"
        ) as progress:
            self._settle(progress)

    def _hang(self) -> None:
        hangs = self.stack.data / HANGS
        (self.stack.data / HANG).touch()
        with self.timeline.step("Hang: a handler does not come back") as progress:
            pid = int(self.wait(progress, "it hangs", lambda: hangs.exists() and hangs.read_text()))
            consumer = self.wait(progress, "who it is", lambda: self._consumer_of(pid))
            progress.result = f"{consumer} makes no progress from now on"
        with self.timeline.step("Hang: a person is asked, and answers") as progress:
            subject = f"Isolate {consumer} of cluster {CLUSTER}?"
            self._answer(
                progress,
                subject,
                f"Isolate {consumer}",
                lambda: consumer not in self.view.live() and self.shares() == [PARTITIONS],
            )
            progress.result = self.view.describe(TOPIC)
        with self.timeline.step(f"Hang: {consumer} is restarted, its task in Airflow is cleared") as progress:
            run_id, map_index = self.task_of(consumer)
            self.api.clear(self.consumers_dag, run_id, CONSUMER_TASK, map_index)
            self.wait(progress, "a new process", lambda: self._is_restarted(consumer, pid))
            progress.result = "it is a new process"
        self._muster("restore", consumer, *ON_CLUSTER, "--reason", "it was restarted")
        with self.timeline.step(f"Hang: {consumer} has partitions again") as progress:
            self.wait(progress, "3/3", lambda: self.shares() == SHARES)
            self._settle(progress)
            progress.result = self.view.describe(TOPIC)

    def _sink_goes_away(self) -> None:
        letters = len(self._letters())
        before = {c: status["handler_failures"] for c, status in self._statuses().items()}
        self.database.stop()
        self.timeline.say("The sink goes away: PostgreSQL is stopped")
        with self.timeline.step("Sink away: both consumers fail and try again") as progress:

            def failed() -> bool:
                now = self.view.statuses()
                return all(c in now and now[c]["handler_failures"] >= n + FAILURES for c, n in before.items())

            self.wait(progress, f"{FAILURES} failures each", failed)
            if self._parked(self._statuses()) or len(self._letters()) != letters:
                raise DevstackError(
                    "a record was taken for poison while the sink was away; see the consumers' logs"
                )
            progress.result = "no record is taken for poison"
        self.stack.start_again(self.database)
        self.timeline.say("The sink comes back: PostgreSQL is started")
        with self.timeline.step("Sink back: what was produced meanwhile is written") as progress:
            self._settle(progress)

    def _seek_back(self, since: float) -> None:
        """Seek back, and not beyond `since`: records that were dead-lettered, or that another program wrote, are not
        in the sinks' ranges, and would be written."""
        with self.timeline.step("Seek: two minutes of flights since the replay") as progress:
            enough = since + BACK_SECONDS + 5
            self.wait(progress, "the time", lambda: time.monotonic() > enough)
            progress.result = "there are"
        seek = ("seek", f"--to=-{BACK}", TOPIC, *ON_CLUSTER, "--reason", "a wrong deploy two minutes ago")
        self.timeline.say(self._muster(*seek, "--preview")["preview"][-1])
        before = self._given_again()
        self._muster(*seek)
        with self.timeline.step("Seek: the owners carry it out between two batches") as progress:
            status = ("status", *ON_CLUSTER)
            self.wait(progress, "it is carried out", lambda: not muster(*status)["seeks"])
            again = self._given_again() - before
            if again <= 0:
                raise DevstackError(
                    "the seek was carried out, and no record came again; see the consumers' logs"
                )
            self._settle(progress)
            progress.result = f"{again:,} records came again; both tables have them already"

    def _account(self, paused: float) -> Verdict:
        self.producer.stop()
        with self.timeline.step("Flights: the last one is produced and consumed") as progress:
            self.wait(progress, "the producer's end", lambda: not self.producer.running)
            self.producer.join(5)
            self.wait(progress, "lag 0", lambda: self.view.lag(TOPIC) == 0)
            progress.result = f"{self.producer.produced:,} in all, and {len(self.bad)} bad records"
        with self.timeline.step("Proof: both tables are held against what is in Kafka") as progress:
            produced, replays = produced_and_replayed(self.stack.kafka.address, TOPIC, PARTITIONS)
            if len(produced) != self.producer.produced + len(self.bad):
                raise DevstackError(
                    f"topic {TOPIC!r} has {len(produced)} records, {self.producer.produced} flights and "
                    f"{len(self.bad)} bad records were produced; see Kafka's log"
                )
            letters = self._letters()
            of_letters = {
                f"{letter['in']}/{letter['letter']}": (letter["topic"], letter["partition"], letter["offset"])
                for letter in letters
            }
            replayed = {place: of_letters[letter] for place, letter in replays.items()}
            tables = self.tables.places()
            found = account(produced, replayed, tables)
            progress.result = ", ".join(f"{name} has {rows.total():,} rows" for name, rows in tables.items())
        back = sum(bool(letter["replayed"]) for letter in letters)
        good = sum((letter["partition"], letter["offset"]) not in self.bad for letter in letters)
        return Verdict(found, len(self.bad), len(letters), back, paused, self.timeline, good)

    def _given_again(self) -> int:
        """Return offsets that consumers have gone through, less their positions: grows by what a seek brings back."""
        return sum(
            status["records"]
            - sum(each["position"] or 0 for each in status["topics"][TOPIC]["offsets"].values())
            for status in self._statuses().values()
        )

    def _consumer_of(self, pid: int) -> str | None:
        found = (consumer for consumer, status in self.view.statuses().items() if status["pid"] == pid)
        return next(found, None)

    def _is_restarted(self, consumer: str, pid: int) -> bool:
        status = self.view.statuses().get(consumer)
        return status is not None and status["pid"] != pid


def make(folder: Path) -> Stack:
    """Return the stack of the story in `folder`."""
    settings_file = folder.resolve() / "clusters.yaml"
    # The consumers have Airflow's path, so that is where a handler of one's own belongs.
    environment = {"MUSTER_CLUSTERS": str(settings_file), "PYTHONPATH": str(HANDLERS)}
    return Stack(folder, database=True, environment=environment)


def run(stack: Stack) -> Verdict:
    """Bring the stack up, let everything happen on it, and show it as a timeline."""
    if stack.database is None:
        raise DevstackError(f"the stack in {stack.folder} has no database; make it with one")
    stack.folder.mkdir(parents=True, exist_ok=True)
    (stack.folder / "clusters.yaml").write_text(settings(stack.data), encoding="utf-8")
    stack.up()
    with opened(stack, CLUSTER) as (api, view):
        verdict = Incident(stack, api, view, stack.database).run()
    verdict.show(console)
    return verdict


main = command(
    "incident",
    NEEDS,
    make,
    run,
    "Run the story from a clean slate in FOLDER. Exit code 0 only if all of it happened, and each record stands in "
    "both tables and in the counts once.",
)

if __name__ == "__main__":
    main()
