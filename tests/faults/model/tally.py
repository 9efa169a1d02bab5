"""How many random histories ended well, counted when all is Stable again, and the seed that they follow from."""

from __future__ import annotations

import os
import secrets
from collections import Counter

VARIABLE = "MUSTER_SEED"
"""The environment variable that has the histories of an earlier run played again."""

# Processes that share the tests inherit it from the first one, so all play the same histories.
SEED = int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(2**32))))

REPLAY = f"{VARIABLE}={SEED} pytest tests/faults/test_model.py"

MOVES, CONFLICTS, SEEKS = "planned moves", "conflicts of writers", "seeks carried out"
"""What a history has to have for the promises on hand-overs, on two coordinators, and on seeks to be in question."""

SAW: Counter[str] = Counter()
"""How many histories had each of these."""

PLAYED: Counter[str] = Counter()
"""By the kind of commits that the history was played with."""
