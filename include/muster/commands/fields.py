"""What the commands of the table ask for."""

from __future__ import annotations

from muster.commands.command import Field, Kind

CONSUMER = Field("consumer", Kind.CONSUMER, "Consumer", "Its id, as registered in Consul")
TOPIC = Field("topic", Kind.TOPIC, "Topic", "One of the cluster's topics in Kafka")
PARTITIONS = Field(
    "partitions", Kind.PARTITIONS, "Partitions", "Numbers and ranges between commas, such as 0-3,7"
)
RECORD = (
    TOPIC,
    Field("partition", Kind.NUMBER, "Partition", "Its number"),
    Field("offset", Kind.NUMBER, "Offset", "Of the record, as 'muster status' names it"),
)
TOPICS = (
    Field("topic", Kind.TOPIC, "Topic", "A topic in Kafka, or a regular expression for whole names"),
    Field("pattern", Kind.FLAG, "Pattern", "The topic is a regular expression, such as flights-.*"),
)
SCOPE = (
    Field("topic", Kind.TOPIC, "Topic", "Empty for all topics of the cluster", optional=True),
    Field(
        "partitions", Kind.PARTITIONS, "Partitions", "Such as 0-3,7; empty for the whole topic", optional=True
    ),
)
ERROR = Field("error", Kind.TEXT, "Error", "Only letters whose error holds this text", optional=True)
FAILS_WITH = (
    TOPIC,
    Field(
        "error",
        Kind.TEXT,
        "Error",
        "The class of the exception, or Spark's error condition, such as ValueError",
    ),
)
TEXT = Field("text", Kind.TEXT, "Text", "Only errors whose message holds this text", optional=True)
TO = Field(
    "to",
    Kind.DESTINATION,
    "To",
    "earliest, latest, an offset (120), records forth or back (+50, -1000), a time ago (-10m), a moment "
    "(2026-11-25T10:00:00Z), committed (where the group is), or changelog (where the state by key is)",
)
REBUILD = Field(
    "rebuild",
    Kind.FLAG,
    "Rebuild",
    "Have sinks forget what they stored of the partitions, and write all of it again from there on",
)
STATE = Field(
    "state",
    Kind.TEXT,
    "State",
    "For topics with state by key, which need it: again (records change the state once more), skip (only records "
    "that have not changed it) or rebuild (it begins empty)",
    optional=True,
)
SOURCES = (
    Field("group", Kind.SOURCE, "Group", "Another group of the cluster's Kafka", optional=True),
    Field(
        "zookeeper_group",
        Kind.SOURCE,
        "Group in ZooKeeper",
        "A consumer of Kafka 0.8, by /consumers/[GROUP]/offsets in ZooKeeper",
        optional=True,
    ),
    Field(
        "zookeeper",
        Kind.SOURCE,
        "Connection to that ZooKeeper",
        "Its id, if it is not the cluster's own",
        optional=True,
    ),
    Field(
        "checkpoint",
        Kind.SOURCE,
        "Checkpoint",
        "The checkpoint folder of a Spark query, as a path on the machine that carries the command out",
        optional=True,
    ),
)
ASSIGNOR = Field(
    "assignor",
    Kind.ASSIGNOR,
    "Assignor",
    "A built-in one, or the dotted path of one that the settings allow",
)
