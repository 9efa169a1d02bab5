"""Short histories, one event a line: a method of `Model` and its arguments, separated by slashes.

The first line may name the assignor, `rebalance_delay` in seconds, the consumer that subscribes to topic u only, and
how commits are made; `SETTING` applies otherwise. Some lines stand for several events: `round` for one of everything,
`joins/c` for the start of c and the rebalance that it causes, `settled/a/b` for those after which a and b own all.
"""

from __future__ import annotations

from tests.faults.model import flow_mutations, state_mutations
from tests.faults.model.world import ASSIGNORS, Event, Model

SETTING = "sticky/0/"


def play(history: str) -> None:
    """Play a history and then the calm after it. Raises `ViolationError`."""
    lines = history.strip().splitlines()
    setting = lines.pop(0) if lines[0].partition("/")[0] in ASSIGNORS else SETTING
    assignor, delay, only_u, *commits = setting.split("/")
    world = Model(assignor, float(delay), only_u, *commits)
    try:
        for line in lines:
            for event in _events(*line.split("/")):
                world.do(event)
        world.calm()
    finally:
        world.close()


def _events(name: str, *arguments: str) -> list[Event]:
    """Return the events of a line."""
    everybody: Event = ("everybody",)
    one_round: list[Event] = [everybody, ("coordinate", "first", "end")]
    match name:
        case "round":
            return one_round
        case "joins":
            return [("start", *arguments), everybody, *one_round]
        case "settled":
            return [("start", consumer) for consumer in arguments] + 2 * one_round
        case _:
            return [(name, *arguments)]


FORGOTTEN_AFTER_HANDOVER = """
settled/a
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
round
everybody
everybody
everybody
forget_producers
fault/a/hung
fault/a/no_kafka
work/a
work/a
work/a
"""
OFFSETS_DELETED_BEFORE_THE_END = """
sticky/0//guarded
settled/a
everybody
pause_consumption/all
round
everybody
delete_offsets/t/all
stop/a
everybody
everybody
everybody
"""

COMMIT_AFTER_HANDOVER = """
settled/a
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
round
everybody
everybody
everybody
fault/a/hung
fault/a/no_kafka
work/a
"""
"""Consumer a hangs with a batch, loses its partitions, and then commits the batch."""

GIVEN_WHILE_LEAVING = """
settled/a/b/c
round
everybody
pin/t/0/b
fault/a/slow
fault/b/slow
coordinate/first/after
coordinate/first/after
zookeeper_round/a/full
stop/b
everything/b
coordinate/first/after
coordinate/first/after
fault/a/slow
work/a
"""
"""Up to a write that gives a partition to a consumer that is about to leave."""
RESTORED_DURING_REBALANCE = """
settled/a/b
everybody
joins/c
restore/4
joins/a/current/new/A
"""
"""ZooKeeper is restored from before c joined, and a is started again."""

GAP = """
settled/a
fail_on_data_loss
everything/a
retention/t/0
everything/a
everything/a
accept_losses
everything/a
"""
"""Kafka deletes records of a partition before a reads them, and a person accepts that."""

REFUSED_WHILE_REPLACED = """
settled/a
stick/a
everything/a
time/9
everything/a
fault/a/slow_claims
time/1
everything/a
fault/a/hung
start/b
round
fault/a/hung
zookeeper_round/a/full
time/9
work/a
"""
"""A producer of a is stuck, and b gets its partition while the initialisation of its replacement is under way."""

