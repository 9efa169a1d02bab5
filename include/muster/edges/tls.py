"""What a client of Muster's trusts, and shows of itself, in TLS."""

from __future__ import annotations

import ssl

from muster.settings.connections import AirflowApiSettings, ConsulSettings


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


def context_of(settings: ConsulSettings | AirflowApiSettings, who: str) -> ssl.SSLContext:
    """Make the context of a client of `who`, as its connection says. Raises OSError that says what to check."""
    if settings.scheme == "http":
        return no_tls()
    try:
        return client_context(
            settings.ca, verify=settings.verify, certfile=settings.certfile, keyfile=settings.keyfile
        )
    except OSError as error:
        raise OSError(
            f"{who}: CA or client certificate cannot be loaded ({error}); check the connection's ca, certfile and "
            "keyfile"
        ) from error


def no_tls() -> ssl.SSLContext:
    """Make a context that is cheap, for plain HTTP: to load the system's certificates takes time."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
