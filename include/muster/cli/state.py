"""`muster state`: what the states by key of a cluster hold, from their changelogs. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.errors import end, explained, read_clusters
from muster.cli.options import CLUSTER, ListsByDefault
from muster.cli.status import SHOWN
from muster.cli.tables import console, cut, table
from muster.core.moments import to_iso
from muster.core.partition_list import format_partitions
from muster.core.partitioner import partition_of
from muster.edges.kafka import TopicLister
from muster.edges.state_changelog import changelog_topic
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.connections import KafkaSettings

if TYPE_CHECKING:
    from muster.consumer.state.contents import Contents
    from muster.consumer.state.position import Place

WRONG = 2
"""Exit code where the question is wrong."""

_JSON = click.option("--json", "as_text", is_flag=True, help="Print JSON, always in full.")


@click.group(cls=ListsByDefault)
def state() -> None:
    """List the states by key of a cluster (the default), show a key, or export a partition's state."""


@state.command("list")
@CLUSTER
@click.option("--topic", help="Only the state of this topic.")
@click.option("--all", "everything", is_flag=True, help="Show the list in full.")
@_JSON
def list_(cluster: str | None, topic: str | None, everything: bool, as_text: bool) -> None:
    """List each partition's state: keys, bytes, and the position. Reads the changelogs to their ends.

    Exit codes: 0 listed (also if there is none), 2 unknown cluster or topic, or unusable settings, 3 Kafka out of
    reach, or a right is missing.
    """
    with explained():
        asked = _Asked.of(cluster)
        topics = asked.states if topic is None else {topic: asked.partitions(topic)}
        found: dict[str, list[dict[str, Any]]] = {}
        for name, partitions in sorted(topics.items()):
            found[name] = []
            for partition in sorted(partitions):
                with asked.read(name, partition) as contents:
                    found[name].append(_plain(contents))
    if as_text:
        states = [{"topic": name, "partitions": shards} for name, shards in found.items()]
        click.echo(json.dumps({"cluster": asked.cluster.name, "states": states}, indent=2))
        return
    rows = [(name, shard) for name, shards in found.items() for shard in shards]
    limit = None if everything else SHOWN
    if rows:
        out, listed = (
            console(),
            table("topic", "#partition", "#keys", "#bytes", "#offset", "#commit", "watermark"),
        )
        for name, shard in rows[:limit]:
            numbers = (shard[key] for key in ("partition", "keys", "bytes", "offset", "commit"))
            cells = ("-" if each is None else f"{each:,}" for each in numbers)
            listed.add_row(name, *cells, shard["largest_event_time"] or "-")
        out.print(listed)
        cut(out, len(rows), limit)
    keys, size = (sum(shard[key] for _, shard in rows) for key in ("keys", "bytes"))
    click.echo(
        f"state: cluster {asked.cluster.name}, {len(found)} topic(s) with state, {len(rows)} partition(s), {keys:,} "
        f"keys, {size:,} bytes"
    )


@state.command()
@click.argument("topic")
@click.argument("key")
@click.option(
    "--partition",
    type=click.IntRange(0),
    help="Where to look, if not where Kafka's partitioner puts the key.",
)
@click.option("--columns", is_flag=True, help='KEY is JSON with the columns of the key, such as ["a", 3].')
@CLUSTER
@_JSON
def show(
    topic: str, key: str, partition: int | None, columns: bool, cluster: str | None, as_text: bool
) -> None:
    """Show what the state has of a KEY: the values of all variables, and the timers.

    Exit codes: 0 shown, 2 no such topic, state or key, unknown cluster or unusable settings, 3 Kafka out of reach, or
    a right is missing.
    """
    wanted = _columns(key) if columns else [(key,), (key.encode(),)]
    if columns and partition is None:
        raise click.UsageError("--columns needs --partition: Kafka's key does not follow from the columns.")
    with explained():
        asked = _Asked.of(cluster)
        there = asked.partitions(topic)
        usual = partition_of(key.encode(), len(there))
        place = usual if partition is None else partition
        with asked.read(topic, place) as contents:
            from muster.consumer.state.export import lines, plain  # noqa: PLC0415  needs the extra `state`

            entries = next((found for one in wanted if (found := contents.of_key(one))), [])
            if not entries:
                end(_no_key(topic, key, place, None if columns else usual, partition is None), WRONG)
            said = {"cluster": asked.cluster.name, "topic": topic, "partition": place, **_at(contents)}
    if as_text:
        click.echo(json.dumps({**said, "entries": [plain(entry) for entry in entries]}, indent=2))
        return
    click.echo(f"state: cluster {asked.cluster.name}, topic {topic}, partition {place}, {_place(said)}")
    for line in lines(entries):
        console().print(line, soft_wrap=True)


