"""Co-partitioned's zones: tasks that had to be given anyway go to consumers where most of their leaders are.

The partitions of one task have leaders of their own. Its zone is the rack that most of them are in, in a tie the
first in alphabetical order. Only tasks of one size that the same consumers may take change places with each other,
and only those without an owner before: so it costs neither balance nor moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, MutableMapping

from muster.core.assignors.tasks import Task
from muster.core.assignors.zones import Racks
from muster.core.model import Consumer


def bring_home(
    owner: MutableMapping[Task, str],
    free: Iterable[tuple[Hashable, Task]],
    racks: Racks,
    consumers: Mapping[str, Consumer],
) -> None:
    """Let tasks of `free`, each with its kind, change places within a kind so that most are in their zone."""
    by_kind: dict[Hashable, list[Task]] = defaultdict(list)
    for kind, task in free:
        by_kind[kind].append(task)
    for tasks in by_kind.values():
        _within(tasks, owner, {task: _zone(task, racks) for task in tasks}, consumers)


def _zone(task: Task, racks: Racks) -> str | None:
    counts = Counter(
        rack for topic in task.topics if (rack := racks.get(topic, {}).get(task.number)) is not None
    )
    return min(counts, key=lambda rack: (-counts[rack], rack), default=None)


def _within(
    tasks: list[Task],
    owner: MutableMapping[Task, str],
    wanted: Mapping[Task, str | None],
    consumers: Mapping[str, Consumer],
) -> None:
    away = [task for task in tasks if wanted[task] is None or consumers[owner[task]].zone != wanted[task]]
    places: dict[str | None, list[str]] = defaultdict(list)
    for task in away:
        places[consumers[owner[task]].zone].append(owner[task])
    left: list[Task] = []
    for task in away:
        zone = wanted[task]
        if zone is not None and places[zone]:
            owner[task] = places[zone].pop(0)
        else:
            left.append(task)
    # Who found no place at home stays where it is if that place is still free, and takes any other one if not.
    homeless = []
    for task in left:
        same = places[consumers[owner[task]].zone]
        if owner[task] in same:
            same.remove(owner[task])
        else:
            homeless.append(task)
    rest = [place for zone in sorted(places, key=lambda zone: zone or "") for place in places[zone]]
    for task, place in zip(homeless, rest, strict=True):
        owner[task] = place
