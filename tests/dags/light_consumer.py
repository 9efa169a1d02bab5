"""A Spark driver without a query: registers in Consul, answers its check, and leaves when it is asked to.

It stands for Muster's own application where a test is about the life of the job and not about records. Its behaviour
comes as `handler_options`: `exit_after` (seconds), `fail` (exit before registering, with that code), `deaf` (no stop
request is heeded), `stubborn` (no SIGTERM either).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from muster.settings.consumer import ConsumerSettings

settings: dict[str, Any] = ConsumerSettings.from_environment().model_dump()
options: dict[str, Any] = settings["handler_options"]
consul = f"http://{settings['consul']['host']}:{settings['consul']['port']}/v1"
stop = threading.Event()


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer = {"consumer": settings["consumer"], "incarnation": settings["incarnation"], "topics": {}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


request = f"{consul}/kv/muster/{settings['cluster']}/stop/{settings['consumer']}"


def asked_to_stop() -> bool:
    found = httpx.get(f"{request}?raw")
    if found.status_code != httpx.codes.OK or options.get("deaf"):
        return False
    asked = found.json()["incarnation"] == settings["incarnation"]
    if asked:
        print(f"asked to stop by {found.json()['who']}", flush=True)
    return bool(asked)


signal.signal(signal.SIGTERM, signal.SIG_IGN if options.get("stubborn") else lambda *_: stop.set())
print(f"light consumer {settings['consumer']} begins", flush=True)
if options.get("fail"):
    print("light consumer cannot go on: this is the reason", flush=True)
    sys.exit(options["fail"])
page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=page.serve_forever, daemon=True).start()
httpx.put(
    f"{consul}/agent/service/register",
    json={
        "ID": settings["consumer"],
        "Name": settings["consul_service"],
        "Address": "127.0.0.1",
        "Port": page.server_port,
        "Meta": {
            **settings["metadata"],
            "incarnation": settings["incarnation"],
            "pid": str(os.getpid()),
            "host": socket.gethostname(),
        },
        "Check": {
            "HTTP": f"http://127.0.0.1:{page.server_port}/status",
            "Interval": "1s",
            "Timeout": "1s",
            "Status": "passing",
        },
    },
).raise_for_status()
print(f"light consumer {settings['consumer']} is registered", flush=True)
began = time.monotonic()
while not stop.wait(0.2) and not asked_to_stop():
    if time.monotonic() - began > options.get("exit_after", 1e9):
        sys.exit("light consumer dies, as it was told")
httpx.put(f"{consul}/agent/service/deregister/{settings['consumer']}").raise_for_status()
httpx.delete(request)
print(f"light consumer {settings['consumer']} leaves in order", flush=True)
