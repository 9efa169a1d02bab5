"""The times of a shrunk week, in seconds. Whatever expires does so within two shrunk days."""

from __future__ import annotations

import os

LONG = os.environ.get("MUSTER_TEST_WEEK") == "long"
"""`make test-week`: seven days, and Spark jobs in cluster alpha. Else one day, and all consumers light."""
DAYS = 7 if LONG else 1
DAY = 210.0 if LONG else 180.0

EXPIRY = 120.0 if LONG else 60.0
"""The brokers' seven days: they forget an idle transactional id, an idle producer and an offset. Kafka takes whole
minutes."""
RENEWAL = EXPIRY / 3
"""The consumers' day: an offset that stands is committed again."""
REAPING = 60.0
"""The hour after which Consul forgets a consumer whose check fails; Consul takes no less than a minute."""
CERTIFICATE = 360.0 if LONG else 120.0
"""For so long a certificate is valid. Each is renewed when a third of that is over. Consul's agent reads it by a
reload, which begins the time until its reaping again, so renewals are further apart than that."""
LOGIN = 60.0
"""For so long a login to Kafka counts; a client has to log in again within it."""
RETENTION = 2 * DAY
"""Kafka deletes records, and coordinators delete the history, after so long."""
SEGMENT = DAY / 3
"""Kafka begins a new segment of each log after so long."""
STUCK_AFTER = 12.0
