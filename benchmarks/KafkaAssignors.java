import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's cooperative-sticky assignor as the peer of `assignors.py`: one process that stays warm.
 *
 * <p>Arguments: topics, partitions a topic, consumers. Each line read is `start`, `leave` or `join`; each line
 * written is the time of one assignment in nanoseconds, and how many partitions a live consumer has to give up.
 */
public class KafkaAssignors {
  public static void main(String[] arguments) throws Exception {
    int topics = Integer.parseInt(arguments[0]);
    int partitions = Integer.parseInt(arguments[1]);
    int consumers = Integer.parseInt(arguments[2]);
    Map<String, Integer> counts = new HashMap<>();
    for (int topic = 0; topic < topics; topic++) counts.put(String.format("topic-%05d", topic), partitions);
    List<String> names = new ArrayList<>(counts.keySet());
    Map<String, List<TopicPartition>> nobody = new TreeMap<>();
    for (int consumer = 0; consumer < consumers; consumer++)
      nobody.put(String.format("consumer-%05d", consumer), List.of());
    Map<String, List<TopicPartition>> settled = assign(counts, names, nobody);

    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String event = input.readLine(); event != null; event = input.readLine()) {
      Map<String, List<TopicPartition>> before = new TreeMap<>(event.equals("start") ? nobody : settled);
      if (event.equals("leave")) before.remove("consumer-00000");
      if (event.equals("join")) before.put(String.format("consumer-%05d", consumers), List.of());
      Map<String, Subscription> subscriptions = subscriptions(names, before);
      long began = System.nanoTime();
      Map<String, List<TopicPartition>> after = new CooperativeStickyAssignor().assign(counts, subscriptions);
      long took = System.nanoTime() - began;
      int moves = 0;
      for (Map.Entry<String, List<TopicPartition>> owned : before.entrySet()) {
        List<TopicPartition> lost = new ArrayList<>(owned.getValue());
        lost.removeAll(new java.util.HashSet<>(after.get(owned.getKey())));
        moves += lost.size();
      }
      System.out.println(took + " " + moves);
    }
  }

  private static Map<String, List<TopicPartition>> assign(
      Map<String, Integer> counts, List<String> names, Map<String, List<TopicPartition>> owned) {
    return new CooperativeStickyAssignor().assign(counts, subscriptions(names, owned));
  }

  private static Map<String, Subscription> subscriptions(
      List<String> names, Map<String, List<TopicPartition>> owned) {
    Map<String, Subscription> all = new HashMap<>();
    owned.forEach((c, held) -> all.put(c, new Subscription(names, null, held, 1, Optional.empty())));
    return all;
  }
}
