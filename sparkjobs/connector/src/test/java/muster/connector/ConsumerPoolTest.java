package muster.connector;

import static muster.connector.Eventually.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(20)
class ConsumerPoolTest {
  private static final TopicPartition TP = new TopicPartition("t", 0);

  private final AtomicLong bytes = new AtomicLong();
  private final List<FakeKafka> opened = new CopyOnWriteArrayList<>();
  private final ConsumerPool pool =
      new ConsumerPool(memory(), (settings, clientId, share, valve) -> {
        var kafka = new FakeKafka();
        kafka.write(TP, 0, 100);
        opened.add(kafka);
        return kafka;
      });

  private static Memory memory() {
    var memory = new Memory(0);
    memory.limit(64 << 20, 2);
    return memory;
  }

  private static TaskPartition task(long from, long to) {
    return task(from, to, false);
  }

  private static TaskPartition task(long from, long to, boolean failOnDataLoss) {
    var ranges = new LinkedHashMap<>(Map.of(TP, new Range(from, to)));
    var cluster = new TaskPartition.ClusterRanges("k:9092", new HashMap<>(Map.of("a", "b")), ranges);
    return new TaskPartition("query/0", List.of(cluster), failOnDataLoss, new String[0], "");
  }

  private List<Long> offsets(TaskReader reader, int most) throws Exception {
    var found = new ArrayList<Long>();
    while (found.size() < most && reader.next()) {
      reader.get().rowIterator().forEachRemaining(row -> found.add(row.getLong(4)));
    }
    return found;
  }

  private TaskReader reader(long from, long to) throws IOException {
    return new TaskReader(task(from, to), pool, 5, gone -> {}, bytes::addAndGet);
  }

  @AfterEach
  void close() {
    pool.close("query");
  }

  @Test
  void oneSlotsTasksUseOneConsumerAfterTheOther() throws Exception {
    for (int i = 0; i < 3; i++) {
      var reader = reader(10L * i, 10L * i + 10);
      assertEquals(10, offsets(reader, 1000).size());
      reader.close();
    }
    assertEquals(1, opened.size());
    assertEquals("v0".length() * 10 + "v10".length() * 20, bytes.get());
  }

  @Test
  void twoTasksAtOnceEachGetTheWholeRange() throws Exception {
    var one = reader(0, 100);
    var two = reader(0, 100);
    var ofOne = offsets(one, 3);
    var ofTwo = offsets(two, 1000);
    ofOne.addAll(offsets(one, 1000));
    assertEquals(100, ofOne.size());
    assertEquals(ofOne, ofTwo);
    one.close();
    two.close();
    eventually(() -> opened.stream().filter(FakeKafka::left).count() == 1, "one of the two consumers is kept");
  }

  @Test
  void taskThatStopsEarlyLeavesTheConsumerToTheNext() throws Exception {
    var limited = reader(0, 100);
    offsets(limited, 3);
    limited.close();
    var again = reader(0, 100);
    assertEquals(100, offsets(again, 1000).size());
    again.close();
    assertEquals(1, opened.size());
  }

  @Test
  void taskThatDoesNotFindDeletedRecordsGoesOnBehindThemOrFails() throws Exception {
    var beginsLate =
        new ConsumerPool(memory(), (settings, clientId, share, valve) -> {
          var kafka = new FakeKafka();
          kafka.write(TP, 0, 100);
          kafka.bounds(TP, 60, 100);
          return kafka;
        });
    var gone = new ArrayList<Gone>();
    for (int attempt = 0; attempt < 2; attempt++) {
      var strict = new TaskReader(task(20, 100, true), beginsLate, 5, gone::add, bytes::addAndGet);
      var error = assertThrows(IOException.class, () -> offsets(strict, 1000));
      assertTrue(error.getMessage().contains("topic 't', partition 0: the records from offset 20 up to 60 were deleted"));
      strict.close();
    }
    var lenient = new TaskReader(task(20, 100, false), beginsLate, 5, gone::add, bytes::addAndGet);
    assertEquals(40, offsets(lenient, 1000).size());
    lenient.close();
    assertEquals(new Gone("t", 0, 20, 60, true), gone.get(gone.size() - 1));
    beginsLate.close("query");
  }

  @Test
  void consumerThatEndedIsReplaced() {
    var cluster = task(0, 1).clusters().get(0);
    var first = pool.take("query/0", cluster).consumer();
    pool.giveBack("query/0", cluster, first);
    var again = pool.take("query/0", cluster).consumer();
    assertSame(first, again);
    again.close();
    pool.giveBack("query/0", cluster, again);
    var other = pool.take("query/0", cluster).consumer();
    assertNotSame(first, other);
    pool.giveBack("query/0", cluster, other);
  }

  @Test
  void queryThatEndsLeavesKafka() throws Exception {
    var reader = reader(0, 100);
    offsets(reader, 1000);
    reader.close();
    pool.close("another");
    pool.close("query");
    eventually(() -> opened.get(0).left(), "the consumer leaves Kafka");
  }

  @Test
  void readerThatIsReadOnAfterItsTaskFails() throws Exception {
    var reader = reader(0, 100);
    offsets(reader, 3);
    reader.close();
    var next = reader(0, 100);
    var error = assertThrows(IOException.class, reader::next);
    assertTrue(error.getMessage().startsWith("the task has ended"), error.getMessage());
    assertEquals(100, offsets(next, 1000).size());
    next.close();
    assertEquals(1, opened.size());
  }

  @Test
  void leaseIsGivenBackWhenAnotherClustersConsumerCannotBeTaken() throws Exception {
    var good = task(0, 100).clusters().get(0);
    var both = new TaskPartition("query/0", Arrays.asList(good, null), false, new String[0], "");
    assertThrows(RuntimeException.class, () -> new TaskReader(both, pool, 5, gone -> {}, bytes::addAndGet));
    assertEquals(100, offsets(reader(0, 100), 1000).size());
    assertEquals(1, opened.size(), "it is the same consumer");
  }
}
