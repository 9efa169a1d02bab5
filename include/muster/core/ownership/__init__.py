"""What a consumer may read, must close and has to commit: its side of the protocol, as a pure state machine.

Nothing here talks to ZooKeeper, Spark or Kafka and nothing blocks. Events come in as method calls, one at a time (the
agent holds a lock). Each event changes facts and ends with `Ownership._settle`, the one place that decides what is
closed and what is taken up; so after each event the whole can be reported as it stands.

Quantities
----------

Of a topic (`Topic`): `assigned` are the partitions that the newest assignment gives to this consumer, `elsewhere`
those that it gives to others. A partition is *wanted* when it is assigned, the topic is in Kafka, and nothing blocks
this consumer (isolated, stopping, not live yet).

Of a partition that is held (`Partition`), offsets are the next ones to read:

- `offered`: the newest offer to the planner holds it, and no plan has answered that offer.
- `planned`: where the planner's last plan ends, or begins if its batch failed; `processed`: where the last batch that
  the handler finished ended; `committed`: what Kafka acknowledged.
- It *may be read* while it is offered or planned; its commit is *outstanding* while `processed` is not `committed`,
  or `note` is not `noted`.
- `note` goes with each commit; `noted` is the one that went with `committed`. A seek that is not above that of the
  note is not carried out: it may have come back with servers that were restored.
- `claim_epoch` numbers the times that partitions were taken up: an answer of Kafka about an earlier one is ignored.
- `claimed`: whatever keeps a former owner's late commit from landing is in place.
- `announced`: the handler knows that the partition is this consumer's. `withdrawn`: it does not believe so, or not
  any more. For a handler that does not ask to know both are so from the start.
- It is *paused* if the assignment says so: it stays in the plans with nothing to read, and so stays running. It is
  *stopped* once nothing of it is under way or outstanding.
- It is *held back* while it has been outstanding for too long: it stays in the plans in the same way.
- It is *being rebuilt* from the plan that carries out a seek with a rebuild until the number is `noted`: likewise.
- It is *in the group* once the group was seen to have an offset of it: at its claim, or by a commit since.

State Transitions
-----------------

Each partition is *closed* (not held), *starting*, *running* or *closing*:

- closed -> starting: it is wanted.
- starting -> running: the planner planned a batch that holds the partition, or it waits for others of its shard.
- running -> starting: the planner planned without it, or the query ended.
- starting, running -> closing: it is no longer wanted, or the assignment names another place or another topic.
- closing -> closed: it may not be read, nothing is outstanding, the handler knows, no claim is under way (see below),
  and what is in the group was looked at once more.

Invariants
----------

1. A partition in *closing* is never offered, whatever a newer assignment says: it is closed first and then starts
   again, from the committed offset.
2. A partition is closed only when no batch that holds it can be under way or be planned from an older offer,
   and every offset that was processed is committed and acknowledged. "Can be planned" is known by sequence
   numbers: each offer to the planner has one, and only the plan made from the newest offer is accepted.
3. A partition that is not in the planner's last plan (so the planner would take it up from the committed offset)
   is not offered while its commit is outstanding: it would be read twice.
4. The epoch of a topic changes in the same step as the partitions that it took away turn to *closing*. So a
   status that shows epoch N and does not list a partition proves that the partition is closed, not that its
   removal is still unknown.
5. A partition that was just taken up is not offered until it is claimed. So the committed offset that
   it starts from is read after that. A claim begins only for a partition that is held and not closing, in the same
   step that notes it, and a partition whose claim has begun is not closed before that claim has ended: if it landed
   later, it would fence off the next owner. The same holds of the claim by which a stuck producer is replaced, but it
   may begin while the partition is closing, as long as that is given to no other consumer.
6. A partition whose commit was *refused* (another consumer has taken it over) is closed without committing, and not
   taken up again, whatever the assignment says, until it is allowed: the assignment that names this consumer may
   be older than the refusal. Without `fencing`, that is with no broker to refuse, nothing is committed for a
   partition that the newest assignment gives to another consumer; with it the commit is tried, because it is
   accepted only if the other one has not begun.
7. The epoch decides which assignment is newer, whatever its `mzxid`, its time, or the server that it was read from.
   A lower epoch than the obeyed one is never obeyed. Of the obeyed epoch only the same owners are, with a newer
   request about the flow beside them: other owners were written over a backup by a coordinator that did not ask this
   consumer. A refused assignment that was read after a sync is no lagging server's: ZooKeeper was restored. This
   consumer keeps what it has, and reports an epoch above the node's, by which the coordinator notices. A topic whose
   node was deleted has to come back with a higher epoch.
8. A topic is its id, not its name. When the assignment names another id, the partitions of the old topic are closed
   without committing, and nothing that is known of them counts for the new ones. While Kafka has the topic under
   another id than the assignment, it is neither offered nor committed. A topic whose id is not known is whatever has
   its name; it gets the id that the assignment first names.
9. To a handler that asks to know, a partition is announced after its claim and before it is offered, and withdrawn
   when it may not be read any more and before it is closed. Announcing begins in the step that notes it: what began
   before the partition turned to *closing* is withdrawn as well.
10. A plan continues where the one before ended, or states where and why it does not (a *jump*): there is no silent
   gap. A jump over records that are lost is committed at once, whatever becomes of the batch: it is found once.
11. A record is *passed over* only when Kafka has acknowledged the offset after it, and its dead letter with that, if
   it gets one. Until then the partition stands before it. So neither the letter nor the decision is lost, and no
   letter is written twice.
12. The offset after a record that the handler rejected is committed only together with its dead letter.
13. A record is handed out under the number of a rebuild only once Kafka has acknowledged that number. So the next
   owner knows each number that a sink may have.
14. A partition is read on for no more than `LONGEST_UNCOMMITTED` without an answer to its commits. A process that was
   cut off and replaced may hear of it only by such an answer, and is to read nothing more until then.
15. A partition says whose process has it, in what is committed with its offset, from the plan that it begins with
   until it is closed, unless it has state. Where it is *in doubt* (`muster.core.deaths`), that and its offset are
   acknowledged before more of it is planned.
16. A partition with state by key is offered once its state is `restored`, which begins after its claim. What it has
   outstanding is committed before more of it is planned, and nothing of it is committed before it is restored.
17. Partitions with one number of topics that share their state are one *shard* (`muster.core.ownership.shards`): they
   are claimed and offered only while all are held and none is closing, all are due when one is, and they are closed
   in one step.
"""

from __future__ import annotations

from muster.core.ownership.ownership import Ownership
from muster.core.ownership.partition import (
    HELD_BACK,
    LETTERS,
    LONGEST_RENEWAL,
    LONGEST_UNCOMMITTED,
    PAUSED,
    REBUILDING,
    RENEWAL_SPREAD,
    Due,
    Partition,
    PassOver,
    ToRestore,
    renewal_interval,
)
from muster.core.ownership.place import Place, Source
from muster.core.ownership.query import BatchPlan, Offer, PlanRefusedError, TopicOffer
from muster.core.ownership.topic import Topic

__all__ = [
    "HELD_BACK",
    "LETTERS",
    "LONGEST_RENEWAL",
    "LONGEST_UNCOMMITTED",
    "PAUSED",
    "REBUILDING",
    "RENEWAL_SPREAD",
    "BatchPlan",
    "Due",
    "Offer",
    "Ownership",
    "Partition",
    "PassOver",
    "Place",
    "PlanRefusedError",
    "Source",
    "ToRestore",
    "Topic",
    "TopicOffer",
    "renewal_interval",
]
