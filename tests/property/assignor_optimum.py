"""The exact optimum of small cases, found in ways that share nothing with the assignors.

A value is (sum of partitions² / weight over all consumers, partitions moved that could have stayed), and smaller is
better. `optimum` turns the case into an assignment problem, one row a partition and one column a seat of a
consumer, and solves it by the Hungarian method; `optimum_by_trying` tries every assignment there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

from muster.core.model import Assignment
from tests.support.assignor_cases import Case, loads, may_stay, moves

Pins = Mapping[tuple[str, int], str]

_UNIT = 6  # a multiple of every 1 / weight in use, so that costs are whole numbers
_PER_LOAD = 10**3
_FORBIDDEN = 10**9


def value(case: Case, assignment: Assignment) -> tuple[Fraction, int]:
    balance = sum(
        Fraction(load * load) / Fraction(case.consumers[consumer].weight)
        for consumer, load in loads(assignment, case.consumers).items()
    )
    return Fraction(balance), moves(case, assignment)


def optimum(case: Case, pins: Pins | None = None) -> tuple[Fraction, int]:
    """The best value with the pins, which must be possible, obeyed."""
    rows = _takeable(case)
    staying = may_stay(case)
    columns = [(consumer, seat) for consumer in case.consumers for seat in range(len(rows))]

    def cost(row: tuple[str, int], column: tuple[str, int]) -> int:
        consumer, seat = column
        if not case.consumers[consumer].subscribes(row[0]) or (pins or {}).get(row, consumer) != consumer:
            return _FORBIDDEN
        load = Fraction((2 * seat + 1) * _UNIT) / Fraction(case.consumers[consumer].weight)
        return int(load) * _PER_LOAD + (staying.get(row, consumer) != consumer)

    total = _hungarian([[cost(row, column) for column in columns] for row in rows])
    return Fraction(total // _PER_LOAD, _UNIT), total % _PER_LOAD


def optimum_by_trying(case: Case, pins: Pins | None = None) -> tuple[Fraction, int]:
    rows = _takeable(case)
    takers = [
        [c for c in case.consumers if case.consumers[c].subscribes(row[0]) and (pins or {}).get(row, c) == c]
        for row in rows
    ]
    best = None
    for choice in product(*takers):
        assignment: dict[str, dict[int, str]] = {topic: {} for topic in case.topics}
        for (topic, partition), consumer in zip(rows, choice, strict=True):
            assignment[topic][partition] = consumer
        found = value(case, assignment)
        best = found if best is None else min(best, found)
    assert best is not None
    return best


def _takeable(case: Case) -> list[tuple[str, int]]:
    return [
        (topic, partition)
        for topic in sorted(case.topics)
        if any(consumer.subscribes(topic) for consumer in case.consumers.values())
        for partition in sorted(case.topics[topic])
    ]


def _hungarian(costs: list[list[int]]) -> int:
    """The least sum with one column for every row; there are at least as many columns as rows."""
    if not costs:
        return 0
    width = len(costs[0])
    row_price, column_price = [0] * len(costs), [0] * width
    row_of: list[int | None] = [None] * width
    for new_row in range(len(costs)):
        slack = [0] * width
        came_from: list[int | None] = [None] * width
        done: list[int] = []
        waiting = set(range(width))
        row, via = new_row, None
        for column in waiting:
            slack[column] = costs[row][column] - row_price[row] - column_price[column]
        while True:
            column = min(waiting, key=lambda c: (slack[c], c))
            step = slack[column]
            row_price[new_row] += step
            for other in done:
                assigned = row_of[other]
                assert assigned is not None
                row_price[assigned] += step
                column_price[other] -= step
            for other in waiting:
                slack[other] -= step
            waiting.remove(column)
            done.append(column)
            owner = row_of[column]
            if owner is None:
                break
            row, via = owner, column
            for other in waiting:
                reduced = costs[row][other] - row_price[row] - column_price[other]
                if reduced < slack[other]:
                    slack[other], came_from[other] = reduced, via
        back: int | None = column
        while back is not None:
            before = came_from[back]
            row_of[back] = new_row if before is None else row_of[before]
            back = before
    return sum(costs[row][column] for column, row in enumerate(row_of) if row is not None)
