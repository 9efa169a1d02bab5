package muster.connector;

import java.io.Serializable;

/**
 * The offsets from {@code from} up to, not including, {@code to} of one partition. {@code then} is where the range probably
 * begins that the same task reads in the next batch: {@code to}, or further on if other tasks read what is between.
 */
record Range(long from, long to, long then) implements Serializable {
  Range(long from, long to) {
    this(from, to, to);
  }

  boolean isEmpty() {
    return to <= from;
  }
}