MISTAKES: dict[str, str] = (
    {
        "hand_over_before_the_close_is_confirmed": """
settled/a
start/b
everybody
fault/a/slow
coordinate/first/end
everybody
""",
        "ignore_the_epoch": """
settled/a/b
fault/a/lags
partitions/t/4
partitions/u/4
coordinate/first/end
fault/a/check_fails
checks
coordinate/first/end
time/6
coordinate/first/after
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
        "write_what_an_earlier_session_read": """
start/a
everybody
coordinate/first/before
coordinate/first/before
coordinate/first/before
coordinate/first/before
coordinate/first/before
time/31
delete_node/t/both
coordinate/second/before
coordinate/second/before
coordinate/second/before
coordinate/second/before
coordinate/first/end
""",
        "forget_the_version_check": """
settled/a
start/b
everybody
everybody
coordinate/first/before
coordinate/second/end
everybody
coordinate/second/end
coordinate/first/after
""",
        "trust_an_empty_list": """
settled/a
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
settled/a
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
joins/b
isolate/a/key
coordinate/second/end
""",
        "forget_who_is_closing_when_restarted": """
failover/0/
settled/a
start/b
everybody
fault/a/slow
coordinate/first/after
coordinate/first/end
everybody
""",
        "write_while_consul_is_out_of_reach": """
settled/a
start/b
everybody
fault/a/slow
coordinate/first/pause
consul_away
fault/a/slow
coordinate/first/end
""",
        "place_orphans_without_waiting_for_to_close": """
load-aware/0/
settled/a
start/b
everybody
fault/a/slow
coordinate/first/after
crash/b
start/c
round
everybody
""",
        "report_closed_before_the_commit": """
settled/a
fault/a/no_kafka
everybody
start/b
round
everybody
""",
        "report_closed_while_a_batch_is_under_way": """
settled/a
fault/a/slow
start/b
round
everybody
""",
        "take_up_again_before_it_is_closed": """
settled/a
fault/a/no_kafka
everybody
fail_query/a
fault/a/no_kafka
fail_query/a
""",
        "begin_before_it_is_claimed": """
start/a
everybody
fault/a/no_kafka
coordinate/first/end
everything/a
fault/a/no_kafka
fail_query/a
""",
        "go_on_behind_a_gap_unasked": GAP,
        "forget_to_ask_about_a_gap": GAP,
        "forget_to_fence": COMMIT_AFTER_HANDOVER,
        "replace_stuck_producers_unasked": """
settled/a
everybody
fault/a/hung
checks
start/b
round
everybody
everybody
stick/a
fault/a/hung
work/a
time/9
work/a
""",
        "abort_what_kafka_has_forgotten": FORGOTTEN_AFTER_HANDOVER,
        "replace_forgotten_producers_unasked": FORGOTTEN_AFTER_HANDOVER,
        "refuse_what_kafka_has_forgotten": """
settled/a
everybody
forget_producers
everybody
""",
        "try_again_what_kafka_has_forgotten": """
settled/a
everybody
forget_producers
everybody
""",
        "close_without_a_last_look": OFFSETS_DELETED_BEFORE_THE_END,
        "take_a_deleted_offset_for_a_deleted_topic": OFFSETS_DELETED_BEFORE_THE_END,
        "begin_again_without_the_offset_that_was_deleted": """
settled/a
everybody
delete_offsets/t/all
fail_query/a
""",
        "read_on_whatever_becomes_of_commits": """
settled/a
fault/a/no_consul
stick/a
everything/a
time/16
everything/a
time/16
everything/a
time/31
everything/a
""",
        "repeat_a_claim_by_what_was_known_before_its_end": """
settled/a/b
joins/c
exclude/a/t
stick/c
everything/c
fault/c/slow_claims
time/9
coordinate/first/end
coordinate/first/before
coordinate/second/end
coordinate/first/end
coordinate/first/before
coordinate/second/end
coordinate/first/end
start/c/current/new/A
coordinate/first/before
""",
        "commit_by_a_replacement_unasked": """
settled/a
everybody
stick/a
everything/a
time/9
everything/a
fault/a/slow_claims
time/1
everything/a
fault/a/hung
checks
start/b
round
everybody
everybody
everybody
everybody
everybody
fault/a/old_offsets
fault/a/slow_claims
fault/a/hung
work/a
""",
        "commit_what_the_group_is_ahead_of": "sticky/0//guarded" + COMMIT_AFTER_HANDOVER,
        "take_back_at_once_what_was_refused": """
settled/a
everybody
fault/a/no_kafka
everything/a
fault/a/hung
checks
start/b
round
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
        "take_a_commit_that_is_not_allowed_for_made": """
settled/a
everybody
fault/a/commits_fail
everything/a
everything/a
start/b
round
everybody
""",
        "ignore_pins": """
start/a
start/b
round
everybody
pin/t/0/b
pin/t/1/b
pin/t/2/b
pin/u/0/a
pin/u/1/a
""",
        "forget_exclusions": """
start/a
start/b
round
everybody
exclude/a/t
""",
        "touch_what_does_not_move": """
settled/a
partitions/t/4
coordinate/first/after
coordinate/first/after
zookeeper_round/a/watches
""",
        "take_up_by_what_was_read_before": """
settled/a/b
isolate/b/key
consul_round/b
fault/b/lags
everything/b
coordinate/first/end
time/30
time/6
coordinate/first/end
coordinate/first/end
everything/a
isolate/b/key
consul_round/b
""",
        "believe_the_agent_before_the_servers": """
settled/a
crash/a
agent/A/behind
start/a
everybody
everything/a
everything/a
everything/a
everything/a
""",
        "rank_by_registration": """
agent/A/behind
start/a/current/new/A
everything/a
start/a/current/new/B
fault/a-/no_consul
everybody
everybody
coordinate/first/end
everybody
start/b/current/new/B
everything/b
checks
everything/b
fault/a-/no_consul
agent/A/behind
checks
fault/a-/no_consul
fault/a/slow
everything/a
fault/a/no_answer
coordinate/first/end
zookeeper_round/a-/full
coordinate/first/end
everything/b
""",
        "take_up_before_it_is_live": """
settled/a
crash/a
checks
start/a
zookeeper_round/a/full
""",
        "do_not_wait_for_the_predecessor": """
settled/a
start/a
everything/a
everything/a
everything/a
""",
        "report_closed_for_the_predecessor": """
settled/a
start/b
everybody
fault/a/slow
start/a
everything/a
coordinate/first/end
""",
        "lose_patience_with_the_predecessor": """
settled/a
fault/a/slow
start/a
everybody
everything/a
time/9
takeover_round/a
everything/a
everything/a
""",
        "forget_the_predecessor_of_the_predecessor": """
settled/a
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
settled/a/b
everybody
crash/a
start/a
everybody
everything/a
start/a/current/new/B
everything/a
checks
everything/a
zookeeper_round/a-/full
work/a-
""",
        "seem_gone_while_taking_over": """
settled/a
start/a
everything/a
""",
        "go_on_though_isolated": """
settled/a
isolate/a/key
consul_round/a
""",
        "go_on_though_replaced": """
settled/a
start/a
""",
        "balance_in_the_middle_of_a_rebalance": """
settled/a
fault/a/slow
start/b
everybody
coordinate/first/after
start/c
round
""",
        "take_only_to_give_back": """
settled/a/b
everybody
joins/c
round
""",
        "forget_to_close_what_vanished": """
settled/a
partitions/t/2
coordinate/first/end
""",
        "delete_partitions_that_others_found": """
settled/a
partitions/u/1
coordinate/second/before
partitions/u/3
coordinate/first/end
coordinate/second/end
""",
        "rely_on_watches": """
settled/a
partitions/t/4
coordinate/first/after
coordinate/first/after
zookeeper_round/a/lost
""",
        "forget_an_absent_new_owner": """
settled/a
start/b
everybody
coordinate/first/after
crash/b
""",
        "take_at_once_from_an_owner_that_fails_its_check": """
start/a/current/new/A
start/b/current/new/B
round
round
everybody
fault/a/slow
agent/A/restarted
coordinate/first/end
everybody
""",
        "do_not_wait_for_an_isolated_owner": """
settled/a/b
round
everybody
fault/a/slow
isolate/a/key
consul_round/a
zookeeper_round/a/full
coordinate/first/end
everything/b
""",
        "plan_without_asking_when_the_state_is_lost": """
settled/a
everybody
start/b/current/new/A
everybody
fault/a/slow
delete_node/t/both
delete_node/u/assignment
coordinate/first/end
round
everybody
everybody
""",
        "ignore_that_zookeeper_went_back": """
settled/a
everybody
start/b/current/new/A
round
round
everybody
restore/4
coordinate/first/end
round
everybody
everybody
""",
        "obey_what_is_written_over_a_backup": """
settled/a/b
everybody
joins/c
round
round
round
restore/3/t
everybody
everybody
""",
        "stay_silent_on_another_group": """
settled/a/b
round
everybody
group/h
""",
        "freeze_on_a_planning_error": """
settled/a/b
round
everybody
last
assignor/fails
crash/b
""",
        "trust_the_clock_of_any_worker": """
sticky/8/
settled/a/b
round
everybody
clock_of/first/3600
crash/a
checks
coordinate/first/end
clock_of/first/0
""",
        "announce_leaving_though_replaced": """
start/a/current/new/A
start/b/current/new/B
round
round
everybody
agent/A/cut
checks
start/a/current/new/B
everybody
everybody
time/6
round
everybody
everybody
agent/A/cut
everybody
time/9
everybody
time/6
everybody
everybody
""",
        "deregister_before_the_query_has_ended": """
settled/a/b
round
everybody
fault/a/slow
stop/a
everybody
time/30
everybody
time/30
everybody
""",
        "deregister_before_the_older_process_has_closed": """
settled/a/b
everybody
everything/b
fault/b/slow
start/b
everything/b
stop/b
everything/b
everybody
coordinate/first/end
""",
        "let_claims_land_late": """
start/a/current/new/A
everybody
fault/a/slow_claims
coordinate/first/end
everything/a
isolate/a/key
consul_round/a
fault/a/slow_claims
work/a
""",
        "let_replacements_land_late": REFUSED_WHILE_REPLACED,
        "read_on_in_another_topic_of_the_name": """
settled/a/b
round
everybody
recreate_topic/t/3/large
everybody
""",
        "commit_by_the_name_of_the_topic": """
settled/a
everybody
everything/a
fault/a/slow
everything/a
fault/a/slow
recreate_topic/t/3/small
work/a
work/a
""",
        "keep_what_can_be_committed_no_more": """
settled/a
everybody
fault/a/slow
delete_topic/t
start/b/current/new/A
everybody
""",
        "give_only_when_all_is_closed": """
settled/a/b
round
everybody
start/c
everybody
last
fault/a/slow
pin/t/0/c
pin/t/1/c
""",
        "let_go_of_what_had_vanished_once": """
settled/a
everybody
partitions/t/2
coordinate/first/end
round
partitions/t/3
coordinate/first/end
everybody
""",
        "balance_in_the_middle_by_a_late_write": """
settled/a
fault/a/slow
start/b
everybody
coordinate/first/after
start/c
everybody
coordinate/first/end/delayed
late_writes
""",
        "stand_by_for_what_it_holds": """
co-partitioned/0/
settled/a
everybody
""",
        "give_to_a_consumer_that_leaves": GIVEN_WHILE_LEAVING + "coordinate/first/end\n",
        "give_to_a_consumer_that_leaves_by_a_late_write": GIVEN_WHILE_LEAVING
        + "coordinate/first/end/delayed\nlate_writes\n",
        "take_up_what_a_backup_says": RESTORED_DURING_REBALANCE,
        "plan_over_a_backup_unasked": """
settled/a/b
everybody
partitions/t/4
coordinate/first/end
everybody
fault/b/no_zookeeper
restore/3
joins/c
""",
        "forget_to_note_epochs": RESTORED_DURING_REBALANCE,
        "look_for_what_stands_still_in_stable_topics_alone": """
settled/a
round
fault/a/slow
joins/b
time/30
""",
        "name_only_owners_that_answer": """
settled/a/b
round
fault/a/no_answer
time/30
""",
        "ask_about_consumers_alone": """
settled/a
crash/a
checks
time/30
""",
        "take_what_was_never_committed_for_read": """
start/a
fault/a/commits_fail
round
round
time/30
""",
        "take_every_look_for_the_first": """
settled/a
fault/a/hung
time/9
time/30
""",
        "wait_for_all_after_a_note_without_its_write": """
settled/a/b/c
round
round
fault/b/no_answer
crash/a
checks
coordinate/first/before
die/first
last
""",
        "write_requests_of_the_flow_over_a_backup": """
settled/a/b
everybody
joins/c
round
round
round
restore/3/elects
everybody
fault/b/no_answer
pause_consumption/all
coordinate/first/end
""",
        "create_a_topic_again_over_a_backup": """
settled/a/b
everybody
joins/c
round
round
round
fault/b/no_answer
restore/3
recreate_topic/t/3/large
coordinate/first/end
""",
        "stay_stable_while_an_owner_runs_nothing": """
settled/a/b
round
crash/a
start/a
fault/a/no_zookeeper
last
""",
        "believe_a_state_that_was_restored_alone": """
settled/a/b
everybody
fault/a/slow
start/c
everybody
everybody
coordinate/first/after
restore/1/states
coordinate/first/end
coordinate/first/end
everybody
""",
        "ask_nobody_after_a_note": """
settled/a/b
everybody
joins/c
round
round
round
fault/c/no_answer
restore/3
coordinate/first/end
everybody
coordinate/first/end
everybody
""",
    }
    | flow_mutations.HISTORIES
    | state_mutations.HISTORIES
)
"""By mutation: what makes it show."""

