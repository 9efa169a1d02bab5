"""Writing dead letters back to the topics that they came from, each once (`muster.edges.dead_letters`).

The dead-letter topic is read to its end, for a preview as for the command. Both have `Selection` decide which letters
are written back, and name the others in the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen

if TYPE_CHECKING:
    from muster.commands.target import Target
    from muster.core.model import TopicPartition
    from muster.edges.dead_letters import Letter, Takes

AT_ONCE = 200
"""Letters that are written back in one transaction."""
MOST = 1000
"""Letters that are written back by one command, the oldest first."""


SHOWN = 5
"""Letters that are named with a reason."""


class NoLettersError(CommandError):
    """No letter is to be written back; `left_out` names those that cannot be, in lines."""

    def __init__(self, cluster: str, left_out: tuple[str, ...]) -> None:
        text = f"cluster {cluster!r} has no such dead letter to write back; 'muster deadletters' lists them"
        super().__init__("; ".join((text, *left_out)))
        self.left_out = left_out


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are meant: of a `topic` (None for all), of `partitions` (none for all), with `error` in their
    error, and written at or after `since` (seconds since the epoch)."""

    topic: str | None = None
    partitions: frozenset[int] = frozenset()
    error: str = ""
    since: float = 0.0

    def takes(self, letter: Letter) -> bool:
        """Return whether a letter is meant."""
        said = letter.record.said
        return (
            self.topic in {None, said("topic")}
            and (not self.partitions or said("partition") in map(str, self.partitions))
            and self.error in said("error")
            and letter.at >= self.since
        )


