"""`batch.state`: what a handler calls, with the names and parameters of Spark's own `transformWithState`.

A batch's state is computed when the call is made, in the tasks that read the batch. What it changes, and the records
for a topic, are written when the handler has returned, in the transaction that commits the batch's offsets.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    BinaryType,
    StringType,
    StructType,
    TimestampType,
    _parse_datatype_string,
)

from muster.consumer.connector import runs_with_driver
from muster.consumer.state.codec import arrow_schema
from muster.consumer.state.compute import (
    ARROW,
    CHANGES,
    OUTPUT,
    PANDAS,
    ROW,
    SHARD,
    Result,
    ShardTask,
    Work,
    compute,
    in_task,
    unpacked,
)
from muster.consumer.state.errors import LargeBatchError, StateError
from muster.consumer.state.executor import Brought
from muster.consumer.state.handle import EVENT_TIME, NO_TIME, PROCESSING_TIME, Handle, Overlay
from muster.consumer.state.initial import check_initial, initial_of
from muster.consumer.state.shards import Computed, States, View
from muster.core.model import OffsetRange, TopicPartition
from muster.edges.dead_letters import ToWrite

log = logging.getLogger(__name__)

_pack: Callable[[Any], bytes] = dumps

_DELAY = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour|day)s?\s*")
_MILLISECONDS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_SHUFFLED = re.compile(r"(?<!Broadcast)Exchange\b")
_MODES = {"append", "update"}
_PLACE = ("topic", "partition", "offset")


@dataclass
class BatchState:
    """The state of one batch's shards, for the handler that has the batch; one call a batch.

    `ranges` are the batch's offsets, and `due` the shards that are in it for a timer or an expiry alone.
    """

    states: States
    ranges: Mapping[TopicPartition, OffsetRange]
    due: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where each of them stands."""
    computed: dict[TopicPartition, Computed] = field(default_factory=dict, init=False)
    _kept: DataFrame | None = field(default=None, init=False)

    # -- the calls ----------------------------------------------------------------------------------------

    def transformWithState(
        self,
        frame: DataFrame,
        keys: Sequence[str],
        statefulProcessor: Any,
        outputStructType: StructType | str,
        outputMode: str = "Append",
        timeMode: str = NO_TIME,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        delay: str = "0 seconds",
        topic: str = "",
        follows_from_key: bool = False,
    ) -> DataFrame | None:
        """Have a processor of Spark's kind process the rows of each key, as rows (PySpark 4.1).

        `frame` is the batch with the columns topic, partition and offset, not shuffled; `keys` are the columns that
        it is grouped by: `["key"]`, Kafka's own key, or others with `follows_from_key`, which says that records with
        one Kafka key all have one group, and those of a group are in one partition.

        The output is returned; or, with `topic`, written there in the transaction of the batch: then its schema is
        that of Kafka's records, `value` and perhaps `key`. With the time mode EventTime, rows whose
        `eventTimeColumnName` is more than `delay` before the largest one committed are dropped.

        Raises `StateError` before anything is read.
        """
        return self._transform(
            ROW, frame, keys, statefulProcessor, outputStructType, outputMode, timeMode, initialState,
            eventTimeColumnName, delay, topic, follows_from_key,
        )  # fmt: skip

    def transformWithStateInPandas(
        self,
        frame: DataFrame,
        keys: Sequence[str],
        statefulProcessor: Any,
        outputStructType: StructType | str,
        outputMode: str = "Append",
        timeMode: str = NO_TIME,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        delay: str = "0 seconds",
        topic: str = "",
        follows_from_key: bool = False,
    ) -> DataFrame | None:
        """Do the same with pandas frames (PySpark 4.0): one a key, which takes many times longer than rows."""
        return self._transform(
            PANDAS, frame, keys, statefulProcessor, outputStructType, outputMode, timeMode, initialState,
            eventTimeColumnName, delay, topic, follows_from_key,
        )  # fmt: skip

    def transformWithStateInArrow(
        self,
        frame: DataFrame,
        function: Callable[[pa.Table, Any], pa.Table | None],
        variables: Mapping[str, StructType | str],
        outputStructType: StructType | str,
        *,
        topic: str = "",
    ) -> DataFrame | None:
        """Have a function process all rows of a shard at once: `function(table, state)`, where `state` gets and puts
        many keys of `variables`. It gives the output as an Arrow table.

        What it keeps is known by Kafka's key, or by what follows from that.
        """
        if not callable(function):
            raise StateError(
                f"a {type(function).__name__} is no function; give one that takes (table, state)"
            )
        declared = {
            name: (schema if isinstance(schema, StructType) else str(schema))
            for name, schema in variables.items()
        }
        return self._transform(
            ARROW, frame, ["key"], function, outputStructType, "append", NO_TIME, None, "", "0 seconds", topic, True,
            declared,
        )  # fmt: skip

    # -- how they are done --------------------------------------------------------------------------------

    def _transform(
        self,
        form: str,
        frame: DataFrame,
        keys: Sequence[str],
        user: Any,
        output: StructType | str,
        output_mode: str,
        time_mode: str,
        initial: Any,
        event_time: str,
        delay: str,
        topic: str,
        follows: bool,
        variables: Mapping[str, StructType | str] | None = None,
    ) -> DataFrame | None:
        self._check_use(form, user)
        columns = _output(output, topic)
        mode = _mode(time_mode)
        _check_arguments(frame, keys, output_mode, initial, mode, event_time, follows, form)
        late_by = _milliseconds(delay)
        _check_not_shuffled(frame)
        try:
            packed = _pack(user)
        except Exception as error:
            raise StateError(
                f"the {'function' if form == ARROW else 'processor'} cannot be sent to Spark's Python processes: "
                f"{error}; open connections in init, and keep nothing in it that cannot be pickled"
            ) from error
        begins: dict[TopicPartition, dict[str, int]] = {}
        for tp, at in (*self.due.items(), *((tp, begin) for tp, (begin, _) in self.ranges.items())):
            begins.setdefault(self.states.topics.lead(tp), {})[tp[0]] = at
        views = {tp: self.states.view(tp, at) for tp, at in begins.items()}
        here = runs_with_driver(frame.sparkSession.sparkContext.master)
        shards = {
            tp: self._task(tp, view, loads(packed), mode, variables, here) for tp, view in views.items()
        }
        with_records = {self.states.topics.lead(tp) for tp in self.ranges}
        begin = {tp: view.partitions for tp, view in views.items() if view.fresh and tp in with_records}
        work = Work(
            form,
            loads(packed),
            tuple(keys),
            columns,
            mode,
            event_time,
            late_by,
            bool(topic),
            shards,
            str(frame.sparkSession.conf.get("spark.sql.session.timeZone")),
            self.states.most_changes // len(views),
            initial_of(initial, begin) if initial is not None and begin else {},
        )
        found, rows = self._run(frame, work)
        for tp, view in views.items():
            self.computed[tp] = self._computed(tp, view, shards[tp], work, found.get(tp), topic)
        return rows

    def _check_use(self, form: str, user: Any) -> None:
        for name, _ in (*self.ranges, *self.due):
            if not self.states.topics.has(name):
                raise StateError(
                    f"topic {name!r} has no state; name it in 'state' of the cluster's consumers, as a regular "
                    "expression of whole topic names"
                )
        if self.computed:
            raise StateError(
                "the state of this batch is computed already: one call a batch. Keep what belongs together in the "
                "variables of one processor"
            )
        if form == ARROW:
            return
        if not isinstance(user, StatefulProcessor):
            raise StateError(
                f"a {type(user).__name__} is no StatefulProcessor; derive it from "
                "pyspark.sql.streaming.StatefulProcessor, with init, handleInputRows and close, and give an instance"
            )

    @staticmethod
    def _task(
        tp: TopicPartition,
        view: View,
        user: Any,
        mode: str,
        variables: Mapping[str, StructType | str] | None,
        here: bool,
    ) -> ShardTask:
        """Have the processor declare its variables, and compare them with those of the shard. `here`: the task runs
        in the driver's process, and reads its store."""
        position = view.position
        handle = Handle(
            Overlay(_Nothing(), position.generation), position.variables, view.now, mode != NO_TIME
        )
        if variables is None:
            user.init(handle)
        else:
            for name in position.variables.keys() - variables.keys():
                handle.deleteIfExists(name)
            for name, schema in variables.items():
                handle.getValueState(name, schema)
        return ShardTask(
            str(view.folder) if here else "",
            view.identity,
            view.upto,
            position.generation,
            view.now,
            position.places,
            dict(position.variables),
            handle.variables(),
            tp,
            view.dropped,
            None if here else view.planned,
        )

    def _run(self, frame: DataFrame, work: Work) -> tuple[dict[TopicPartition, Result], DataFrame | None]:
        schema = from_arrow_schema(pa.schema(work.returned))
        made = frame.mapInArrow(in_task(work), schema)
        found: dict[TopicPartition, Result] = {}
        too_large: list[TopicPartition] = []
        if not work.to_topic:
            self._kept = made = made.persist(StorageLevel.MEMORY_AND_DISK)
        for row in (
            made.where(col(SHARD).isNotNull()).select(SHARD, CHANGES, OUTPUT).collect() if self.ranges else ()
        ):
            said = json.loads(row[SHARD])
            tp = (said["topic"], said["partition"])
            if tp in found:
                raise StateError(
                    f"the records of topic {tp[0]!r}, partition {tp[1]} came in several tasks; take minPartitions "
                    "out of source_options, and give the frame as it was read, with no repartition or join before"
                )
            if "brought" in said:
                self.states.brought(tp, Brought(**said["brought"]))
            if "size" not in said:
                self.states.changed(tp, self._records(tp), 2 * work.most)
                too_large.append(tp)
                continue
            keys, values = unpacked(row[CHANGES])
            out_keys, out_values = unpacked(row[OUTPUT])
            sent = pa.table(
                {"key": pa.array(out_keys, pa.binary()), "value": pa.array(out_values, pa.binary())}
            )
            found[tp] = Result(sent, keys, values, said["tops"], said["late"], said["size"])
        if too_large:
            raise LargeBatchError(f"{too_large} would change more than {work.most} bytes")
        alone = self._without_records(work, found)
        if work.to_topic:
            return found, None
        rows = made.where(col(SHARD).isNull()).drop(SHARD, CHANGES, OUTPUT)
        extra = [table for table in alone if table.num_rows]
        if extra:
            rows = rows.unionByName(
                frame.sparkSession.createDataFrame(pa.concat_tables(extra).to_pandas(), rows.schema)
            )
        return found, rows

    def _without_records(self, work: Work, found: dict[TopicPartition, Result]) -> list[pa.Table]:
        """Compute what is due of shards without rows, in this process; return their output."""
        outputs = []
        for tp in self.due.keys() - found.keys():
            reader = self.states.reader(tp)
            try:
                alone = replace(work, user=loads(_pack(work.user)))
                result = compute(alone, work.shards[tp], reader, None)
            finally:
                reader.close()
            outputs.append(result.output)
            names = result.output.column_names
            empty = pa.nulls(result.output.num_rows, pa.binary())
            sent = pa.table(
                {
                    "key": result.output.column("key").cast(pa.binary()) if "key" in names else empty,
                    "value": result.output.column("value").cast(pa.binary()) if "value" in names else empty,
                }
            ) if work.to_topic else result.output  # fmt: skip
            found[tp] = replace(result, output=sent)
        return outputs

    def _computed(
        self,
        tp: TopicPartition,
        view: View,
        task: ShardTask,
        work: Work,
        result: Result | None,
        topic: str,
    ) -> Computed:
        ranges = self._ranges_of(tp)
        if result is None:  # no row: it has taken no initial state, and dropped no variable
            return Computed(ranges, replace(view.position, time=view.now))
        places = {name: replace(place, top=result.tops[name]) for name, place in view.position.places.items()}
        after = replace(
            view.position,
            places=places,
            time=view.now,
            variables=dict(task.declared),
            time_mode=work.time_mode,
        )
        if records := self._records(tp):
            self.states.changed(tp, records, result.size)
        if result.late:
            log.warning("topic %r, partition %d: %d late row(s) are dropped", *tp, result.late)
        output = []
        if work.to_topic:
            pairs = zip(
                result.output.column("key").to_pylist(),
                result.output.column("value").to_pylist(),
                strict=True,
            )
            output = [ToWrite(topic, key, value, ()) for key, value in pairs]
        return Computed(ranges, after, result.keys, result.values, output, result.late)

    def _ranges_of(self, shard: TopicPartition) -> dict[str, OffsetRange]:
        found = {tp[0]: (at, at) for tp, at in self.due.items() if tp == shard}
        return found | {tp[0]: of for tp, of in self.ranges.items() if self.states.topics.lead(tp) == shard}

    def _records(self, shard: TopicPartition) -> int:
        return sum(end - begin for begin, end in self._ranges_of(shard).values())

    def close(self) -> None:
        """Let go of the rows that were returned."""
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None

    def again(self) -> None:
        """Forget what was computed: the handler is called again, without some records."""
        self.close()
        self.computed.clear()


