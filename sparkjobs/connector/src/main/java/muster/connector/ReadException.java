package muster.connector;

import java.io.IOException;
import java.util.List;
import org.apache.kafka.common.TopicPartition;

/**
 * Partitions cannot be read, and their handler is not at fault. The agent reads the message, which has a line for each of them
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
    /** Kafka has less of it than it had when the range was planned, or nothing. */
    MISSING("see whether its topic was deleted or made again, or has a leader that has not all records"),
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

  private ReadException(String lines, Throwable cause) {
    super(lines, cause);
  }

  /** All of them in one, with the cause of the first. */
  static ReadException of(List<ReadException> failures) {
    var lines = failures.stream().map(Throwable::getMessage).toList();
    return new ReadException(String.join("\nReadException: ", lines), failures.get(0).getCause());
  }
}
