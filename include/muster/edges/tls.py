"""What a client of Muster's trusts, and shows of itself, in TLS."""

from __future__ import annotations

import ssl


def client_context(
    ca: str | None,
    *,
    verify: bool = True,
    check_hostname: bool = True,
    certfile: str | None = None,
    keyfile: str | None = None,
) -> ssl.SSLContext:
    """Make the context of a client. `ca` is a file in PEM; None are the authorities of the system.

    `certfile` and `keyfile` are the client's own certificate. Raises OSError for files that cannot be loaded.
    """
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = check_hostname and verify
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    if certfile:
        context.load_cert_chain(certfile, keyfile)
    return context


def no_tls() -> ssl.SSLContext:
    """Make a context that is cheap, for plain HTTP: to load the system's certificates takes time."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
