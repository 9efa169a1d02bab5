package muster.connector;

import java.io.Serializable;

/**
 * The records {@code [from, to)} of a partition were planned, and Kafka does not have them.
 *
 * @param deleted true if the partition begins behind them; false if it ends before them, or is not there
 */
record Gone(String topic, int partition, long from, long to, boolean deleted) implements Serializable {}
