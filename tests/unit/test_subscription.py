"""Which topics a cluster reads, where clusters.yaml and several persons say something about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.overrides import TopicOverride
from muster.core.subscription import Subscription
from muster.edges.state_changelog import changelog_topic


def said(selector: str, subscribed: bool, pattern: bool = False) -> TopicOverride:
    return TopicOverride(
        by="ann", at=1.0, why="cost; really", selector=selector, pattern=pattern, subscribed=subscribed
    )


def reads(*decided: TopicOverride, doubt: bool = False) -> Subscription:
    return Subscription(frozenset({"t"}), ("x-.*",), decided, doubt)


@pytest.mark.parametrize("pattern", [".*", "__muster.*", r"__muster\.state\.flights\.t"])
def test_no_pattern_covers_a_changelog(pattern: str) -> None:
    subscription = Subscription(frozenset(), (pattern,), (said(pattern, True, True),))
    assert not subscription.includes(changelog_topic("flights", "t"))


@pytest.mark.parametrize(
    ("decided", "topic", "included"),
    [
        ([], "t", True),
        ([], "x-1", True),
        ([], "y", False),
        ([], "__x-1", False),
        ([said("t", False)], "t", False),
        ([said("y", True)], "y", True),
        ([said("x-1", False)], "x-2", True),
        ([said("x-.*", False, True)], "x-1", False),
        ([said("x-.*", False, True), said("x-1", True)], "x-1", True),
        ([said("y.*", True, True), said("y1", False)], "y1", False),
        ([said("y.*", True, True), said("y1", False)], "y2", True),
        ([said("y.*", True, True), said(".*2", False, True)], "y2", False),
        ([said("y", True), said("y", False)], "y", False),
        ([said(".*", True, True)], "__consumer_offsets", False),
        ([said("__consumer_offsets", True)], "__consumer_offsets", True),
        ([said("y", True, True)], "yy", False),
    ],
)
def test_the_nearest_word_counts(decided: list[TopicOverride], topic: str, included: bool) -> None:
    subscription = reads(*decided)
    assert subscription.includes(topic) is included
    assert subscription.takes_up(topic) is included
    assert bool(subscription.lets_go(topic)) is not included


def test_topic_that_is_let_go_has_its_reason() -> None:
    assert reads(said("t", False)).lets_go("t") == "unsubscribed by ann: cost, really"
    assert (
        reads(said("x-.*", False, True)).lets_go("x-1")
        == "unsubscribed by pattern 'x-.*' by ann: cost, really"
    )
    assert reads().lets_go("y") == "no longer subscribed by name or pattern"
    assert reads(said("t", False)).leaving(["t", "x-1", "y"]).keys() == {"t", "y"}


def test_only_readable_decisions_about_a_topic_apply_in_doubt() -> None:
    subscription = reads(said("y", True), said("x-1", False), doubt=True)
    assert subscription.takes_up("y"), "by its name"
    assert not subscription.takes_up("x-2"), "perhaps somebody unsubscribed it"
    assert not subscription.lets_go("z"), "perhaps somebody subscribed it"
    assert subscription.lets_go("x-1")


def test_the_topics_that_have_to_be_in_kafka() -> None:
    assert reads(said("y", True), said("x-1", True, True)).named() == {"t", "y"}
    assert reads(said("t", False)).named() == set()


SELECTORS = st.sampled_from(["t", "x-1", "x-.*", ".*", "y"])


@given(
    st.lists(st.builds(said, SELECTORS, st.booleans(), st.booleans()), max_size=6),
    st.sampled_from(["t", "x-1", "y", "__y"]),
    st.booleans(),
)
def test_order_does_not_matter_and_a_topic_is_never_both_taken_up_and_let_go(
    decided: list[TopicOverride], topic: str, doubt: bool
) -> None:
    subscription = reads(*decided, doubt=doubt)
    assert subscription.includes(topic) == reads(*reversed(decided), doubt=doubt).includes(topic)
    assert not (subscription.takes_up(topic) and subscription.lets_go(topic))
    if not doubt:
        assert subscription.takes_up(topic) or subscription.lets_go(topic)
