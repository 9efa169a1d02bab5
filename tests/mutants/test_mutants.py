"""Which mutants are drawn, and which are known to do the same as the original."""

from __future__ import annotations

from functools import cache

import pytest

from tests.mutants.drawing import FILES, Equivalent, Mutant, draw, equivalents, mutants
from tests.support.only_long import only_long

every = cache(mutants)


def test_seed_draws_the_same_mutants_again() -> None:
    first, again, other = ([mutant.change for mutant in draw(seed, 5, FILES[2:3])] for seed in (1, 1, 2))
    assert first == again != other


@only_long
@pytest.mark.parametrize("file", FILES)
def test_mutants_are_in_functions_and_leave_texts_alone(file: str) -> None:
    found = every(file)
    assert len(found) > 50
    for mutant in found[:: len(found) // 20]:
        before, after = mutant.change
        compile(mutant.source, file, "exec")
        assert mutant.function
        assert before != after
        assert not before.startswith(('"', 'f"', "log."))


@pytest.mark.parametrize("entry", equivalents(), ids=lambda entry: f"{entry.function}: {entry.changed}")
def test_entry_is_one_mutant_with_a_reason(entry: Equivalent) -> None:
    assert entry.why
    assert len(_found(entry)) == 1, "it is no mutant any more: take it off the list, or correct its lines"


def _found(entry: Equivalent) -> list[Mutant]:
    of_function = [
        m for m in every(entry.file) if (m.function, m.operator) == (entry.function, entry.operator)
    ]
    return [mutant for mutant in of_function if entry.is_of(mutant)]
