"""`make screenshots`: the pictures of the dashboard in the README, from a real stack with consumers at work.

The stack is started for them and stopped at the end. What is shown has happened: a consumer is isolated and restored,
a partition is pinned, by the page's own buttons.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import click
import httpx
from PIL import Image

from devstack.chromium import DESKTOP, PHONE, Browser
from devstack.progress import step
from devstack.showcase import CLUSTER, CONSUMERS, Showcase

IMAGES = Path(__file__).resolve().parents[1] / "images"
PATIENCE = 180.0
"""Seconds for a rebalance, on a machine that is busy."""
STARTING = 600.0
"""Seconds for the consumers to start, which is a Spark each."""
HIGH = 860
"""CSS pixels of a picture."""
NOTED = """const api = `/api/v2/dags/muster_coordinator__${args[0]}/dagRuns?limit=100&order_by=-run_after`;
const runs = (await (await fetch(api)).json()).dag_runs; return runs.find((one) => one.note)?.dag_run_id ?? ''"""
"""The id of a cluster's newest coordinator run that has a note; '' if there is none."""
PINNED = 2
"""Partitions that are pinned."""
TALL = 1600
"""CSS pixels that have the whole matrix in sight."""


def log_in(browser: Browser, url: str, user: str, password: str) -> None:
    """Log in to the Airflow at `url` by its token, as its own page keeps it. Raises `httpx.HTTPError` if refused."""
    form = {"username": user, "password": password}
    answer = httpx.post(
        f"{url}/auth/token", json=form, timeout=60, trust_env=False
    )  # the first one may be slow
    answer.raise_for_status()
    browser.driver.get(f"{url}/muster/")  # a cookie can only be set where one is
    browser.driver.add_cookie({"name": "_token", "value": answer.json()["access_token"], "path": "/"})


def pull(browser: Browser, button: str, reason: str, **fields: str) -> None:
    """Press the button with this text or name, fill in the dialog and confirm; returns when it is done."""

    def pressed() -> bool:
        named = browser.all(f'button[aria-label="{button}"]') or browser.all("button")
        fits = [one for one in named if button in {one.get_attribute("aria-label"), one.text}]
        if fits:
            fits[0].click()
        return bool(fits)

    browser.eventually(pressed, 30, f"a button {button!r}; the page says: {browser.text()[:1000]}")
    browser.one("dialog[open]")
    for name, value in fields.items():
        field = browser.one(f'dialog [name="{name}"]')
        field.clear()
        field.send_keys(value)
    browser.one("dialog textarea").send_keys(reason)
    browser.click("dialog button[type=submit]")
    browser.eventually(lambda: not browser.all("dialog"), 30, f"{button}: the dialog closes")


def running(browser: Browser) -> dict[str, int]:
    """Count the partitions that run with each consumer, as far as the matrix on the page shows them."""
    cells = [str(cell.get_attribute("aria-label")) for cell in browser.all(".m-cell.is-running")]
    return dict(Counter(label.split(", ", 1)[1].split(":", 1)[0] for label in cells))


