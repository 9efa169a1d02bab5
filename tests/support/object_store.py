"""An S3-compatible object store, built once from Go modules.

VersityGW keeps objects as files. Since version 1.8 it publishes an object of a conditional PUT under a lock, so of
two writers to one new key one succeeds; tests/integration/test_delta_object_store.py shows that first.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import httpx

from devstack.cache import cache_dir, locked, tool
from devstack.command import run_to_end
from devstack.errors import DevstackError
from devstack.progress import step
from devstack.server import Server

VERSION = "v1.8.0"
SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
"""Go's hash of the module, whose own go.sum has those of what it needs."""
KEY, SECRET, REGION = "muster", "of-no-use-elsewhere", "us-east-1"
BUCKET = "lake"


def versitygw() -> Path:
    """The program, which is built if need be: about a minute, once. Raises `DevstackError`."""
    binary = cache_dir() / f"versitygw-{VERSION}"
    with locked("versitygw"):
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = tool("go", "to build an object store for tests", "Go 1.25 or newer (https://go.dev/dl)")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    module = f"github.com/versity/versitygw@{VERSION}"
    with step(f"Building VersityGW {VERSION} from Go modules (once: about a minute)") as progress:
        answer = subprocess.run(
            [go, "mod", "download", "-json", module],
            env=environment,
            cwd=cache_dir(),
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(answer.stdout or "{}")
        if answer.returncode != 0 or found.get("Sum") != SUM:
            raise DevstackError(
                f"{module} with the hash {SUM} could not be downloaded: {answer.stdout}{answer.stderr}"
            )
        partial = binary.with_suffix(".partial")
        command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(partial)]
        run_to_end(
            [*command, "./cmd/versitygw"],
            "Go could not build VersityGW; check the network and 'go version'",
            note=progress.note,
            env=environment,
            cwd=Path(found["Dir"]),
        )
        partial.replace(binary)
        progress.result = "built"


class ObjectStore(Server):
    """An object store with the one bucket `BUCKET`."""

    name = "VersityGW"
    roles: ClassVar[tuple[str, ...]] = ("s3",)

    def prepare(self) -> None:
        """Make the bucket, which is a folder."""
        for folder in (f"objects/{BUCKET}", "metadata"):
            (self.data_dir / folder).mkdir(parents=True, exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        """Return the command line."""
        account = ["--access", KEY, "--secret", SECRET, "--region", REGION]
        serving = ["--port", self.address, "--health", "/health", "--keep-alive", "--quiet"]
        places = ["--sidecar", self.data_dir / "metadata", self.data_dir / "objects"]
        return [versitygw(), *account, *serving, "posix", *places]

    def healthy(self) -> bool:
        """Tell whether it answers."""
        try:
            return httpx.get(f"http://{self.address}/health", timeout=2, trust_env=False).is_success
        except httpx.HTTPError:
            return False


def options(address: str) -> dict[str, str]:
    """`storage_options` for an object store, or a proxy, at `address`."""
    return {
        "AWS_ENDPOINT_URL": f"http://{address}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }


def put_if_absent(connection: http.client.HTTPConnection, key: str, body: bytes) -> int:
    """Write an object unless it is there; return the HTTP status."""
    path = f"/{BUCKET}/{key}"
    headers = signed_put(f"{connection.host}:{connection.port}", path, body, {"if-none-match": "*"})
    connection.request("PUT", path, body, headers)
    response = connection.getresponse()
    response.read()
    return response.status


def signed_put(host: str, path: str, body: bytes, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers of a request to write an object, with `more` of them, signed as S3 asks for."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    content = hashlib.sha256(body).hexdigest()
    headers = {"host": host, **(more or {}), "x-amz-content-sha256": content, "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n{path}\n\n{lines}\n{names}\n{content}"
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        signature = hmac.digest(signature, part.encode(), "sha256")
    credential = f"Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature.hex()}"
    return headers | {"authorization": f"AWS4-HMAC-SHA256 {credential}"}
