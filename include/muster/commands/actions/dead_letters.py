"""Writing dead letters back to the topics that they came from, each once (`muster.edges.dead_letters`).

The dead-letter topic is read to its end, for a preview as for the command.
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
    from muster.edges.dead_letters import Letter

AT_ONCE = 200
"""Letters that are written back in one transaction."""
MOST = 1000
"""Letters that are written back by one command, the oldest first."""


_Place = tuple[str, str]
"""A topic, and the number of a partition as the letters have it."""


class NoLettersError(CommandError):
    """No letter is to be written back."""


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
    """Return how many letters a replay would write back, and change nothing; a replay under way is not ended.

    Raises as `Target.dead_letters`.
    """
    wanted = Wanted(topic or None, partitions, error)
    left: Counter[_Place] = Counter()
    done: Counter[_Place] = Counter()
    for letter in filter(wanted.takes, target.dead_letters()):
        counted = done if letter.replayed else left
        counted[letter.record.said("topic"), letter.record.said("partition")] += 1
    lines = tuple(
        f"topic {of}, partition {number}: {left[of, number]} letter(s) to write back, {done[of, number]} written "
        "back before"
        for of, number in sorted(left.keys() | done.keys(), key=lambda each: (each[0], len(each[1]), each[1]))
    )
    topics = _by_topic(left)
    return Foreseen(lines, _summary(topics, done.total()), {"letters": topics, "before": _by_topic(done)})


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
    """Write the `wanted` letters back, the oldest first: each to where it came from, or to topic `to`.

    `places` are those in the dead-letter topic (`PARTITION/OFFSET`) that alone are meant; `again` means also letters
    that were written back before. Raises `NoLettersError` if there is none, and `ConnectionSettingsError` or
    `KafkaError` if nothing was written; after some were, the outcome has the failure.
    """
    writer = target.replay()  # before the letters are read: what another one had under way is over then
    meant = (
        one
        for one in filter(wanted.takes, target.dead_letters())
        if (again or not one.replayed) and (not places or place_of(one) in places)
    )
    written: Counter[str] = Counter()
    failure = None
    try:
        for some in _batched(islice(meant, most)):
            writer.write(some, to)
            written.update(to or one.record.said("topic") for one in some)
    except BaseException as error:
        if not written:
            raise
        failure = error
    if not written:
        raise NoLettersError(
            f"cluster {target.cluster.name!r} has no such dead letter to write back; 'muster deadletters' lists them"
        )
    return _outcome(target.cluster.name, actor, written, failure)


def place_of(letter: Letter) -> str:
    """Return where a letter lies in the dead-letter topic, `PARTITION/OFFSET`."""
    return f"{letter.record.partition}/{letter.record.offset}"


def _outcome(
    cluster: str, actor: Actor, written: Counter[str], failure: BaseException | None
) -> CommandOutcome:
    topics = dict(sorted(written.items()))
    lines = (
        f"{written.total()} dead letter(s) of cluster {cluster} are written back: {actor}",
        *(f"{number} record(s) written to topic {topic}" for topic, number in topics.items()),
    )
    values = {"topic": ", ".join(topics), "letters": written.total(), "topics": topics}
    return CommandOutcome(lines, values, failure=failure)


def _summary(topics: Mapping[str, int], before: int) -> tuple[str, ...]:
    """Return how many letters are written back, by topic, and how many were before."""
    total = sum(topics.values())
    named = ", ".join(f"{topic} {number}" for topic, number in topics.items())
    more = [f"the oldest {MOST} at once; give the command again for the others"] if total > MOST else []
    return (
        f"together {total} letter(s) are written back ({named or 'none'}), {before} were written back before",
        *more,
    )


def _by_topic(letters: Mapping[_Place, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (topic, _), number in letters.items():
        found[topic] += number
    return dict(sorted(found.items()))


def _batched(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    rest = iter(letters)
    while some := list(islice(rest, AT_ONCE)):
        yield some