class Photographer:
    """Goes through the pages of one cluster and keeps pictures of them in `folder`."""

    def __init__(self, browser: Browser, url: str, folder: Path) -> None:
        self.browser = browser
        self.url = url
        self.page = f"{url}/muster/#/clusters/{CLUSTER}"
        self.folder = folder

    def prepare(self) -> None:
        """Have something happen that is worth a look, and be there when it does."""
        browser = self.browser
        browser.size((DESKTOP[0], TALL))
        self._settled(lambda: len(running(browser)) == CONSUMERS, "every consumer has partitions", STARTING)
        browser.open(f"{self.page}/topics/flights")
        pull(browser, "Pin…", "close to its cache", partitions=f"0-{PINNED - 1}", consumer=f"{CLUSTER}-2")
        to = f'.m-cell.is-running.pinned[aria-label*="{CLUSTER}-2: running, pinned"]'
        self._settled(lambda: len(browser.all(to)) == PINNED, "what is pinned runs where it should")
        browser.open(f"{self.page}/consumers")
        pull(browser, f"Isolate {CLUSTER}-3", "its disk is failing")
        self._settled(lambda: f"{CLUSTER}-3" not in running(browser), "the isolated one has nothing")
        browser.open(f"{self.page}/consumers")
        pull(browser, f"Restore {CLUSTER}-3", "disk replaced")
        self._under_way()
        browser.size((DESKTOP[0], TALL))
        self._settled(lambda: f"{CLUSTER}-3" in running(browser), "the restored one has partitions again")

    def take(self) -> None:
        """Take every picture of what stands still."""
        self._shot("overview-light", "", self._matrix)
        self._shot("overview-dark", "", self._matrix, dark=True)
        self._shot("overview-phone", "", self._matrix, phone=True)
        self._shot("consumers-light", "/consumers", lambda: self.browser.one("table.data .share"), height=380)
        self._shot("timeline-light", "/timeline", lambda: self.browser.one(".happening"), height=780)
        self._shot("what-if-light", f"/what-if?without={CLUSTER}-1", lambda: self.browser.one(".shares"))
        self._airflow()

    def _under_way(self) -> None:
        """Photograph a rebalance while it lasts."""
        browser = self.browser
        browser.size((DESKTOP[0], HIGH))
        browser.open(self.page)
        other = ".m-cell.is-closing, .m-cell.is-starting"
        back = f"{CLUSTER}-3"
        browser.eventually(
            lambda: browser.all(other) or back in running(browser), PATIENCE, "a rebalance, or its end"
        )
        self._keep("rebalancing-light")

    def _airflow(self) -> None:
        """Photograph Airflow's own page of the newest run that did something; its grid marks runs with a note."""
        browser = self.browser
        browser.size((DESKTOP[0], HIGH))
        browser.dark(False)
        dag = f"{self.url}/dags/muster_coordinator__{CLUSTER}"
        browser.open(f"{dag}/runs")
        run = browser.eventually(lambda: browser.js(NOTED, CLUSTER), 60, "a run with a note")
        browser.open(f"{dag}/runs/{quote(run, safe='')}")
        browser.eventually(lambda: "advance_state" in browser.text(), 60, "the tasks of the run")
        self._keep("airflow-run")

    def _shot(
        self,
        name: str,
        page: str,
        ready: Callable[[], object],
        *,
        dark: bool = False,
        phone: bool = False,
        height: int = HIGH,
    ) -> None:
        self.browser.size(PHONE if phone else (DESKTOP[0], height), 1.5 if phone else 1)
        self.browser.dark(dark)
        self.browser.open(f"{self.page}{page}")
        ready()
        self._keep(name)

    def _keep(self, name: str) -> None:
        """Keep it as a picture of 256 colours, which takes a third of the space and looks the same."""
        path = self.browser.shot(self.folder / f"dashboard-{name}.png")
        with Image.open(path) as shot:
            small = shot.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)

    def _matrix(self) -> None:
        self.browser.one(".m-cell.is-running")

    def _settled(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait until the page says that all is stable, with every partition running, and `condition` holds."""
        self.browser.open(self.page)

        def well() -> bool:
            shown = [str(one.get_attribute("data-state")) for one in self.browser.all(".state-filter")]
            return shown == ["R"] and "Stable for" in self.browser.text() and condition()

        self.browser.eventually(well, patience, what)


@click.command()
@click.option("--url", default="", help="An Airflow with the showcase on it; without one a stack is started.")
@click.option("--password", default="", help="Of its user admin.")
@click.option("--folder", type=click.Path(path_type=Path), default=IMAGES, show_default=True)
def main(url: str, password: str, folder: Path) -> None:
    """Make the pictures again."""
    if url:
        _photograph(url, password, folder)
        return
    with tempfile.TemporaryDirectory(prefix="muster-showcase-") as place, Showcase(Path(place)) as showcase:
        _photograph(showcase.stack.airflow.url, showcase.password(), folder)


def _photograph(url: str, password: str, folder: Path) -> None:
    with (
        step("Pictures of the dashboard") as progress,
        tempfile.TemporaryDirectory(prefix="muster-chromium-") as profile,
    ):
        browser = Browser(Path(profile))
        try:
            log_in(browser, url, "admin", password)
            photographer = Photographer(browser, url, folder)
            photographer.prepare()
            photographer.take()
        finally:
            browser.close()
        progress.result = f"in {folder}"


if __name__ == "__main__":
    main()
