package muster.connector;

import java.io.Serializable;

/** The offsets from {@code from} up to, not including, {@code to} of one partition. */
record Range(long from, long to) implements Serializable {
  boolean isEmpty() {
    return to <= from;
  }
}
