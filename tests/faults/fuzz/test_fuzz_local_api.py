"""Whatever is sent to the agent's local API or asked of its status page: an answer, never a fault of the agent's own.

What is refused changes nothing: what the consumer holds it still holds, and the next good plan is accepted.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from muster.consumer.local_api import make_local_api
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.protocol import NEXT_PATH
from muster.consumer.status_page import make_status_page
from muster.core.model import TopicAssignment
from muster.settings.connections import KafkaSettings
from tests.faults.fuzz.malformed import mangled, odd_texts
from tests.faults.fuzz.tally import count, examples
from tests.faults.model.process import SETTINGS
from tests.support.claiming import ClaimingAgent

KAFKA = KafkaSettings(config={"bootstrap.servers": "k:9092"})


class Driver:
    """An agent with two partitions, and its pages."""

    def __init__(self, owner: str = "a") -> None:
        self.agent = ClaimingAgent("a")
        owners = {0: owner, 1: owner} if owner else {}
        self.agent.assigned("t", TopicAssignment("k:9092", "g", owners, 3), 5)
        self.token = self.agent.query_started()
        self.api = make_local_api(self.agent, KAFKA, Bounds(1000))
        self.page = make_status_page(self.agent, SETTINGS, list)

    def ask(
        self, app: Any, method: str, path: str, headers: dict[bytes, bytes], body: bytes = b""
    ) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
                return await client.request(method, path, headers=list(headers.items()), content=body)

        return asyncio.run(send())

    def bearer(self) -> dict[bytes, bytes]:
        return {b"authorization": f"Bearer {self.token}".encode(), b"content-type": b"application/json"}


QUESTION: dict[str, Any] = {
    "finished": {},
    "parallelism": 2,
    "gone": [{"topic": "t", "partition": 0, "from": 1, "to": 2, "deleted": False}],
}


@examples(150)
@given(mangled(QUESTION))
def test_any_question_of_the_connector(body: bytes) -> None:
    count("local API")
    driver = Driver("")  # so no Kafka is asked, not to warm up either
    answer = driver.ask(driver.api, "POST", NEXT_PATH, driver.bearer(), body)
    assert answer.status_code in {200, 409, 422}, answer.text[:500]
    good = driver.ask(driver.api, "POST", NEXT_PATH, driver.bearer(), json.dumps(QUESTION).encode())
    assert good.status_code == 200
    assert good.json()["offset"] == {}
    driver.ask(driver.page, "GET", "/status", {})
    driver.ask(driver.page, "GET", "/metrics", {})


headers = st.one_of(odd_texts.map(lambda t: t.encode("latin-1", "replace")), st.binary(max_size=40)).filter(
    lambda value: not set(value) & {0, 10, 13}
)


@examples(150)
@given(
    headers,
    st.sampled_from(("GET", "POST", "DELETE")),
    st.sampled_from((NEXT_PATH, "/status", "/x")),
)
def test_local_api_answers_any_token(value: bytes, method: str, path: str) -> None:
    count("local API")
    driver = Driver()
    sent = {
        b"authorization": value if len(value) % 2 else b"Bearer " + value,
        b"content-type": b"application/json",
    }
    answer = driver.ask(driver.api, method, path, sent, json.dumps(QUESTION).encode())
    assert answer.status_code in {401, 404, 405}, answer.text[:500]
    assert driver.agent.offer(driver.token).asked == 1, "without the token nothing is offered"
