"""Settings of topics that share their state: what is refused before anything is planned."""

from __future__ import annotations

from typing import Any

import pytest

from muster.core.assignors import AssignorError
from muster.core.state_topics import StateTopics, not_co_partitioned
from muster.settings.assignor_choice import load_chosen
from muster.settings.cluster_settings import ClusterSettings

GROUPS = {"name": "co-partitioned", "options": {"groups": [["orders", "payments", "refunds"]]}}


def cluster(state: list[Any], **more: Any) -> ClusterSettings:
    consumers = {"handler": "a.b", "state": state, **more.pop("consumers", {})}
    entry = {
        "consul_service": "s",
        "group_id": "g",
        "topics": ["orders", "payments", "clicks"],
        "assignor": GROUPS,
    }
    return ClusterSettings.model_validate({"name": "c", **entry, **more, "consumers": consumers})


def test_list_in_state_is_topics_that_share_it() -> None:
    state = cluster(["clicks", ["orders", "payments"]]).state
    assert state.together("payments") == ("orders", "payments")
    assert state.shard(("payments", 3)) == (("orders", 3), ("payments", 3))
    assert state.lead(("payments", 3)) == ("orders", 3)
    assert state.together("clicks") == ("clicks",)
    assert [topic for topic in ("orders", "clicks", "other") if state.has(topic)] == ["orders", "clicks"]


@pytest.mark.parametrize(
    ("state", "more", "said"),
    [
        ([["orders"]], {}, "['orders'] are not two topics"),
        ([["orders", "orders"]], {}, "['orders', 'orders'] are not two topics"),
        ([["orders", "payments"], ["clicks", "orders"]], {}, "topic 'orders' is named twice"),
        ([["orders", "visits"]], {}, "topic 'visits' is not one that the cluster reads; add it to 'topics'"),
        (
            [["orders", "payments"]],
            {"consumers": {"handlers": {"pay.*": {"handler": "a.c"}}}},
            "topics 'orders' and 'payments' have different handlers",
        ),
        (
            [["orders", "payments"]],
            {"assignor": "sticky"},
            "assignor 'sticky' may give their partitions to different consumers; take 'co-partitioned' with "
            "'groups: [[orders, payments]]'",
        ),
        (
            [["orders", "payments"]],
            {"assignor": "co-partitioned"},
            "no list of the assignor's 'groups' has all of them; add [orders, payments]",
        ),
        (
            [["orders", "clicks"]],
            {},
            "no list of the assignor's 'groups' has all of them; add [orders, clicks]",
        ),
    ],
)
def test_topics_that_cannot_share_state_are_refused(
    state: list[Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=r"consumers\.state") as refused:
        cluster(state, **more)
    assert said in str(refused.value)


def test_assignor_that_would_split_is_not_chosen() -> None:
    shared = cluster([["orders", "payments"]])
    with pytest.raises(AssignorError, match="share their state, and assignor 'range' may give"):
        load_chosen(shared, "range", {})
    load_chosen(shared, "co-partitioned", {"groups": [["orders", "payments"]]})
    load_chosen(cluster(["orders"]), "range", {})


def test_partition_counts_are_named() -> None:
    assert "of their partitions 'a' has 3, 'b' has 4" in not_co_partitioned({"a": 3, "b": 4})


def test_topic_without_state_shares_none() -> None:
    assert StateTopics().shard(("t", 1)) == (("t", 1),)
