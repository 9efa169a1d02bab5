package muster.connector;

import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * The end of a batch, in the agent's words: {@code {"topic": {"3": [from, to]}}}.
 *
 * <p>Spark compares offsets by their text, and so does the agent, which always writes the same ranges in the same way. It
 * is passed on as it is.
 */
final class BatchOffset extends Offset {
  /** Before the first batch. */
  static final BatchOffset NONE = new BatchOffset("{}");

  private final String json;

  BatchOffset(String json) {
    this.json = json;
  }

  @Override
  public String json() {
    return json;
  }
}
