"""One member of a Kafka group, as plain as it can be: `python -m benchmarks.failover_peer CONFIG TOPIC FOLDER`.

CONFIG is librdkafka's, as JSON. It notes what it is given below FOLDER, and leaves the group in order at SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer

from benchmarks.failover_deliveries import Notes

_AT_ONCE, _WAIT = 500, 0.05
"""Records, and seconds, after which they are handled though there are not so many."""


def main() -> None:
    """Consume until SIGTERM."""
    config, topic, folder = json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    going = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(config)
    consumer.subscribe([topic])
    notes = Notes(folder)
    try:
        while going:
            found = consumer.consume(_AT_ONCE, _WAIT)
            notes.batch(
                (partition, offset)
                for message in found
                if message.error() is None
                and (partition := message.partition()) is not None
                and (offset := message.offset()) is not None
            )
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
