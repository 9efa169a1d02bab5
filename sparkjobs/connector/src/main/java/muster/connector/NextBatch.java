package muster.connector;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * The agent's plan of the next batch.
 *
 * @param end what Spark stores; the start itself if there is nothing to do
 * @param tasks by slot: what each reads of each Kafka cluster. A slot keeps its partitions from one batch to the next. A
 *     range may be empty: then its partition is only read ahead. Slots may have ranges of one partition, one each
 * @param kafka the settings of Kafka's consumer by bootstrap servers; they hold secrets
 * @param metrics the source's metrics in Spark's progress
 * @param failOnDataLoss whether a task fails that does not find planned records because they were deleted
 * @param state what tasks of topics with state by key need to read changelogs, as text that holds secrets; empty without
 */
record NextBatch(
    BatchOffset end,
    List<Map<String, Map<TopicPartition, Range>>> tasks,
    Map<String, Map<String, String>> kafka,
    Map<String, String> metrics,
    boolean failOnDataLoss,
    String state) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Reads an answer of the agent. Throws {@link IllegalArgumentException} without showing it. */
  static NextBatch parse(String json) {
    try {
      JsonNode answer = JSON.readTree(json);
      var tasks = new ArrayList<Map<String, Map<TopicPartition, Range>>>();
      for (JsonNode task : answer.required("tasks")) {
        var clusters = new LinkedHashMap<String, Map<TopicPartition, Range>>();
        task.fields().forEachRemaining(of -> clusters.put(of.getKey(), ranges(of.getValue())));
        tasks.add(clusters);
      }
      var kafka = new HashMap<String, Map<String, String>>();
      answer.required("kafka").fields().forEachRemaining(of -> kafka.put(of.getKey(), texts(of.getValue())));
      return new NextBatch(
          new BatchOffset(answer.required("offset").toString()), tasks, kafka, texts(answer.required("metrics")),
          answer.path("failOnDataLoss").asBoolean(false), answer.path("state").asText(""));
    } catch (JsonProcessingException | RuntimeException e) {
      throw new IllegalArgumentException(
          "the agent's answer is no plan (" + e.getClass().getSimpleName()
              + "); check that the connector's jar and muster are of the same version");
    }
  }

  /** The settings for one of the Kafka clusters. */
  Map<String, String> settings(String servers) {
    Map<String, String> found = kafka.get(servers);
    if (found == null) {
      throw new IllegalArgumentException("the agent's plan names Kafka at " + servers + " without settings for it");
    }
    return found;
  }

  @Override
  public String toString() {
    return "batch up to " + end.json();
  }

  private static Map<TopicPartition, Range> ranges(JsonNode topics) {
    var ranges = new LinkedHashMap<TopicPartition, Range>();
    topics.fields().forEachRemaining(topic -> topic.getValue().fields().forEachRemaining(of ->
        ranges.put(
            new TopicPartition(topic.getKey(), Integer.parseInt(of.getKey())),
            new Range(bound(of.getValue(), 0), bound(of.getValue(), 1), bound(of.getValue(), 2)))));
    return ranges;
  }

  private static long bound(JsonNode range, int number) {
    return range.required(number).asLong();
  }

  private static Map<String, String> texts(JsonNode node) {
    var texts = new HashMap<String, String>();
    node.fields().forEachRemaining(of -> texts.put(of.getKey(), of.getValue().asText()));
    return texts;
  }
}
