"""Moments: seconds since the epoch in values, ISO 8601 in UTC in texts."""

from __future__ import annotations

from datetime import UTC, datetime

LAST_MOMENT = 253_370_764_800.0
"""Seconds since the epoch at the end of the year 9998: what can be written and shown in any time zone."""


def to_seconds(moment: datetime) -> float:
    """Return seconds since the epoch; a moment without a time zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def to_iso(seconds: float) -> str:
    """Format seconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