DEFECTS: dict[str, str] = {
    "a_store_is_trusted_with_a_commit_that_its_changelog_has_lost": state_mutations.LOST,
    "a_topic_whose_group_is_to_be_confirmed_does_not_hear_that_consumption_was_resumed": """
sticky/0.0//fenced
settled/a/b
everybody
start/c
everybody
everybody
coordinate/first/after
pause_consumption/all
start/b/current/new/A
everybody
everybody
coordinate/first/end
group/h
restore/8
""",
    "a_topic_whose_group_is_to_be_confirmed_is_resumed_by_a_write_that_its_owner_has_not_read_yet": """
start/a
everybody
coordinate/first/before
pause_consumption/all
group/h
coordinate/first/end
""",
    "a_producer_that_is_stuck_in_the_end_is_replaced_before_its_partition_flows": """
start/a
everybody
coordinate/second/end
stick/a
""",
    "what_was_lost_to_a_paused_owner_comes_back_where_it_was_committed": """
sticky/0.0//guarded
settled/a
everybody
joins/b
pause_consumption/all
agent/A/cut
start/a/current/new/B
everybody
everybody
coordinate/first/end
coordinate/first/before
coordinate/second/end
coordinate/first/end
""",
    "a_loss_of_a_topic_that_was_recreated_waits_for_no_person": """
fail_on_data_loss
settled/a/b
joins/c
retention/t/0
everybody
everybody
group/h
recreate_topic/t/1/large
""",
    "a_partition_of_which_nothing_was_committed_begins_at_its_first_record_after_a_pause_as_well": """
sticky/0.0//fenced
fail_on_data_loss
retention/t/0
pause_consumption/all
start/a/current/new/A
everybody
everybody
coordinate/first/end
""",
    "the_epoch_of_a_plan_over_a_restored_state_is_one_that_is_known": """
settled/a/b
everybody
start/c
everybody
everybody
coordinate/first/after
everybody
die/first
partitions/u/1
coordinate/first/end/
restore/4
""",
    "what_was_refused_is_taken_back_while_its_topic_is_not_in_a_restored_zookeeper": """
settled/a/b
everybody
joins/c
start/b/1/new/A
restore/4
joins/a/current/new/A
restore/8
""",
    "a_topic_that_is_restored_twice_to_the_same_state_is_not_read_again": """
settled/a/b
everybody
joins/c
delete_node/u/both
everybody
restore/1
everybody
delete_node/u/both
everybody
restore/1
""",
    "a_topic_whose_epoch_began_below_the_one_noted_is_not_reported": """
settled/a/b
everybody
joins/c
delete_node/t/both
clock_of/first/-3600
""",
    "two_plans_of_standbys_are_written_in_turns": """
co-partitioned/0/
settled/a/b
everybody
joins/c
assignor/fails
delete_node/t/state
exclude/a/t
fault/a/hung
partitions/t/1
joins/a/current/new/A
assignor/works
""",
    "a topic stays Starting for ever when old and new owner leave and nobody else subscribes": """
sticky/0/c
settled/a/c
start/b
everybody
everybody
coordinate/first/after
crash/a
crash/b
checks
round
coordinate/first/end
start/b
""",
    "a vanished partition of an absent owner is forgotten in one write": """
settled/a/b
everybody
partitions/t/1
crash/a
""",
    "a coordinator that stood still deletes partitions that were added meanwhile": """
settled/a/b
partitions/u/1
coordinate/second/before
partitions/u/3
coordinate/first/end
coordinate/second/end
""",
    "a consumer that Consul forgot while it was isolated takes up partitions before it is live again": """
settled/a/b
everybody
isolate/a/key
start/a
everybody
everybody
forget/a
start/a/current/new
""",
    "what_was_read_for_another_group_waits_for_a_commit_to_a_topic_that_is_gone": """
settled/a/b
everybody
joins/c
group/h
delete_node/t/both
coordinate/first/before
coordinate/second/before
coordinate/first/before
delete_topic/t
""",
    "a_leaving_consumer_is_given_nothing_on_its_way_while_the_assignor_fails": """
round-robin/0.0//fenced
settled/a/b
everybody
start/c
everybody
everybody
coordinate/first/after
delete_topic/u
coordinate/first/before
coordinate/second/end
coordinate/first/end
assignor/fails
stop/a
delete_node/t/state
joins/c/current/new/A
""",
    "a_stuck_producer_of_a_restored_topic_whose_group_is_to_be_confirmed_waits_for_that": """
settled/a/b
everybody
start/c
everybody
everybody
coordinate/first/after
restore/4
group/h
stick/a
everything/a
fault/a/hung
time/9
everything/a
""",
    "an_absence_that_a_reader_of_reports_finds_is_dated_by_zookeepers_clock": """
last
settled/a/b
everybody
joins/c
restore/4
start/a/current/new/B
coordinate/first/end
restore/4
agent/B/away
clock_of/first/-3600
""",
    "what_is_read_of_a_topic_that_a_backup_misnames_is_not_committed_when_its_owner_leaves": """
settled/a/b
everybody
joins/c
recreate_topic/t/3/small
coordinate/first/before
coordinate/second/end
coordinate/first/end
group/h
restore/2
stop/a
""",
    "a_predecessor_that_was_silent_and_is_back_before_its_successor_is_live_is_waited_for": """
settled/a/b
everybody
joins/c
start/a/current/new/B
agent/A/cut
agent/B/behind
stick/a
everything/a
free/a
time/9
everything/a
delete_topic/t
""",
    "a_replaced_producer_whose_claim_has_failed_claims_again_only_by_what_is_known_since": """
settled/a/b
everybody
joins/c
stick/b
everything/b
fault/b/slow_claims
time/9
everything/b
delete_node/t/state
start/b/current/new/A
everybody
stick/a
everything/a
free/a
time/9
everything/a
""",
    "a_replaced_producer_whose_initialisation_is_under_way_holds_its_partition_when_that_is_refused": (
        REFUSED_WHILE_REPLACED
    ),
}
"""What the model found in the project's own code."""
