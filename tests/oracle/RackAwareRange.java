import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's RangeAssignor with racks, one case a line. In: "topic:rack,rack|topic:rack;consumer:zone:topic,topic|...",
 * where "-" is an unknown rack or no zone, and each partition has its leader as its only replica. Out: the owners as
 * "topic:partition:consumer", sorted.
 */
public final class RackAwareRange {
    public static void main(String[] args) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            String[] halves = line.split(";", -1);
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (String consumer : halves[1].split("\\|")) {
                String[] fields = consumer.split(":", -1);
                Optional<String> zone = fields[1].equals("-") ? Optional.empty() : Optional.of(fields[1]);
                subscriptions.put(fields[0], new Subscription(list(fields[2]), null, List.of(), -1, zone));
            }
            Map<String, List<PartitionInfo>> topics = new HashMap<>();
            for (String topic : halves[0].split("\\|")) {
                String[] fields = topic.split(":", -1);
                List<PartitionInfo> partitions = new ArrayList<>();
                for (String rack : list(fields[1])) {
                    Node leader = new Node(partitions.size(), "host", 1, rack.equals("-") ? null : rack);
                    Node[] replicas = {leader};
                    partitions.add(new PartitionInfo(fields[0], partitions.size(), leader, replicas, replicas));
                }
                if (subscriptions.values().stream().anyMatch(s -> s.topics().contains(fields[0]))) {
                    topics.put(fields[0], partitions);
                }
            }
            List<String> owners = new ArrayList<>();
            for (Map.Entry<String, List<TopicPartition>> given
                    : new RangeAssignor().assignPartitions(topics, subscriptions).entrySet()) {
                for (TopicPartition place : given.getValue()) {
                    owners.add(place.topic() + ":" + place.partition() + ":" + given.getKey());
                }
            }
            Collections.sort(owners);
            answers.append(String.join(" ", owners)).append("\n");
        }
        Files.writeString(Path.of(args[1]), answers.toString(), StandardCharsets.UTF_8);
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : Arrays.asList(text.split(","));
    }
}
