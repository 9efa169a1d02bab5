"""A small HTTP server in a thread: a FastAPI application on a socket that is bound before its port is published."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from muster.settings.connections import StatusTls

log = logging.getLogger(__name__)

RENEWAL_LOOK = 30
"""Seconds between two looks at whether the certificate was renewed."""


class HttpServer:
    """Serves `app` on `host` and `port`; port 0 takes a free one, which is known at once.

    With `tls` it speaks https, with the certificate that the file holds now. Raises OSError naming host and port if
    the address is unavailable, and naming the certificate if it cannot be loaded.
    """

    def __init__(self, name: str, app: FastAPI, host: str, port: int, tls: StatusTls | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno,
                f"{name} cannot listen on {host}:{port}: {error.strerror}; set another 'port' (0 is any)",
            ) from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._scheme = "http" if tls is None else "https"
        self._tls = tls
        self._read_at = self._written_at()
        self._config = config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            ssl_certfile=tls.certfile if tls else None,
            ssl_keyfile=tls.keyfile if tls else None,
            callback_notify=self._renew if tls else None,
            timeout_notify=RENEWAL_LOOK,
        )
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno,
                f"{name}: certificate {config.ssl_certfile} or its key cannot be loaded ({error}); check "
                "'certfile' and 'keyfile' of the cluster's 'status' connection on this machine",
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name=f"muster-{name}", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it answers, for callers on this machine."""
        return f"{self._scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop to answer, waiting at most `timeout` seconds for calls under way."""
        self._server.should_exit = True
        self._thread.join(timeout)

    async def _renew(self) -> None:
        """Show the certificate that is there by now; one that cannot be loaded leaves the one before."""
        written_at = self._written_at()
        if self._tls is None or self._config.ssl is None or written_at == self._read_at:
            return
        self._read_at = written_at
        try:
            # First into a context of its own: a certificate whose key is not there yet would stay in the one in use.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._config.ssl):
                context.load_cert_chain(self._tls.certfile, self._tls.keyfile)
            log.info("%s: renewed certificate %s", self._thread.name, self._tls.certfile)
        except OSError as error:
            log.warning(
                "%s: renewed certificate %s or its key cannot be loaded (%s), the one before stays; correct the file",
                self._thread.name,
                self._tls.certfile,
                error,
            )

    def _written_at(self) -> list[int]:
        files = (self._tls.certfile, self._tls.keyfile) if self._tls is not None else ()
        return [Path(file).stat().st_mtime_ns for file in files if file and Path(file).exists()]
