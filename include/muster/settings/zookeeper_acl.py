"""ACLs of ZooKeeper nodes as people write them: as `zkCli.sh setAcl` takes them.

`auth::cdrwa,sasl:flights:r` is a list of `scheme:id:permissions`. The scheme `auth` (without an id) is the user that
creates the node. Permissions are letters: `c` create children, `d` delete children, `r` read, `w` write, `a` set the
ACL. See https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

from dataclasses import dataclass

PERMISSIONS = "cdrwa"
SCHEMES = ("world", "auth", "digest", "sasl", "ip", "x509")


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Who (`scheme` and `id`) may do what (`permissions`, letters of `PERMISSIONS`)."""

    scheme: str
    id: str
    permissions: str


def parse_acl(text: str) -> tuple[AclEntry, ...]:
    """Read `scheme:id:permissions,...`. Raises ValueError saying what is wrong and what is allowed."""
    return tuple(_entry(part.strip()) for part in text.split(","))


def _entry(text: str) -> AclEntry:
    scheme, _, rest = text.partition(":")
    who, separator, permissions = rest.rpartition(":")
    if not separator:
        raise ValueError(f"{text!r} is no ACL entry; write scheme:id:permissions, such as 'sasl:flights:r'")
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is unknown; there are {', '.join(SCHEMES)}")
    if not permissions or set(permissions) - set(PERMISSIONS):
        raise ValueError(f"permissions {permissions!r} of {text!r}: expected letters of {PERMISSIONS!r}")
    if scheme == "auth" and who:
        raise ValueError(
            f"{text!r}: scheme 'auth' is the user that creates the node and takes no id; write 'auth::...'"
        )
    if scheme == "world" and who != "anyone":
        raise ValueError(f"{text!r}: scheme 'world' has the one id 'anyone'")
    if scheme not in {"auth", "world"} and not who:
        raise ValueError(f"{text!r}: scheme {scheme!r} needs an id")
    return AclEntry(scheme, who, permissions)
