"""Serves at `/muster` what Airflow's API server serves there, with the database of the Airflow that the environment
names, until its standard input ends. Prints its port."""

from __future__ import annotations

import sys

from airflow import settings
from fastapi import FastAPI

from muster.airflow.dashboard import airflow_dashboard
from muster.consumer.http_server import HttpServer

settings.initialize()
app = FastAPI()
app.mount("/muster", airflow_dashboard())
server = HttpServer("metrics", app, "127.0.0.1", 0)
server.start()
print(server.port, flush=True)
sys.stdin.read()
