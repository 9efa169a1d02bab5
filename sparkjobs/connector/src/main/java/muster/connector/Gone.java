package muster.connector;

import java.io.Serializable;

/**
 * The records {@code [from, to)} of a partition are not in Kafka, and those at its end were planned.
 *
 * @param deleted true if the partition begins behind them, and all were planned; false if it was truncated before them, also if it
 *     has grown since
 */
record Gone(String topic, int partition, long from, long to, boolean deleted) implements Serializable {}