@state.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, writable=True))
@click.option("--variable", help="Only this one; Parquet takes one, and so needs it where there are several.")
@CLUSTER
@_JSON
def export(
    topic: str, partition: int, file: Path, variable: str | None, cluster: str | None, as_text: bool
) -> None:
    """Write the state of a PARTITION to a FILE, which ends in .json (one entry a line) or .parquet.

    Exit codes: 0 written, 2 no such topic, state, partition or variable, a file that cannot be written, unknown
    cluster or unusable settings, 3 Kafka out of reach, or a right is missing.
    """
    if file.suffix not in {".json", ".parquet"}:
        raise click.UsageError(f"{file} ends in neither .json nor .parquet, which say how it is written.")
    with explained():
        asked = _Asked.of(cluster)
        with asked.read(topic, partition) as contents:
            from muster.consumer.state.export import write_json, write_parquet  # noqa: PLC0415  as above

            names = sorted(contents.variables)
            if not names:
                end(
                    f"partition {partition} of topic {topic!r} has no state yet; the first commit writes it",
                    WRONG,
                )
            if variable is not None and variable not in names:
                end(
                    f"the state of topic {topic!r} has no variable {variable!r}; it has: {', '.join(names)}",
                    WRONG,
                )
            if file.suffix == ".parquet" and variable is None and len(names) != 1:
                end(
                    f"the state of topic {topic!r} has {len(names)} variables, and a Parquet file takes one: name it "
                    f"with --variable ({', '.join(names)})",
                    WRONG,
                )
            try:
                if file.suffix == ".json":
                    count = write_json(contents, file, variable)
                else:
                    count = write_parquet(contents, file, variable or names[0])
            except OSError as error:
                end(f"{file} cannot be written: {error.strerror or error}; name another one", WRONG)
            said = {"cluster": asked.cluster.name, "topic": topic, "partition": partition, **_at(contents)}
    if as_text:
        click.echo(json.dumps({**said, "file": str(file), "entries": count}, indent=2))
        return
    click.echo(
        f"state: {count:,} entries of topic {topic}, partition {partition}, {_place(said)}, are in {file}"
    )


