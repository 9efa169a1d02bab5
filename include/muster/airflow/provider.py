"""What Airflow reads of this package as a provider: the connection types `zookeeper` and `consul`, with their forms.

Every process of Airflow may read it, so it imports nothing. The fields of the forms are the keys of a connection's
extra in `muster.settings.connection_parsing`.
"""

from __future__ import annotations

from typing import Any


def _field(label: str, kind: str = "string", description: str = "", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


_TLS_FILE = "Path on the machines that use the connection"

_ZOOKEEPER = {
    "use_ssl": _field("TLS", "boolean"),
    "ca": _field("CA file", description=_TLS_FILE),
    "certfile": _field("Client certificate file", description=_TLS_FILE),
    "keyfile": _field("Client key file", description=_TLS_FILE),
    "keyfile_password": _field("Password of the key file", format="password"),
    "verify_certs": _field("Verify certificates", "boolean", default=True),
    "check_hostname": _field("Verify the host name", "boolean", default=True),
    "sasl_mechanism": _field("SASL mechanism", description="DIGEST-MD5 or GSSAPI"),
    "auth_scheme": _field("Authentication scheme", description="digest: ZooKeeper's own, instead of SASL"),
    "acl": _field("ACL of new nodes", description="As zkCli.sh setAcl takes it: auth::cdrwa,sasl:flights:r"),
    "session_timeout": _field("Session timeout", "number", "Seconds; 10 by default"),
    "operation_timeout": _field("Operation timeout", "number", "Seconds; 10 by default"),
    "jute_maxbuffer": _field(
        "Largest request", "number", "jute.maxbuffer of the servers; 1048575 by default"
    ),
}

_CONSUL = {
    "datacenter": _field("Datacenter", description="The agent's own by default"),
    "namespace": _field("Namespace", description="Consul Enterprise; the token's own by default"),
    "partition": _field("Admin partition", description="Consul Enterprise; the agent's own by default"),
    "verify": _field("Verify certificates", "boolean", default=True),
    "ca": _field("CA file", description=_TLS_FILE),
    "certfile": _field("Client certificate file", description=_TLS_FILE),
    "keyfile": _field("Client key file", description=_TLS_FILE),
    "timeout": _field("Timeout", "number", "Seconds for a call; 5 by default"),
}


def get_provider_info() -> dict[str, Any]:
    """Return what the entry point `apache_airflow_provider` asks for."""
    return {
        "package-name": "muster-kafka",
        "name": "Muster",
        "description": "An external coordinator for Kafka consumption",
        "connection-types": [
            {
                "connection-type": "zookeeper",
                "hook-class-name": "muster.airflow.hooks.ZooKeeperHook",
                "hook-name": "ZooKeeper",
                "conn-fields": _ZOOKEEPER,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "extra"],
                    "relabeling": {"host": "Hosts", "login": "User"},
                    "placeholders": {"host": "h1:2181,h2:2181,h3:2181/chroot"},
                },
            },
            {
                "connection-type": "consul",
                "hook-class-name": "muster.airflow.hooks.ConsulHook",
                "hook-name": "Consul",
                "conn-fields": _CONSUL,
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "extra"],
                    "relabeling": {"schema": "Scheme", "password": "ACL token"},
                    "placeholders": {"host": "127.0.0.1", "port": "8500", "schema": "http"},
                },
            },
        ],
    }
