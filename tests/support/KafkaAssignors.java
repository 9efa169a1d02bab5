import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors behind lines of text: the oracle of the tests and the peer in the benchmark.
 *
 * <p>Each line read is one of
 *
 * <ul>
 *   <li>{@code case JSON}: the input of all that follows, {@code {"topics": {"t": 3}, "consumers": {"c": {"topics":
 *       ["t"], "owned": {"t": [0, 2]}}}}}. No answer.
 *   <li>{@code assign NAME}: answered by what the group has when it has settled, as JSON: topic to partition to consumer.
 *       With cooperative-sticky a partition that moves is first given to no consumer, and a second rebalance follows.
 *   <li>{@code first NAME}: the same, but what the first call answers.
 *   <li>{@code time NAME}: answered by the nanoseconds of one call.
 * </ul>
 *
 * NAME is range, round-robin, sticky or cooperative-sticky.
 */
public class KafkaAssignors {
  private static final int GENERATION = 1;

  private final Map<String, Integer> counts = new HashMap<>();
  private final Map<String, List<String>> topics = new TreeMap<>();
  private final Map<String, List<TopicPartition>> owned = new TreeMap<>();

  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    KafkaAssignors group = null;
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ", 2);
      switch (words[0]) {
        case "case" -> group = new KafkaAssignors(json.readTree(words[1]));
        case "assign" -> output.println(json.writeValueAsString(byTopic(group.settled(words[1]))));
        case "first" -> output.println(json.writeValueAsString(byTopic(group.first(words[1]))));
        case "time" -> output.println(group.nanoseconds(words[1]));
        default -> throw new IllegalArgumentException(line);
      }
    }
  }

  private KafkaAssignors(JsonNode input) {
    input.get("topics").properties().forEach(t -> counts.put(t.getKey(), t.getValue().asInt()));
    // Consumers with the same subscription share the list, as with one pattern in all of them.
    Map<JsonNode, List<String>> subscriptions = new HashMap<>();
    input.get("consumers").properties().forEach(consumer -> {
      JsonNode wanted = consumer.getValue().get("topics");
      topics.put(consumer.getKey(), subscriptions.computeIfAbsent(wanted, KafkaAssignors::names));
      List<TopicPartition> held = new ArrayList<>();
      consumer.getValue().get("owned").properties().forEach(
          topic -> topic.getValue().forEach(n -> held.add(new TopicPartition(topic.getKey(), n.asInt()))));
      owned.put(consumer.getKey(), held);
    });
  }

  private static List<String> names(JsonNode array) {
    List<String> names = new ArrayList<>();
    array.forEach(name -> names.add(name.asText()));
    return names;
  }

  private long nanoseconds(String name) {
    Map<String, Subscription> subscriptions = subscriptions(name, owned);
    AbstractPartitionAssignor assignor = assignor(name);
    long began = System.nanoTime();
    assignor.assign(counts, subscriptions);
    return System.nanoTime() - began;
  }

  private Map<String, List<TopicPartition>> first(String name) {
    return assignor(name).assign(counts, subscriptions(name, owned));
  }

  private Map<String, List<TopicPartition>> settled(String name) {
    Map<String, List<TopicPartition>> assigned = first(name);
    if (name.equals("cooperative-sticky")) {
      // A consumer that had to give up a partition joins again without it.
      int wanted = counts.values().stream().mapToInt(Integer::intValue).sum();
      while (assigned.values().stream().mapToInt(List::size).sum() < wanted)
        assigned = assignor(name).assign(counts, subscriptions(name, assigned));
    }
    return assigned;
  }

  private static AbstractPartitionAssignor assignor(String name) {
    return switch (name) {
      case "range" -> new RangeAssignor();
      case "round-robin" -> new RoundRobinAssignor();
      case "sticky" -> new StickyAssignor();
      case "cooperative-sticky" -> new CooperativeStickyAssignor();
      default -> throw new IllegalArgumentException(name);
    };
  }

  private Map<String, Subscription> subscriptions(String name, Map<String, List<TopicPartition>> owned) {
    Map<String, Subscription> all = new HashMap<>();
    topics.forEach((consumer, wanted) -> {
      List<TopicPartition> held = owned.get(consumer);
      ByteBuffer memory = name.equals("sticky") ? memory(consumer, held) : null;
      all.put(consumer, new Subscription(wanted, memory, held, GENERATION, Optional.empty()));
    });
    return all;
  }

  /** What the eager sticky assignor sends along to remember by, in Kafka's own words. */
  @SuppressWarnings("removal")
  private static ByteBuffer memory(String consumer, List<TopicPartition> held) {
    StickyAssignor assignor = new StickyAssignor();
    assignor.onAssignment(
        new Assignment(held), new ConsumerGroupMetadata("group", GENERATION, consumer, Optional.empty()));
    return assignor.subscriptionUserData(Set.of());
  }

  private static Map<String, Map<Integer, String>> byTopic(Map<String, List<TopicPartition>> assigned) {
    Map<String, Map<Integer, String>> owners = new TreeMap<>();
    assigned.forEach((consumer, partitions) -> partitions.forEach(
        p -> owners.computeIfAbsent(p.topic(), t -> new TreeMap<>()).put(p.partition(), consumer)));
    return owners;
  }
}
