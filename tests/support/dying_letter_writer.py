"""A consumer that is killed when it has written a dead letter, or when it has committed the letter's transaction.

    python -m tests.support.dying_letter_writer GIVEN written|committed SAID

`GIVEN` and `SAID` are JSON: where the record and its letter are, and what the letter says. It ends with 9.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from muster.edges import kafka_fencing
from muster.edges.dead_letters import letter
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits, _Fence
from muster.edges.record_reader import RecordReader
from muster.settings.connections import KafkaSettings


def main(told: dict[str, Any], when: str, said: dict[str, Any]) -> None:
    """Write the letter of the first record of partition 0."""
    kafka = KafkaSettings(config=told["kafka"])
    commits = FencedCommits(kafka, told["cluster"], GroupOffsets(kafka, told["group"]))
    tp = (told["topic"], 0)
    while commits.claim([tp]).failed:
        pass
    write, commit = kafka_fencing.write, _Fence.commit

    def write_and_die(*arguments: Any) -> None:
        write(*arguments)
        os._exit(9)

    def commit_and_die(*arguments: Any) -> int:
        commit(*arguments)
        os._exit(9)

    if when == "written":
        kafka_fencing.write = write_and_die  # type: ignore[assignment]
    else:
        _Fence.commit = commit_and_die  # type: ignore[method-assign]
    record = RecordReader(kafka, told["group"]).read(tp, 0)
    assert record is not None
    while True:
        commits.commit({tp: 1}, letters={tp: {0: letter(record, told["to"], said)}})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
