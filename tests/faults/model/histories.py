"""Short histories, one event a line: what `World` is to do, and its arguments, separated by slashes.

The first line is the assignor, `rebalance_delay` in seconds, the consumer that subscribes to topic u only, and how
commits are made, `fenced` if it does not say.
"""

from __future__ import annotations

from tests.faults.model.world import World


def play(history: str) -> None:
    """Play a history and then the calm after it. Raises `ViolationError`."""
    setting, *events = history.strip().splitlines()
    assignor, delay, only_u, *commits = setting.split("/")
    world = World(assignor, float(delay), only_u, *commits)
    try:
        for event in events:
            world.do(tuple(event.split("/")))
        world.calm()
    finally:
        world.close()


MISTAKES: dict[str, str] = {
    "hand_over_before_the_close_is_confirmed": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
coordinate/first/end
everybody
""",
    "ignore_the_epoch": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/lags
partitions/t/4
partitions/u/4
coordinate/first/end
fault/a/check_fails
checks
coordinate/first/after
fault/a/check_fails
checks
coordinate/first/end
fault/a/lags
zookeeper_round/a/one
zookeeper_round/a/one
zookeeper_round/a/one
zookeeper_round/a/one
""",
    "forget_the_version_check": """
range/8/
start/a
start/b
everybody
everybody
coordinate/first/end
isolate/a/key
coordinate/second/asked/
""",
    "trust_an_empty_list": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
coordinate/first/after
coordinate/second/pause
empty_list/1
coordinate/second/end
coordinate/second/end
everybody
""",
    "give_away_on_an_unreachable_status": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/no_answer
fault/a/slow
coordinate/first/after
coordinate/first/end
everybody
""",
    "give_at_once_what_an_absent_owner_had": """
range/8/
start/a
start/b
everybody
everybody
coordinate/first/end
isolate/a/key
coordinate/second/asked/
""",
    "forget_who_is_closing_when_restarted": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
coordinate/first/after
coordinate/first/end
everybody
""",
    "write_while_consul_is_out_of_reach": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
coordinate/first/pause
consul_away
fault/a/slow
coordinate/first/end
""",
    "place_orphans_without_waiting_for_to_close": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
coordinate/first/after
crash/b
start/c
everybody
coordinate/first/end
everybody
""",
    "report_closed_before_the_commit": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/no_kafka
everybody
start/b
everybody
coordinate/first/end
everybody
""",
    "report_closed_while_a_batch_is_under_way": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/slow
start/b
everybody
coordinate/first/end
everybody
""",
    "take_up_again_before_it_is_closed": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/no_kafka
everybody
fail_query/a
fault/a/no_kafka
fail_query/a
""",
    "begin_before_it_is_claimed": """
sticky/0/
start/a
everybody
fault/a/no_kafka
coordinate/first/end
everything/a
fault/a/no_kafka
fail_query/a
""",
    "forget_to_fence": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
everybody
coordinate/first/end
everybody
everybody
everybody
fault/a/hung
fault/a/no_kafka
work/a
""",
    "commit_what_the_group_is_ahead_of": """
sticky/0//guarded
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
everybody
coordinate/first/end
everybody
everybody
everybody
fault/a/hung
fault/a/no_kafka
work/a
""",
    "take_back_at_once_what_was_refused": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
everybody
coordinate/first/end
everybody
everybody
fault/a/hung
fault/a/no_kafka
fault/a/no_zookeeper
fault/a/no_consul
work/a
work/a
zookeeper_round/a/full
consul_round/a
work/a
""",
    "ignore_pins": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
pin/t/0/b
pin/t/1/b
pin/t/2/b
pin/u/0/a
pin/u/1/a
""",
    "forget_exclusions": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
exclude/a/t
""",
    "touch_what_does_not_move": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
partitions/t/4
coordinate/first/after
coordinate/first/after
zookeeper_round/a/watches
""",
    "take_up_by_what_was_read_before": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
isolate/b/key
consul_round/b
fault/b/lags
everything/b
coordinate/first/end
isolate/b/key
consul_round/b
""",
    "take_up_before_it_is_live": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
crash/a
checks
start/a
zookeeper_round/a/full
""",
    "do_not_wait_for_the_predecessor": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/a
everything/a
everything/a
everything/a
""",
    "report_closed_for_the_predecessor": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
fault/a/slow
start/a
everything/a
coordinate/first/end
""",
    "lose_patience_with_the_predecessor": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/slow
start/a
everything/a
time/9
takeover_round/a
everything/a
everything/a
""",
    "forget_the_predecessor_of_the_predecessor": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/slow
start/a
everything/a
crash/a
start/a
everything/a
everything/a
everything/a
everything/a
""",
    "believe_a_predecessor_that_holds_nothing_now": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
crash/a
start/a
everybody
start/a
everybody
everybody
everything/a
""",
    "seem_gone_while_taking_over": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/a
everything/a
""",
    "go_on_though_isolated": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
isolate/a/key
consul_round/a
""",
    "go_on_though_replaced": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/a
""",
    "balance_in_the_middle_of_a_rebalance": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
fault/a/slow
start/b
everybody
coordinate/first/after
start/c
everybody
coordinate/first/end
""",
    "forget_to_close_what_vanished": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
partitions/t/2
coordinate/first/end
""",
    "delete_partitions_that_others_found": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
partitions/u/1
coordinate/second/before
partitions/u/3
coordinate/first/end
coordinate/second/end
""",
    "rely_on_watches": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
partitions/t/4
coordinate/first/after
coordinate/first/after
zookeeper_round/a/lost
""",
    "forget_an_absent_new_owner": """
sticky/0/
start/a
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
coordinate/first/after
crash/b
""",
}
"""By mutation: what makes it show."""

DEFECTS: dict[str, str] = {
    "a topic stays Starting for ever when old and new owner leave and nobody else subscribes": """
sticky/0/c
start/a
start/c
everybody
coordinate/first/end
everybody
coordinate/first/end
start/b
everybody
everybody
coordinate/first/after
crash/a
crash/b
checks
everybody
coordinate/first/end
coordinate/first/end
start/b
""",
    "a vanished partition of an absent owner is forgotten in one write": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
partitions/t/1
crash/a
""",
    "a coordinator that stood still deletes partitions that were added meanwhile": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
partitions/u/1
coordinate/second/before
partitions/u/3
coordinate/first/end
coordinate/second/end
""",
    "a consumer that Consul forgot while it was isolated takes up partitions before it is live again": """
sticky/0/
start/a
start/b
everybody
coordinate/first/end
everybody
coordinate/first/end
everybody
isolate/a/key
start/a
everybody
everybody
forget/a
start/a/current/new
""",
}
"""What the model found in the project's own code."""
