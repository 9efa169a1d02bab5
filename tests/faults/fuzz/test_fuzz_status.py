"""Whatever a status page answers: it is a status, or a reason why it is none; no answer costs another consumer's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.consumer import predecessor
from muster.core.model import Consumer, ConsumerStatus, State
from muster.core.wire import WireError, parse_status
from muster.edges.status import StatusFailure, poll_statuses
from tests.faults.fuzz.cluster import Cluster
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import ODD_TEXTS, mangled, mangled_values, odd_texts
from tests.faults.fuzz.tally import count, examples

STATUS: dict[str, Any] = {
    "consumer": "x",
    "incarnation": "one",
    "epochs": True,
    "leaving": False,
    "topics": {
        "good": {
            "running": [0, 1],
            "starting": [],
            "closing": [2],
            "standby": [3],
            "epoch": 7,
            "offsets": {"0": {"lag": 3, "rate": 1.5, "batch": 400.0}},
            "failing": {"1": {"offset": 30, "error": "gone", "parked": True, "lost": 40}},
            "losses": {
                "0": [{"from": 3, "to": 7, "records": 4, "reason": "retention", "at": "2026-11-22T07:00:00Z"}]
            },
        }
    },
}
GOOD = json.dumps(STATUS).encode()


def response(body: bytes, head: str = "HTTP/1.1 200 OK", *headers: str) -> bytes:
    return (
        "\r\n".join([head, *headers, f"Content-Length: {len(body)}", "", ""]).encode("latin-1", "replace")
        + body
    )


@st.composite
def responses(draw: st.DrawFn) -> bytes:  # noqa: PLR0911  one for each kind
    """An HTTP response, or something in its place."""
    how = draw(
        st.sampled_from(("body", "body", "status", "length", "chunks", "encoding", "headers", "cut", "any"))
    )
    body = draw(mangled(STATUS))[:20_000]
    if how == "body":
        return response(body)
    if how == "status":
        head = draw(
            st.sampled_from(
                ("HTTP/1.1 500 x", "HTTP/1.1 302 x", "HTTP/1.1 999 x", "HTTP/9 200 OK", "HTTP/1.1 401 x")
            )
        )
        return response(GOOD, head, "Location: http://127.0.0.1:1/")
    if how == "length":
        length = draw(st.sampled_from(("-1", "0", "5", "9" * 30, "x", "1e3", "5, 6")))
        return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode() + GOOD
    if how == "chunks":
        size = draw(st.sampled_from(("ffffffff", "-1", "g", "", "0", "5", "1" * 40)))
        return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n".encode() + body
    if how == "encoding":
        name = draw(st.sampled_from(("gzip", "deflate", "br", "zstd", "identity", "x", "gzip, gzip")))
        return response(GOOD, "HTTP/1.1 200 OK", f"Content-Encoding: {name}")
    if how == "headers":
        header = draw(
            st.sampled_from(
                (
                    ": x",
                    "no colon",
                    "A" * 70_000,
                    "A: " + "b" * 70_000,
                    "\x00: y",
                    "Content-Type: text/plain; charset=x",
                )
            )
        )
        return response(GOOD, "HTTP/1.1 200 OK", header)
    if how == "cut":
        whole = response(GOOD)
        return whole[: draw(st.integers(0, len(whole) - 1))]
    return draw(st.binary(max_size=80))


class Pages:
    """One listener; what it answers is found by the number in the request's Host port: each has a port of its own."""

    def __init__(self, number: int) -> None:
        self.sockets = [socket.create_server(("127.0.0.1", 0), backlog=16) for _ in range(number)]
        self.ports = [each.getsockname()[1] for each in self.sockets]
        self.answers = [b""] * number
        for place in range(number):
            threading.Thread(target=self._serve, args=(place,), daemon=True).start()

    def _serve(self, place: int) -> None:
        while True:
            try:
                connection, _ = self.sockets[place].accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(4096)
                    connection.sendall(self.answers[place])
                except OSError:
                    continue

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    pages = Pages(12)
    yield pages
    pages.close()


def test_no_answer_costs_another(pages: Pages) -> None:
    # Twelve real connections an example, one of them always good.
    @examples(60)
    @given(st.lists(responses(), min_size=11, max_size=11))
    def ask(answers: list[bytes]) -> None:
        pages.answers[:] = [response(GOOD), *answers]
        consumers = [Consumer("x", "127.0.0.1", pages.ports[0])]
        consumers += [Consumer(f"x{n}", "127.0.0.1", port) for n, port in enumerate(pages.ports[1:], 1)]
        found = poll_statuses(consumers, timeout=5.0)
        assert isinstance(found["x"], ConsumerStatus)
        for number in range(1, len(pages.ports)):
            count("status answer")
            failure = found[f"x{number}"]
            # Every document is about x, so none can be taken for another consumer's.
            assert isinstance(failure, StatusFailure)
            assert f"127.0.0.1:{pages.ports[number]}" in failure.reason
            assert len(failure.reason) < 2_000

    ask()


addresses = st.one_of(
    st.sampled_from((*ODD_TEXTS, "a" * 70 + ".b", "a..b", "[::1", "u@h", "h/x?y", "h#")), st.text(max_size=9)
)


@examples(60)
@given(
    st.lists(st.tuples(addresses, st.sampled_from((-1, 0, 65536, 99_999, 10**30))), min_size=4, max_size=4)
)
def test_strange_addresses_are_reported_and_not_asked(places: list[tuple[str, int]]) -> None:
    consumers = [Consumer(f"x{number}", address, port) for number, (address, port) in enumerate(places)]
    for consumer, found in poll_statuses(consumers, timeout=2.0).items():
        count("Consul entry")
        assert isinstance(found, StatusFailure), consumer
        assert "registered" in found.reason
    for address, port in places:
        asked = predecessor.ask(predecessor.Predecessor("i", address, port))
        assert isinstance(asked, StatusFailure) and not asked.refused


@examples(1000)
@given(mangled(STATUS))
def test_a_status_is_read_as_it_says_or_refused(body: bytes) -> None:
    count("status answer")
    try:
        read = parse_status(body, "http://h:1/status")
    except WireError as error:
        explains(str(error), "http://h:1/status")
        return
    for status in read.topics.values():
        assert all(type(p) is int and 0 <= p < 2**31 for p in status.held | status.standby)
        assert all(load.lag is None or load.lag >= 0 for load in status.loads.values())


@examples(150)
@given(st.lists(mangled_values(STATUS), min_size=4, max_size=4), odd_texts)
def test_consumer_with_malformed_answers_holds_up_only_its_own_partitions(
    bodies: list[Any], incarnation: str
) -> None:
    cluster = Cluster({"good": 3, "theirs": 2}, good=("good",))
    cluster.join("x", {"topics": "theirs"})
    said = iter(bodies)
    usual = cluster.answer

    def answer(consumer: str) -> ConsumerStatus | StatusFailure:
        body = next(said, None)
        if consumer != "x" or body is None:
            return usual(consumer)
        count("status answer")
        try:
            return parse_status(json.dumps(body).encode(), "http://h:1/status")
        except WireError as error:
            return StatusFailure(consumer, str(error))

    cluster.answer = answer
    cluster.settles()
    # When it has come to its senses, its own topic does too.
    said = iter(())
    cluster.good = ("good", "theirs")
    cluster.settles()
    assert cluster.snapshot("theirs").state.state is State.STABLE
