package muster.connector;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordDeserializationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;

/**
 * Why a partition cannot be read at present.
 *
 * @param until when it is tried again, of {@code System.nanoTime}
 */
record Fault(ReadException.Kind kind, String why, Throwable cause, long until) {
  /** How Kafka's client says that a record, or a producer's batch, is damaged. */
  private static final Pattern DAMAGED = Pattern.compile("fetching the next record|corrupt message");

  /** Which of {@code partitions} an error of Kafka's client is of; none if it is the whole client's. */
  static List<TopicPartition> partitionsOf(RuntimeException error, Collection<TopicPartition> partitions) {
    if (error instanceof TopicAuthorizationException refused) {
      return partitions.stream().filter(tp -> refused.unauthorizedTopics().contains(tp.topic())).toList();
    }
    if (error instanceof RecordDeserializationException damaged) {
      return partitions.stream().filter(damaged.topicPartition()::equals).toList();
    }
    // The client names the partition of a damaged record in the text alone. A longer name may end with another one.
    var found = new ArrayList<TopicPartition>();
    for (var tp : partitions) {
      var name = Pattern.compile("(?<![\\w.-])" + Pattern.quote(tp.toString()) + "(?![\\w-])");
      if (error.getMessage() != null && name.matcher(error.getMessage()).find()) {
        found.add(tp);
      }
    }
    return found;
  }

  static ReadException.Kind kindOf(Throwable error) {
    if (error instanceof TopicAuthorizationException) {
      return ReadException.Kind.RIGHT;
    }
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof LinkageError) {
        return ReadException.Kind.CODEC;
      }
    }
    String said = String.valueOf(error.getMessage());
    boolean damaged = error instanceof RecordDeserializationException || DAMAGED.matcher(said).find();
    return damaged ? ReadException.Kind.CORRUPT : ReadException.Kind.KAFKA;
  }

  /** The innermost error's text, which says the most. */
  static String words(Throwable error) {
    var at = error;
    while (at.getCause() != null) {
      at = at.getCause();
    }
    return at.getClass().getSimpleName() + ": " + at.getMessage();
  }
}
