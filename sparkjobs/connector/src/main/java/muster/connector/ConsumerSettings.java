package muster.connector;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerConfig;

/** The settings of Kafka's consumer: the agent's, on top of what suits reading ranges, below what it needs. */
final class ConsumerSettings {
  private static final Map<String, Object> DEFAULTS =
      Map.of(
          // A partition that is added, or moves on, waits for the broker's answer that is under way.
          ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, "100",
          // One poll is one chunk. Of more records, most have left the processor's cache before they are put into columns.
          ConsumerConfig.MAX_POLL_RECORDS_CONFIG, "2000",
          ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, Integer.toString(2 << 20),
          // The operating system sizes the buffer, which is better than Kafka's 64 kB on every network but the slowest.
          ConsumerConfig.RECEIVE_BUFFER_CONFIG, "-1",
          ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, "1000",
          // A broker that is cut off keeps a request, or a connection, for so long, and only then are others asked.
          ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG, "10000",
          ConsumerConfig.SOCKET_CONNECTION_SETUP_TIMEOUT_MS_CONFIG, "3000",
          ConsumerConfig.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS_CONFIG, "10000");

  private static final Map<String, Object> FIXED =
      Map.of(
          ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false",
          ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none",
          ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false",
          ConsumerConfig.ENABLE_METRICS_PUSH_CONFIG, "false",
          // The other one fetches in a thread of its own, before it is asked to.
          ConsumerConfig.GROUP_PROTOCOL_CONFIG, "classic");

  /** Written so that relocation, which also changes texts, leaves it alone. */
  private static final String KAFKA = String.join(".", "org", "apache", "kafka", "");

  private ConsumerSettings() {}

  /** Throws {@link IllegalArgumentException} naming settings that Kafka's consumer does not have. */
  static void check(Map<String, String> given) {
    var unknown = new TreeSet<>(given.keySet());
    unknown.removeAll(ConsumerConfig.configNames());
    if (!unknown.isEmpty()) {
      throw new IllegalArgumentException(
          "Kafka's Java consumer has no setting " + String.join(", ", unknown)
              + "; correct the connection to Kafka, or 'source_options' of the consumers");
    }
  }

  /**
   * The settings for one consumer, which fetches no more than its share at a time. Class names of Kafka's own in them may be
   * those of its plain jar.
   */
  static Map<String, Object> of(Map<String, String> given, String clientId, Memory.Share share) {
    String client = ConsumerConfig.class.getPackageName();
    String here = client.substring(0, client.length() - "clients.consumer".length());
    var settings = new HashMap<>(DEFAULTS);
    given.forEach((name, value) -> settings.put(name, value.replace(KAFKA, here)));
    settings.putAll(FIXED);
    settings.remove(ConsumerConfig.GROUP_ID_CONFIG);
    for (var name : List.of(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG)) {
      settings.merge(name, Long.toString(share.fetch()), ConsumerSettings::least);
    }
    settings.merge(ConsumerConfig.CLIENT_ID_CONFIG, clientId, (name, more) -> name + "-" + more);
    return settings;
  }

  /** The smaller of two numbers; the first if it is none, which Kafka's client says then. */
  private static Object least(Object given, Object most) {
    try {
      return Long.toString(Math.min(Long.parseLong(given.toString().trim()), Long.parseLong(most.toString())));
    } catch (NumberFormatException e) {
      return given;
    }
  }
}
