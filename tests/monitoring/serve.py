"""Serves what Airflow's API server has at `/muster/metrics`, with the database of the Airflow that the environment
names, until its standard input ends. Prints its port."""

from __future__ import annotations

import sys

from airflow import settings
from fastapi import FastAPI

from muster.consumer.http_server import HttpServer
from muster.monitoring.routes import router

settings.initialize()
muster = FastAPI()
muster.include_router(router)
app = FastAPI()
app.mount("/muster", muster)
server = HttpServer("metrics", app, "127.0.0.1", 0)
server.start()
print(server.port, flush=True)
sys.stdin.read()
