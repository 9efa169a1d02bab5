package muster.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.junit.jupiter.api.Test;

class ValveTest {
  private final Valve valve = new Valve();

  private int passed(int key, int value) {
    for (int records = 0; records < 1000; records++) {
      try {
        if (key >= 0) {
          valve.keys.deserialize("t", new RecordHeaders(), ByteBuffer.allocate(key));
        }
        if (value >= 0) {
          valve.values.deserialize("t", new RecordHeaders(), ByteBuffer.allocate(value));
        }
      } catch (SerializationException e) {
        return records;
      }
    }
    return 1000;
  }

  @Test
  void pollEndsWithTheRecordBeforeTheBound() {
    valve.open(10_000);
    assertEquals(7, passed(100, 1000));
    valve.open(10_000);
    assertEquals(7, passed(100, 1000), "as before");
  }

  @Test
  void firstRecordPassesHoweverLarge() {
    valve.open(10_000);
    assertEquals(1, passed(20_000, 50_000));
    valve.open(10_000);
    assertEquals(1, passed(-1, 50_000));
  }

  @Test
  void recordsWithoutValuesOrKeysCount() {
    valve.open(10_000);
    assertEquals(10, passed(1000, -1));
    valve.open(10_000);
    assertEquals(7, passed(-1, 1000));
  }

  @Test
  void arraysAreNotTaken() {
    assertThrows(UnsupportedOperationException.class, () -> valve.values.deserialize("t", new byte[1]));
  }
}
