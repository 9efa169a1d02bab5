"""What a Kafka listener speaks: TLS or not, and its SASL mechanisms.

A broker hangs up on a client that speaks another protocol than its listener, and librdkafka then says only that the
transport failed. Here the listener is asked for the SASL mechanism '?' (Kafka's `SaslHandshake`): its refusal names
the mechanisms that it has, none if it has no SASL. No login is tried, and nothing is sent that is secret.
"""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

_SASL_HANDSHAKE, _VERSION, _CORRELATION = 17, 1, 1
_NO_CLIENT = -1
_LARGEST = 10_000
"""Bytes of an answer; a TLS alert, read as an answer, would claim to have more."""
_PORT = 9092


@dataclass(frozen=True, slots=True)
class Listener:
    """What a listener speaks; without SASL it has no `mechanisms`."""

    tls: bool
    mechanisms: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """Its `security.protocol`."""
        return ("SASL_" if self.mechanisms else "") + ("SSL" if self.tls else "PLAINTEXT")


def ask_listener(server: str, timeout: float) -> Listener | None:
    """Ask the listener at `server`, `[protocol://]host[:port]`; None if there is no answer that can be understood.

    Each step (two connections, TLS, two answers) takes at most `timeout` seconds.
    """
    for tls in (False, True):
        try:
            with _connect(server, timeout, tls) as connection:
                return Listener(tls, _mechanisms(connection))
        except (OSError, ValueError):
            continue
    return None


def _connect(server: str, timeout: float, tls: bool) -> socket.socket:
    parts = urlsplit(server if "://" in server else f"//{server}")
    plain = socket.create_connection((parts.hostname, parts.port or _PORT), timeout)
    if not tls:
        return plain
    context = ssl.create_default_context()
    # Only the protocol is looked at, so any certificate will do.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=parts.hostname)


def _mechanisms(connection: socket.socket) -> tuple[str, ...]:
    request = struct.pack("!hhihh1s", _SASL_HANDSHAKE, _VERSION, _CORRELATION, _NO_CLIENT, 1, b"?")
    connection.sendall(struct.pack("!i", len(request)) + request)
    with connection.makefile("rb") as answer:
        size, correlation = _numbers("!ii", answer)
        if correlation != _CORRELATION or size > _LARGEST:
            raise ValueError("this is no answer of Kafka's")
        _, count = _numbers("!hi", answer)
        return tuple(answer.read(*_numbers("!h", answer)).decode() for _ in range(count))


def _numbers(layout: str, answer: BinaryIO) -> tuple[int, ...]:
    found = answer.read(struct.calcsize(layout))
    if len(found) != struct.calcsize(layout):
        raise ValueError("the answer ends too early")
    return struct.unpack(layout, found)
