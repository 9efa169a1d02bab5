"""A multi that only one session sends, and how large it is.

kazoo opens a new session by itself when one has expired, and sends there what it is asked to send. A version that an
earlier session read means nothing then: the node may have been deleted and created again, and versions begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError
from kazoo.protocol.serialization import Transaction

OPERATION_OVERHEAD = 120
"""Bytes of an operation in a multi besides path and data, generously: headers, lengths and ACL."""
NO_SESSION = -1
"""Stands for a session that has expired, while there is no other yet."""


class _OfSession:
    """As kazoo's own requests are. It refuses to be sent by another session than `session`."""

    type: ClassVar[int] = Transaction.type
    deserialize = staticmethod(Transaction.deserialize)

    def __init__(self, client: KazooClient, session: int, operations: Sequence[Any]) -> None:
        self.operations = operations
        self._client = client
        self._session = session

    def serialize(self) -> Any:
        """Write the request's body. kazoo calls this in the thread that sends, so no session begins in between."""
        if session_of(self._client) != self._session:
            raise SessionExpiredError
        return Transaction(self.operations).serialize()


def session_of(client: KazooClient) -> int:
    """Return the number of the client's session, also while the connection is suspended."""
    return client._session_id or NO_SESSION


def size_of(operations: Iterable[Any]) -> int:
    """Count the bytes of a multi, rather too many than too few."""
    return sum(
        OPERATION_OVERHEAD + len(operation.path.encode()) + len(getattr(operation, "data", b""))
        for operation in operations
    )


def multi_async(client: KazooClient, transaction: Any, session: int) -> Any:
    """Send `transaction` in `session` and in no other. The asynchronous result is that of kazoo's `commit_async`."""
    result = client.handler.async_result()
    client._call(_OfSession(client, session, transaction.operations), result)
    return result
