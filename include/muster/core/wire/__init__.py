"""The wire format: bytes of ZooKeeper nodes and status answers to values of `muster.core.model` and back.

Paths, keys and meaning are fixed, because consumers in other languages rely on them:

- `/consumers/[CLUSTER]/assignments/[TOPIC]`
  `{"bootstrap.servers": "h:9092", "group.id": "g", "assignments": {"45": "consumer-id"}}`
- `/consumers/[CLUSTER]/assignments/[TOPIC]/[PARTITION]`: one empty child a partition
- `/consumers/[CLUSTER]/state/[TOPIC]`
  `{"state": "Closing", "toStart": {"consumer-id": [1, 3]}, "toClose": {"other-id": [1, 3]}}`
- `/consumers/[CLUSTER]/racks/[TOPIC]`: `{"racks": {"a": [0, 3], "b": [1]}}`
- `GET /status`
  `{"consumer": "id", "incarnation": "uuid", "topics": {"t": {"running": [0], "starting": [], "closing": [2]}}}`

A topic's status may hold `offsets`, `{"0": {"lag": 2, "rate": 12.5, "batch": 320}}`, for assignors that
go by load, and for the search for what makes no progress, and `state`, how the state by key of its partitions stands:
`{"0": {"keys": 12, "bytes": 40960, "offset": 320, "commit": 9, "late": 0}, "1": {"restored": 500, "total": 2000,
"rate": 120.5, "still": 0.2}, "2": {"differs": "..."}}`. A status may hold `stores`, the local stores of shards that
are on its disk, with how much of the changelog they have: `{"flights": {"3": {"position": 900, "end": 1000, "lag":
100, "is": "warm", "bytes": 40960, "followed": true, "rate": 120.5}}}`. It may hold `host`, `version`, `state`,
`started`, `errors`, `records`, `batches` and `last_batch`, for people to look at.

Beside these keys Muster writes `epoch` (both nodes of a topic; it grows whenever the owners change), `since`
(ISO 8601, UTC), `reason`, `missing` and `returned`, and into the assignment node `standbys`
(`{"45": ["id-2", "id-3"]}`, absent when there are none), `warm_ups` (`{"46": "id-2"}`, who brings a copy of the state
of a partition to where it may take it over), `topic.id` (the topic's UUID as Kafka's own tools print it,
absent while it is unknown), `paused` (`[0, 3]`, partitions that are held and not read) and `seeks`
(`{"3": {"id": "...", "offset": 120, "rebuild": 1764338460}}`, the last one only with a rebuild).
A consumer that reads epochs says `"epochs": true` in its status and
gives every topic it has read the `epoch` it acted on; then 'closed' is only believed of an epoch that is new
enough, so an answer from before the change is never mistaken for one from after it. Keys that a reader does
not know are ignored.

Both nodes of a topic, status and registration hold `protocol`, the version that their writer speaks (`PROTOCOL`).
Each side works with its neighbours of the version before and after, and does not act on what one further off wrote.

The racks of the partitions' leaders are as Kafka's `broker.rack` says. Their node exists only where Kafka has racks;
a partition that is in none of its lists has an unknown one. `fetch_partitions` writes it, planning reads it, and
consumers have no use for it.
"""

from __future__ import annotations

from muster.core.wire.names import (
    MAX_EPOCH,
    MAX_PARTITION,
    PROTOCOL,
    SEEK_ID,
    TOPIC_ID,
    WireError,
    check_id,
    check_protocol,
    check_topic,
    parse_partition,
    readable,
    to_json,
)
from muster.core.wire.nodes import (
    Racks,
    format_assignment,
    format_racks,
    format_state,
    parse_assignment,
    parse_racks,
    parse_state,
)
from muster.core.wire.paths import (
    assignment_path,
    assignments_path,
    partition_path,
    racks_parent,
    racks_path,
    state_path,
    states_path,
)
from muster.core.wire.status import (
    format_topic,
    parse_status,
)

__all__ = [
    "MAX_EPOCH",
    "MAX_PARTITION",
    "PROTOCOL",
    "SEEK_ID",
    "TOPIC_ID",
    "Racks",
    "WireError",
    "assignment_path",
    "assignments_path",
    "check_id",
    "check_protocol",
    "check_topic",
    "format_assignment",
    "format_racks",
    "format_state",
    "format_topic",
    "parse_assignment",
    "parse_partition",
    "parse_racks",
    "parse_state",
    "parse_status",
    "partition_path",
    "racks_parent",
    "racks_path",
    "readable",
    "state_path",
    "states_path",
    "to_json",
]
