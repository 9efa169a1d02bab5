package muster.connector;

import java.io.IOException;
import org.apache.kafka.common.TopicPartition;

/**
 * A partition cannot be read, and its handler is not at fault. The agent reads the message's beginning
 * ({@code muster.core.unread}): the kind, topic, partition and offset.
 */
final class ReadException extends IOException {
  private static final long serialVersionUID = 1L;

  /** What is wrong, and what to do about it. */
  enum Kind {
    /** The reader may not read the topic. */
    RIGHT("give the consumer's user the right to read the topic"),
    /** What its records are compressed with cannot be unpacked here. */
    CODEC("give the driver and the executors the library for the topic's compression"),
    /** No broker leads the partition. */
    LEADER("see which of its brokers is down"),
    /** A record at the offset, or further on in its producer's batch, is damaged. */
    CORRUPT("restore it from a replica, skip it with 'muster skip-record', or go on behind its batch with 'muster seek'"),
    /** It gives nothing, and Kafka does not say why. */
    SILENT("see whether the executors reach the brokers"),
    /** Kafka as a whole cannot be read. */
    KAFKA("see whether the executors reach the brokers and may read");

    final String step;

    Kind(String step) {
      this.step = step;
    }
  }

  ReadException(Kind kind, TopicPartition tp, long offset, String servers, String why, Throwable cause) {
    super(
        kind + ": topic '" + tp.topic() + "', partition " + tp.partition() + ", offset " + offset + ": Kafka at " + servers
            + ": " + why.replace('\n', ' ') + "; " + kind.step,
        cause);
  }
}
