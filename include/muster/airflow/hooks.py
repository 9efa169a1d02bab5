"""Airflow hooks of the connection types `zookeeper` and `consul`: they make a connection's settings, and test it.

with TopicStore(ZooKeeperHook().get_conn(), "flights", read_only=True) as store:
    ...
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from muster.airflow.connections import CONNECTIONS
from muster.doctor.consul import consul_answers
from muster.doctor.findings import Check, CheckOutcome, Part
from muster.doctor.zookeeper import zookeeper_answers
from muster.settings.connection_parsing import ConnectionSettingsError
from muster.settings.connections import ConsulSettings, ZooKeeperSettings

LONGEST = 5.0
"""Seconds that a call to a server may take in a test of a connection."""
_TESTED = CONNECTIONS.within(LONGEST)


class ZooKeeperHook(BaseHook):
    """A connection to ZooKeeper."""

    conn_name_attr = "zookeeper_conn_id"
    default_conn_name = "muster_zookeeper"
    conn_type = "zookeeper"
    hook_name = "ZooKeeper"

    def __init__(self, zookeeper_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.zookeeper_conn_id = zookeeper_conn_id

    def get_conn(self) -> ZooKeeperSettings:
        """Return the connection's settings. Raises `ConnectionSettingsError`."""
        return CONNECTIONS.zookeeper(self.zookeeper_conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a server accepts the user, and what it says."""
        try:
            return _said(zookeeper_answers(Part("zookeeper"), _TESTED.zookeeper(self.zookeeper_conn_id)))
        except ConnectionSettingsError as error:
            return False, str(error)


class ConsulHook(BaseHook):
    """A connection to an agent of Consul."""

    conn_name_attr = "consul_conn_id"
    default_conn_name = "muster_consul"
    conn_type = "consul"
    hook_name = "Consul"

    def __init__(self, consul_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.consul_conn_id = consul_conn_id

    def get_conn(self) -> ConsulSettings:
        """Return the connection's settings. Raises `ConnectionSettingsError`."""
        return CONNECTIONS.consul(self.consul_conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the agent answers, its servers have a leader and the token is valid."""
        try:
            checks = consul_answers(Part("consul"), _TESTED.consul(self.consul_conn_id))
        except ConnectionSettingsError as error:
            return False, str(error)
        wrong = [check for check in checks if check.outcome is not CheckOutcome.OK]
        return _said((wrong or checks)[0])


def _said(check: Check) -> tuple[bool, str]:
    well = check.outcome is CheckOutcome.OK
    return well, check.found if well else f"{check.found}; {check.step}"
