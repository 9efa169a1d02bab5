"""A real Prometheus, and the questions that tests ask it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from devstack.server import Server


class Prometheus(Server):
    """Runs `program` with the configuration `config`, which is a file."""

    name = "Prometheus"
    roles = ("http",)

    def __init__(self, program: Path, config: Path, data_dir: Path) -> None:
        super().__init__(data_dir, guarded=True)
        self._program = program
        self._config = config

    def prepare(self) -> None:
        """The test has written the configuration."""

    def command(self) -> Sequence[str | Path]:
        return [
            self._program,
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.data_dir / 'tsdb'}",
            f"--web.listen-address={self.address}",
            "--query.lookback-delta=30s",
            "--log.level=warn",
        ]

    def healthy(self) -> bool:
        try:
            return self._get("/-/ready").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The result of an instant query: `metric` and `value` of each series."""
        answer = self._get("/api/v1/query", query=query)
        assert answer.status_code == httpx.codes.OK, f"{query}: {answer.text}"
        data = answer.json()["data"]
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        return list(data["result"])

    def value(self, query: str) -> float | None:
        """The value of the one series that a query gives, None if it gives none."""
        found = self.ask(query)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def series(self, selector: str) -> list[dict[str, str]]:
        """The labels of all series that a selector finds."""
        return list(self._get("/api/v1/series", **{"match[]": selector}).json()["data"])

    def targets(self) -> list[dict[str, Any]]:
        """What is scraped."""
        return list(self._get("/api/v1/targets", state="active").json()["data"]["activeTargets"])

    def _get(self, path: str, **params: str) -> httpx.Response:
        return httpx.get(f"http://{self.address}{path}", params=params, timeout=10, trust_env=False)
