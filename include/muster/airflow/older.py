"""What older versions of Airflow have otherwise, in one place."""

from __future__ import annotations

from airflow.sdk import Connection

READS_ASYNC = hasattr(Connection, "aextra_dejson")
"""True since 3.3.2, if a trigger can read a connection on the event loop. Before, Airflow's secrets masker waits
for the supervisor there, which fails while another trigger asks something."""
