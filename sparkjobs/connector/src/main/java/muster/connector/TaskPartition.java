package muster.connector;

import java.io.Serializable;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * What one task reads.
 *
 * @param slot names the consumers that the task uses, which are kept from one batch to the next
 * @param clusters the ranges, by Kafka cluster
 * @param failOnDataLoss whether it fails if records of its ranges were deleted
 * @param locations where it prefers to run
 * @param state what Python needs there to read changelogs, which holds secrets; empty if it runs with the driver
 */
record TaskPartition(String slot, List<ClusterRanges> clusters, boolean failOnDataLoss, String[] locations, String state)
    implements InputPartition {
  /** Ranges of one Kafka cluster; {@code settings} are those of Kafka's consumer, and hold secrets. */
  record ClusterRanges(
      String servers, HashMap<String, String> settings, LinkedHashMap<TopicPartition, Range> ranges)
      implements Serializable {
    @Override
    public String toString() {
      return "Kafka at " + servers + ": " + ranges;
    }
  }

  @Override
  public String[] preferredLocations() {
    return locations;
  }

  @Override
  public String toString() {
    return clusters.toString();
  }
}