class _Nothing:
    """A store without a key."""

    def get(self, _key: bytes) -> None:
        return None

    def get_many(self, _keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {}

    def scan(self, _prefix: bytes) -> Any:
        return iter(())


def _output(schema: StructType | str, topic: str) -> pa.Schema:
    if isinstance(schema, str):
        schema = _parse_datatype_string(schema)  # type: ignore[assignment]
    if not isinstance(schema, StructType):
        raise StateError(f"outputStructType: {schema!r} is no schema; give a StructType or DDL text")
    if topic:
        kinds = {one.name: one.dataType for one in schema.fields}
        wrong = kinds.keys() - {"key", "value"} or {
            name for name, kind in kinds.items() if not isinstance(kind, StringType | BinaryType)
        }
        if wrong or "value" not in kinds:
            raise StateError(
                f"outputStructType: for topic {topic!r} the output is Kafka's records, 'value' and perhaps 'key', "
                f"each a string or binary; it has {schema.simpleString()}"
            )
    return arrow_schema(schema)


def _mode(text: str) -> str:
    for mode in (NO_TIME, PROCESSING_TIME, EVENT_TIME):
        if str(text).lower() == mode.lower():
            return mode
    raise StateError(f"timeMode: {text!r}; it is None, ProcessingTime or EventTime")


def _check_arguments(
    frame: DataFrame,
    keys: Sequence[str],
    output_mode: str,
    initial: Any,
    mode: str,
    event_time: str,
    follows: bool,
    form: str,
) -> None:
    if isinstance(keys, str) or not keys:
        raise StateError(f"keys: {keys!r}; give a list of columns, such as ['key']")
    missing = [name for name in (*_PLACE, *(keys if form != ARROW else ())) if name not in frame.columns]
    if missing:
        raise StateError(
            f"the frame lacks the columns {missing}; it has {frame.columns}. Select topic, partition and offset with "
            "what the processor needs"
        )
    if list(keys) != ["key"] and not follows:
        raise StateError(
            f"keys: {list(keys)}: state is kept where the partition is, so records of a group have to be in one "
            "partition. Group by Kafka's own key, ['key']; or say that these columns follow from that key with "
            "follows_from_key=True; or write the records to a topic with the other key first"
        )
    if str(output_mode).lower() not in _MODES:
        raise StateError(f"outputMode: {output_mode!r}; it is Append or Update")
    if initial is not None:
        check_initial(initial, list(keys), frame)
    if mode == EVENT_TIME:
        kinds = {one.name: one.dataType for one in frame.schema.fields}
        if not isinstance(kinds.get(event_time), TimestampType):
            raise StateError(
                f"eventTimeColumnName: {event_time!r} is no timestamp column; timeMode EventTime needs one"
            )


def _check_not_shuffled(frame: DataFrame) -> None:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if _SHUFFLED.search(plan):
        raise StateError(
            "the frame was shuffled (repartition, groupBy, distinct, sort or a join), so its rows are not where "
            "their state is; do that with the output, or before in a topic of its own"
        )


def _milliseconds(delay: str) -> int:
    found = _DELAY.fullmatch(delay.lower())
    if found is None:
        raise StateError(
            f"delay: {delay!r}; write it as '10 seconds', with milliseconds, seconds, minutes, hours or days"
        )
    return int(found[1]) * _MILLISECONDS[found[2]]