class Selection:
    """Selects which of a cluster's `wanted` letters can be written back, to topic `to` or to where they came from.

    It notes the others. Raises `CommandError` if nothing can be written to `to`, else as `Target.dead_letters`.

    `places` are those in the dead-letter topic (`PARTITION/OFFSET`) that alone are meant; `again` means also letters
    that were written back before.
    """

    def __init__(
        self,
        target: Target,
        wanted: Wanted,
        places: Collection[str] = (),
        again: bool = False,
        to: str | None = None,
    ) -> None:
        self._target = target
        self._wanted = wanted
        self._places = places
        self._again = again
        self._to = to
        self._partitions = target.kafka_topics()
        self._left_out: dict[str, list[str]] = {}
        self._takes: dict[str, Takes | None] = {}
        self._large: dict[str, list[str]] = {}
        self.before: Counter[TopicPartition] = Counter()
        """Letters that were written back before, by where they came from."""
        if to == target.cluster.dead_letter_topic:
            raise CommandError(f"topic {to!r} has the dead letters themselves; name another one with --to")
        if to is not None and to not in self._partitions:
            raise CommandError(f"{self._no_topic(to)}; create it, or name another one with --to")

    def letters(self) -> Iterator[tuple[TopicPartition, Letter]]:
        """Read the letters that can be written back, the oldest first, with where they came from."""
        unseen = dict.fromkeys(self._places)
        for letter in filter(self._wanted.takes, self._target.dead_letters()):
            place, origin = place_of(letter), letter.origin
            if self._places and place not in unseen:
                continue
            unseen.pop(place, None)
            why = self._why_not(letter, origin)
            if origin is None or why:
                self.leave_out(letter, why)
            elif letter.replayed and not self._again:
                self.before[origin] += 1
            else:
                self._note_size(letter, self._to or origin[0])
                yield origin, letter
        for place in unseen:
            self._left_out.setdefault("there is no such letter", []).append(place)

    def leave_out(self, letter: Letter, why: str) -> None:
        """Note that a letter cannot be written back."""
        self._left_out.setdefault(why, []).append(place_of(letter))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The letters that cannot be written back, in a line for each reason."""
        return tuple(f"{_named(places, 'left out')}: {why}" for why, places in self._left_out.items())

    @property
    def large(self) -> tuple[str, ...]:
        """The letters that may be larger than their topics allow, in a line a topic: that depends on what compression
        makes of them."""
        return tuple(
            f"{_named(places, 'of these')}: larger than max.message.bytes of topic {topic!r} allows, unless "
            "compressed; what Kafka refuses is left out"
            for topic, places in self._large.items()
        )

    def _note_size(self, letter: Letter, topic: str) -> None:
        takes = self._what_takes(topic)
        if takes is not None and letter.record.size > takes.largest:
            self._large.setdefault(topic, []).append(place_of(letter))

    def _what_takes(self, topic: str) -> Takes | None:
        if topic not in self._takes:
            self._takes[topic] = self._target.what_takes(topic)
        return self._takes[topic]

    def _why_not(self, letter: Letter, origin: TopicPartition | None) -> str:
        """Return why a letter cannot be written back, '' if it can."""
        if origin is None:
            return f"no dead letter, but another record in topic {letter.record.topic!r}"
        if (cluster := letter.record.said("cluster")) != self._target.cluster.name:
            return f"a letter of cluster {cluster!r}, which writes it back: 'muster deadletters replay --cluster'"
        topic, partition = origin
        elsewhere = "'muster deadletters replay --to TOPIC' writes it to another topic"
        if self._to is None and topic not in self._partitions:
            return f"{self._no_topic(topic)}; {elsewhere}"
        if self._to is None and partition not in self._partitions[topic]:
            return f"topic {topic!r} has no partition {partition}; {elsewhere}"
        takes = self._what_takes(self._to or topic)
        if letter.record.key is None and takes is not None and takes.compacted:
            return (
                f"topic {(self._to or topic)!r} is compacted, and takes no record without a key; {elsewhere}"
            )
        return ""

    def _no_topic(self, topic: str) -> str:
        return f"Kafka has no topic {topic!r} that this user may see"


def replay_dead_letters(
    target: Target, actor: Actor, topic: str, partitions: frozenset[int], error: str
) -> CommandOutcome:
    """Write letters back: those of a topic, of partitions, with a text in their error; without these all.

    Raises as `replay`.
    """
    return replay(Wanted(topic or None, partitions, error), target, actor)


def foresee_replay(
    target: Target, _actor: Actor, topic: str, partitions: frozenset[int], error: str
) -> Foreseen:
    """Return what `foresee` does of the letters that `replay_dead_letters` writes back."""
    return foresee(Wanted(topic or None, partitions, error), target)


def foresee(
    wanted: Wanted,
    target: Target,
    *,
    places: Collection[str] = (),
    again: bool = False,
    to: str | None = None,
    most: int = MOST,
) -> Foreseen:
    """Return how many letters `replay` would write back, and change nothing; a replay under way is not ended.

    Raises as `Selection`.
    """
    selection = Selection(target, wanted, places, again, to)
    left: Counter[TopicPartition] = Counter(origin for origin, _ in selection.letters())
    before = selection.before
    lines = tuple(
        f"topic {of}, partition {number}: {left[of, number]} letter(s) to write back, {before[of, number]} written "
        "back before"
        for of, number in sorted(left.keys() | before.keys())
    )
    topics = _by_topic(left)
    values = {"letters": topics, "before": _by_topic(before), "left_out": selection.left_out}
    summary = (*selection.left_out, *selection.large, *_summary(topics, before.total(), most))
    return Foreseen(lines, summary, values)


def replay(
    wanted: Wanted,
    target: Target,
    actor: Actor,
    *,
    places: Collection[str] = (),
    again: bool = False,
    to: str | None = None,
    most: int = MOST,
) -> CommandOutcome:
    """Write the letters back that a `Selection` has, at most so many.

    Raises `NoLettersError` if there is none, and as `Selection` or `KafkaError` if nothing was written; after some
    were, the outcome has the failure.
    """
    selection = Selection(target, wanted, places, again, to)
    writer = target.replay()  # before the letters are read: what another one had under way is over then
    written: Counter[str] = Counter()
    failure = None
    try:
        for some in _batched(letter for _, letter in islice(selection.letters(), most)):
            refused = writer.write(some, to)
            for one in some:
                if (why := refused.get(one.record.place)) is not None:
                    selection.leave_out(one, why)
                else:
                    written[to or one.record.said("topic")] += 1
    except BaseException as error:
        if not written:
            raise
        failure = error
    if not written:
        raise NoLettersError(target.cluster.name, selection.left_out)
    return _outcome(target.cluster.name, actor, written, selection.left_out, failure)


def _named(places: list[str], what: str) -> str:
    """Say how many letters are `what`, and name the first of them."""
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return f"{len(places)} {what} ({', '.join(places[:SHOWN])}{more})"


def place_of(letter: Letter) -> str:
    """Return where a letter lies in the dead-letter topic, `PARTITION/OFFSET`."""
    return f"{letter.record.partition}/{letter.record.offset}"


def _outcome(
    cluster: str,
    actor: Actor,
    written: Counter[str],
    left_out: tuple[str, ...],
    failure: BaseException | None,
) -> CommandOutcome:
    topics = dict(sorted(written.items()))
    lines = (
        f"{written.total()} dead letter(s) of cluster {cluster} are written back: {actor}",
        *(f"{number} record(s) written to topic {topic}" for topic, number in topics.items()),
        *left_out,
    )
    values = {"topic": ", ".join(topics), "letters": written.total(), "topics": topics}
    if left_out:
        values["left_out"] = left_out
    return CommandOutcome(lines, values, failure=failure)


def _summary(topics: Mapping[str, int], before: int, most: int) -> tuple[str, ...]:
    """Return how many letters are written back, by topic, and how many were before."""
    total = sum(topics.values())
    named = ", ".join(f"{topic} {number}" for topic, number in topics.items())
    more = [f"the oldest {most} at once; give the command again for the others"] if total > most else []
    return (
        f"together {total} letter(s) are written back ({named or 'none'}), {before} were written back before",
        *more,
    )


def _by_topic(letters: Mapping[TopicPartition, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (topic, _), number in letters.items():
        found[topic] += number
    return dict(sorted(found.items()))


def _batched(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    rest = iter(letters)
    while some := list(islice(rest, AT_ONCE)):
        yield some
