"""How many random histories ended well, counted when all is Stable again."""

from __future__ import annotations

from collections import Counter

PLAYED: Counter[str] = Counter()
"""By the kind of commits that the history was played with."""
