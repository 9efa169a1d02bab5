"""`poll_statuses` against real HTTP servers, good and bad ones."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from muster.core.model import Consumer, ConsumerStatus, TopicStatus
from muster.edges.status import LARGEST_ANSWER, StatusFailure, poll_statuses
from tests.support.http_pages import Page, Pages, Request


def status(consumer: str = "one", **more: object) -> bytes:
    topics = {"flights": {"running": [0, 1], "starting": [], "closing": [2]}}
    return json.dumps({"consumer": consumer, "incarnation": "i", "topics": topics} | more).encode()


def at(pages: Pages, consumer: str = "one") -> Consumer:
    return Consumer(consumer, "127.0.0.1", pages.port)


def serve(page: Page) -> Pages:
    return Pages(lambda _: page)


def failure(page: Page, timeout: float = 2.0) -> str:
    with serve(page) as pages:
        answer = poll_statuses([at(pages)], timeout)["one"]
    assert isinstance(answer, StatusFailure), answer
    assert answer.consumer == "one"
    return answer.reason


@contextmanager
def frozen() -> Iterator[int]:
    """A port that takes connections and says nothing, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield int(listening.getsockname()[1])


def test_a_status_is_what_the_consumer_says() -> None:
    with serve(Page(status())) as pages:
        assert poll_statuses([at(pages)], 2.0) == {
            "one": ConsumerStatus(
                "one", "i", {"flights": TopicStatus(running=frozenset({0, 1}), closing=frozenset({2}))}
            )
        }
        assert [request.path for request in pages.requests] == ["/status"]


def test_poll_of_no_consumers_is_empty() -> None:
    assert poll_statuses([], 2.0) == {}


def test_another_consumers_answer_is_a_failure() -> None:
    assert "answers consumer two, not one" in failure(Page(status("two")))


def test_answer_of_another_cluster_is_a_failure() -> None:
    page = Page(status(cluster="running"))
    with serve(page) as pages:
        found = poll_statuses([at(pages)], 2.0, cluster="renamed")["one"]
        assert isinstance(found, StatusFailure)
        assert "one of cluster 'running', not of 'renamed'; stop it" in found.reason
        assert isinstance(poll_statuses([at(pages)], 2.0, cluster="running")["one"], ConsumerStatus)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page(b"<html>"), "not understood"),
        (Page(b""), "not understood"),
        (Page(b"[1, 2]"), "not understood"),
        (Page(b'{"consumer": "one"}'), "not understood"),
        (Page(b"\xff\xfe\x00"), "not understood"),
        (Page(b"[" * 100_000), "not understood"),
        (Page(b"oops", 500), "answered 500"),
        (Page(b"", 302, {"Location": "http://example.invalid/"}), "answered 302"),
        (Page(status(topics={"no topic!": {}})), "not understood"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_with_the_reason(page: Page, reason: str) -> None:
    assert reason in failure(page)


def test_a_huge_answer_is_cut_off() -> None:
    began = time.monotonic()
    huge = Page(b"x" * 1_000_000, parts=1000)
    assert f"more than {LARGEST_ANSWER} bytes" in failure(huge, timeout=10.0)
    assert time.monotonic() - began < 10.0


def test_a_body_that_bursts_when_unpacked_is_cut_off() -> None:
    bomb = gzip.compress(b"0" * 200_000_000, 1)
    assert f"more than {LARGEST_ANSWER} bytes" in failure(
        Page(bomb, headers={"Content-Encoding": "gzip"}), 10.0
    )


def test_endless_slow_body_ends_at_the_deadline() -> None:
    began = time.monotonic()
    # Each part comes soon enough for a time-out between bytes; the deadline is for all of it.
    assert "did not answer within 0.5 s" in failure(Page(b" ", drip=0.1, parts=1000), timeout=0.5)
    assert time.monotonic() - began < 6.0


def test_refused_connection_and_missing_address_are_failures() -> None:
    with frozen() as port:
        pass
    answers = poll_statuses([Consumer("one", "127.0.0.1", port), Consumer("two")], 2.0)
    assert isinstance(answers["one"], StatusFailure)
    assert "is out of reach" in answers["one"].reason
    assert isinstance(answers["two"], StatusFailure)
    assert "without an address" in answers["two"].reason


def test_frozen_consumers_hold_up_no_other_and_the_deadline_is_common() -> None:
    def answer(request: Request) -> Page:
        return Page(status(request.headers["host"].partition(":")[0]))

    with Pages(lambda _: Page(status("c0"))) as pages, frozen() as port:
        # 300 that are frozen, among them one that answers.
        consumers = [Consumer(f"x{n}", "127.0.0.1", port) for n in range(300)]
        consumers.insert(150, at(pages, "c0"))
        began = time.monotonic()
        answers = poll_statuses(consumers, 20.0)
        took = time.monotonic() - began
    assert took < 300, "one after the other takes longer"
    assert isinstance(answers["c0"], ConsumerStatus)
    late = [a for a in answers.values() if isinstance(a, StatusFailure)]
    assert len(late) == 300
    assert all("did not answer within" in found.reason for found in late)


def test_more_consumers_than_can_be_asked_at_once() -> None:
    with Pages(lambda _: Page(status("c7"))) as pages:
        answers = poll_statuses([at(pages, f"c{n}") for n in range(1200)], 120.0)
    assert len(answers) == 1200
    assert isinstance(answers["c7"], ConsumerStatus)
    wrong = [a.reason for a in answers.values() if isinstance(a, StatusFailure)]
    assert len(wrong) == 1199
    assert all("answers consumer c7, not" in reason for reason in wrong)


def test_a_proxy_for_the_outside_world_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serve(Page(status())) as pages:
        assert isinstance(poll_statuses([at(pages)], 2.0)["one"], ConsumerStatus)