class _Asked:
    """A cluster whose states are asked about: `states` are their partitions by topic."""

    def __init__(self, cluster: ClusterSettings, kafka: KafkaSettings, others: Collection[str]) -> None:
        self.cluster, self._kafka = cluster, kafka
        lister = TopicLister(kafka)
        try:
            self._listed = lister.list_topics().partitions
        finally:
            lister.close()
        begins = changelog_topic(cluster.name, "")
        # 'a.b' has names that begin as those of 'a' do.
        longer = tuple(changelog_topic(name, "") for name in others if name.startswith(f"{cluster.name}."))
        self.states = {
            name.removeprefix(begins): partitions
            for name, partitions in self._listed.items()
            if name.startswith(begins) and not (longer and name.startswith(longer))
        }

    @classmethod
    def of(cls, name: str | None) -> _Asked:
        """Look the cluster up, and list its topics. Raises what `explained` turns into ends."""
        clusters: Clusters = read_clusters()
        cluster = clusters.chosen(name)
        return cls(cluster, CONNECTIONS.kafka(cluster.kafka), {*clusters.clusters, *clusters.errors})

    def partitions(self, topic: str) -> frozenset[int]:
        """Return the partitions of a state, or end the command."""
        if topic not in self.states:
            end(self._none(topic), WRONG)
        return self.states[topic]

    def _none(self, topic: str) -> str:
        have = f"with state: {', '.join(sorted(self.states))}" if self.states else "no topic has state yet"
        hidden = "Kafka hides a topic from users that may not describe it"
        where = f"Kafka at {self._kafka.bootstrap_servers}"
        if (first := self.cluster.state.together(topic)[0]) != topic:
            return f"topic {topic!r} shares the state of {first!r}; ask for that one"
        if topic not in self._listed:
            return f"topic {topic!r} is not at {where}; check the name, and this user's rights ({hidden}); {have}"
        return (
            f"topic {topic!r} has no state in cluster {self.cluster.name!r}: {where} shows no changelog "
            f"{changelog_topic(self.cluster.name, topic)!r}; see 'state' in the cluster's consumers, and this user's "
            f"rights ({hidden}); {have}"
        )

    @contextmanager
    def read(self, topic: str, partition: int) -> Iterator[Contents]:
        """Read the state of a partition."""
        there = self.partitions(topic)
        if partition not in there:
            end(f"topic {topic!r} has the partitions {format_partitions(there)}, and not {partition}", WRONG)
        try:
            from muster.consumer.state.contents import Contents  # noqa: PLC0415  needs the extra `state`
            from muster.consumer.state.errors import StateError  # noqa: PLC0415
        except ImportError as error:
            end(
                f"states cannot be read here: {error}; install muster-kafka[state] and PySpark 4.0 or newer, or ask "
                "where the drivers run",
                WRONG,
            )
        try:
            found = Contents(self._kafka, self.cluster.group_id, self.cluster.name, topic, partition)
        except StateError as error:
            end(str(error), WRONG)
        with closing(found):
            yield found


def _columns(text: str) -> list[tuple[Any, ...]]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not JSON: {error}", param_hint="KEY") from error
    if not isinstance(found, list) or not found:
        raise click.BadParameter(f'{text!r} is no list of columns, such as ["a", 3]', param_hint="KEY")
    return [tuple(found)]


def _no_key(topic: str, key: str, partition: int, usual: int | None, by_rule: bool) -> str:
    nothing = f"partition {partition} of topic {topic!r} has no state of key {key!r}"
    if by_rule:
        return (
            f"{nothing}, and Kafka's default partitioner puts that key there; if the producer uses another one, name "
            "the partition with --partition"
        )
    if usual is None or usual == partition:
        return f"{nothing}; 'muster state export {topic} {partition} FILE' has all its keys"
    return f"{nothing}; Kafka's default partitioner puts that key into partition {usual}: --partition {usual}"


def _at(contents: Contents) -> dict[str, Any]:
    """Return the position, as JSON has it."""
    found = contents.position
    if found is None:
        return {"offset": None, "commit": 0, "seek": "", "processing_time": None, "largest_event_time": None}
    return {
        "offset": _offset(found.places[contents.topic]),
        **(
            {"offsets": {t: _offset(one) for t, one in found.places.items()}} if len(found.places) > 1 else {}
        ),
        "commit": found.seq,
        "seek": found.places[contents.topic].move,
        "processing_time": _when(found.time or None),
        "largest_event_time": _when(found.top),
    }


def _offset(place: Place) -> int | None:
    return None if place.offset < 0 else place.offset


def _place(said: Mapping[str, Any]) -> str:
    return "empty" if not said["commit"] else f"at offset {said['offset']} (commit {said['commit']})"


def _plain(contents: Contents) -> dict[str, Any]:
    keys, size = contents.size()
    variables = {name: one.kind for name, one in contents.variables.items()}
    return {
        "partition": contents.partition,
        "keys": keys,
        "bytes": size,
        **_at(contents),
        "variables": variables,
    }


def _when(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else to_iso(milliseconds / 1000)
