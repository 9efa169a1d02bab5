"""Znodes with data of any kind."""

from __future__ import annotations

ASSIGNMENT = {
    "bootstrap.servers": "k:9092",
    "group.id": "g",
    "assignments": {"0": "a", "1": "b"},
    "epoch": 7,
    "standbys": {"0": ["b"]},
}


STATE = {
    "state": "Closing",
    "toStart": {"b": [1], "a": [0]},
    "toClose": {"a": [1]},
    "epoch": 7,
    "since": "2026-01-01T00:00:00.000+00:00",
    "reason": "consumer b joined",
    "missing": {"gone": "2026-01-01T00:00:00.000+00:00"},
    "returned": {"back": {"at": "2026-01-01T00:00:00.000+00:00", "absent": 1.5}},
}
