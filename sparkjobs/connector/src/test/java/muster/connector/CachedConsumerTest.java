package muster.connector;

import static muster.connector.Eventually.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(20)
class CachedConsumerTest {
  private static final TopicPartition A = new TopicPartition("t", 0);
  private static final TopicPartition B = new TopicPartition("t", 1);

  private final FakeKafka kafka = new FakeKafka();
  private final List<FakeKafka> opened = new ArrayList<>();
  private final List<Gone> gone = new ArrayList<>();
  private long share = 1 << 20;
  private final CachedConsumer consumer =
      new CachedConsumer("k:9092", this::open, () -> share, more -> {}, TimeUnit.MILLISECONDS.toNanos(100));

  private long lease = consumer.lease();

  private FakeKafka open() {
    opened.add(opened.isEmpty() ? kafka : new FakeKafka(kafka));
    return opened.get(opened.size() - 1);
  }

  @AfterEach
  void close() {
    consumer.close();
  }

  /** The offsets of one partition's records, in the order in which they come. */
  private List<Long> read(TopicPartition tp, long from, long to) throws IOException, InterruptedException {
    return read(Map.of(tp, new Range(from, to))).get(tp);
  }

  private Map<TopicPartition, List<Long>> read(Map<TopicPartition, Range> ranges)
      throws IOException, InterruptedException {
    var found = new java.util.HashMap<TopicPartition, List<Long>>();
    ranges.keySet().forEach(tp -> found.put(tp, new ArrayList<>()));
    consumer.hold(lease, ranges);
    for (Chunk chunk = consumer.take(lease, 5); chunk != null; chunk = consumer.take(lease, 5)) {
      if (chunk.gone != null) {
        gone.add(chunk.gone);
      }
      for (int row = 0; row < chunk.rows(); row++) {
        found.get(chunk.tp).add(chunk.offset(row));
        assertEquals("v" + chunk.offset(row), new String(chunk.value(row), StandardCharsets.UTF_8));
      }
      consumer.giveBack(chunk);
    }
    return found;
  }

  /** A new leader has other records of A from {@code from} on, up to {@code to}, and the client sees it while no task asks. */
  private void fork(long from, long to) throws InterruptedException {
    int before = kafka.forksSeen();
    kafka.fork(A, from, to);
    eventually(() -> kafka.forksSeen() > before, "the client sees it");
  }

  private static List<Long> offsets(long from, long to) {
    return LongStream.range(from, to).boxed().toList();
  }

  @Test
  void rangesAreHandedOverWholeAndInOrder() throws Exception {
    kafka.write(A, 0, 100);
    kafka.write(B, 0, 10);
    consumer.start();
    var found = read(Map.of(A, new Range(5, 50), B, new Range(0, 10)));
    assertEquals(offsets(5, 50), found.get(A));
    assertEquals(offsets(0, 10), found.get(B));
  }

  @Test
  void nextRangeGoesOnWithWhatWasReadAhead() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    read(A, 0, 40);
    eventually(() -> kafka.readTo(A) == 100, "the rest is read ahead");
    int before = kafka.seeks();
    assertEquals(offsets(40, 90), read(A, 40, 90));
    assertEquals(before, kafka.seeks());
  }

  @Test
  void rangeThatBeginsFurtherOnDropsWhatIsBefore() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    read(A, 0, 10);
    eventually(() -> kafka.readTo(A) == 100, "the rest is read ahead");
    int before = kafka.seeks();
    assertEquals(offsets(31, 60), read(A, 31, 60));
    assertEquals(before, kafka.seeks());
  }

  @Test
  void nextRangeIsReadAheadWhereItProbablyBegins() throws Exception {
    kafka.write(A, 0, 300);
    consumer.start();
    assertEquals(offsets(0, 50), read(Map.of(A, new Range(0, 50, 100))).get(A));
    eventually(() -> kafka.readTo(A) == 300, "what is behind the others' ranges is read ahead");
    int before = kafka.seeks();
    assertEquals(offsets(100, 150), read(Map.of(A, new Range(100, 150, 200))).get(A));
    eventually(() -> kafka.readTo(A) == 300, "and again");
    assertEquals(offsets(200, 250), read(Map.of(A, new Range(200, 250, 300))).get(A));
    assertTrue(kafka.seeks() <= before + 2, "once a range");
  }

  @Test
  void rangeThatBeginsElsewhereThanWasExpectedIsReadWhole() throws Exception {
    kafka.write(A, 0, 300);
    consumer.start();
    for (var range : List.of(
        new Range(0, 50, 100), new Range(80, 120, 160), new Range(170, 180, 200), new Range(180, 210, 240),
        new Range(60, 130, 200), new Range(130, 300))) {
      assertEquals(offsets(range.from(), range.to()), read(Map.of(A, range)).get(A), range.toString());
      eventually(() -> kafka.readTo(A) == 300, "the rest is read ahead");
      assertEquals(offsets(range.from(), range.to()), read(Map.of(A, range)).get(A), "again: " + range);
      eventually(() -> kafka.readTo(A) == 300, "the rest is read ahead");
    }
  }

  @Test
  void rangesAreReadWholeWhateverWasExpectedAndHowFarItWasReadAhead() throws Exception {
    kafka.write(A, 0, 500);
    consumer.start();
    var random = new Random(5);
    long from = 0;
    for (int i = 0; i < 500; i++) {
      long to = Math.min(500, from + random.nextInt(40));
      long then = Math.min(500, to + random.nextInt(60));
      var range = new Range(from, to, then);
      assertEquals(offsets(from, to), read(Map.of(A, range)).get(A), range.toString());
      Thread.sleep(random.nextInt(4));
      from = switch (random.nextInt(6)) {
        case 0 -> random.nextInt(500);
        case 1 -> from;
        case 2 -> Math.min(then + random.nextInt(5), 499);
        default -> then % 500;
      };
    }
  }

  @Test
  void deletedRecordsAreReportedRangeByRangeWithoutWhatOthersRead() throws Exception {
    kafka.write(A, 0, 300);
    kafka.bounds(A, 250, 300);
    consumer.start();
    assertEquals(List.of(), read(Map.of(A, new Range(110, 150, 200))).get(A));
    assertEquals(offsets(250, 260), read(Map.of(A, new Range(200, 260, 300))).get(A));
    assertEquals(List.of(new Gone("t", 0, 110, 150, true), new Gone("t", 0, 200, 250, true)), gone);
  }

  @Test
  void rangeIsTheSameWhenItIsReadAgain() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    assertEquals(offsets(10, 60), read(A, 10, 60));
    assertEquals(offsets(10, 60), read(A, 10, 60));
    assertEquals(offsets(60, 100), read(A, 60, 100));
  }

  @Test
  void rangeEndsByThePositionWhereItsLastOffsetsHoldNoRecord() throws Exception {
    kafka.write(A, 0, 10);
    kafka.bounds(A, 0, 12);
    consumer.start();
    assertEquals(offsets(0, 10), read(A, 0, 12));
    assertEquals(List.of(), read(A, 12, 12));
  }

  @Test
  void partitionComesAndGoes() throws Exception {
    kafka.write(A, 0, 50);
    kafka.write(B, 0, 50);
    consumer.start();
    read(A, 0, 20);
    assertEquals(offsets(0, 20), read(Map.of(A, new Range(20, 20), B, new Range(0, 20))).get(B));
    assertEquals(offsets(20, 30), read(B, 20, 30));
    assertEquals(offsets(30, 40), read(A, 30, 40), "it was given up, and comes back elsewhere");
  }

  @Test
  void recordsDeletedUnderTheReaderAreReportedAndTheRestIsRead() throws Exception {
    kafka.write(A, 0, 100);
    kafka.bounds(A, 30, 100);
    consumer.start();
    assertEquals(offsets(30, 100), read(A, 10, 100));
    assertEquals(List.of(new Gone("t", 0, 10, 30, true)), gone);
  }

  @Test
  void recordsDeletedBeyondTheRangeAreReportedOnlyUpToItsEnd() throws Exception {
    kafka.bounds(A, 80, 100);
    consumer.start();
    assertEquals(List.of(), read(A, 10, 40));
    assertEquals(List.of(new Gone("t", 0, 10, 40, true)), gone);
    assertEquals(List.of(), read(A, 80, 80), "where the agent goes on");
    assertEquals(1, gone.size());
  }

  @Test
  void partitionThatEndsBeforeTheRangeIsReportedAfterAWhile() throws Exception {
    kafka.write(A, 0, 100);
    kafka.write(B, 0, 10);
    consumer.start();
    read(Map.of(A, new Range(0, 50), B, new Range(0, 10)));
    eventually(() -> kafka.readTo(A) == 100, "all is read ahead");
    kafka.truncate(A, 90);
    var found = read(Map.of(A, new Range(50, 120), B, new Range(10, 10)));
    assertEquals(offsets(50, 100), found.get(A));
    assertEquals(List.of(new Gone("t", 0, 100, 120, false)), gone);
  }

  @Test
  void endThatANewLeaderDoesNotHaveIsReportedFromWhereItsRecordsDifferThoughItHasGrown() throws Exception {
    kafka.write(A, 0, 60);
    consumer.start();
    read(A, 0, 60);
    fork(40, 100);
    assertEquals(List.of(), read(A, 60, 90));
    assertEquals(List.of(new Gone("t", 0, 40, 90, false)), gone);
    assertEquals(List.of(), read(A, 60, 70), "its batch is tried again, and is smaller");
    assertEquals(List.of(new Gone("t", 0, 40, 90, false), new Gone("t", 0, 40, 70, false)), gone);
    assertEquals(offsets(40, 100), read(A, 40, 100), "where the agent goes on");
    assertEquals(2, gone.size());
  }

  @Test
  void partitionThatIsSentBeyondItsLostEndIsReadThereAndAnotherLossCountsByItself() throws Exception {
    kafka.write(A, 0, 60);
    consumer.start();
    read(A, 0, 60);
    fork(40, 100);
    assertEquals(offsets(70, 100), read(A, 70, 100));
    fork(85, 120);
    assertEquals(List.of(), read(A, 100, 110));
    assertEquals(List.of(new Gone("t", 0, 85, 110, false)), gone);
  }

  @Test
  void partitionThatIsNotThereIsReportedAfterAWhile() throws Exception {
    kafka.write(A, 0, 10);
    consumer.start();
    read(A, 0, 10);
    kafka.delete(A);
    assertEquals(List.of(), read(A, 10, 20));
    assertEquals(List.of(new Gone("t", 0, 10, 20, false)), gone);
  }

  @Test
  void readingAheadStopsAtTheShareOfMemory() throws Exception {
    kafka.write(A, 0, 1000);
    share = 500;
    consumer.start();
    read(A, 0, 10);
    Thread.sleep(100);
    assertTrue(kafka.readTo(A) < 100, "read up to " + kafka.readTo(A));
    assertEquals(offsets(10, 1000), read(A, 10, 1000));
  }

  @Test
  void refusalFailsTheTaskAndEndsTheConsumer() throws Exception {
    kafka.write(A, 0, 10);
    kafka.fail(new TopicAuthorizationException("t"));
    consumer.start();
    var error = assertThrows(IOException.class, () -> read(A, 0, 10));
    assertTrue(error.getMessage().contains("Kafka at k:9092: topic 't', partition 0, offset 0"), error.getMessage());
    assertFalse(consumer.release(() -> {}));
    assertEquals(0, consumer.lease());
    eventually(kafka::left, "the consumer leaves Kafka");
  }

  @Test
  void clientThatIsSilentIsReplacedAndNothingIsLost() throws Exception {
    kafka.write(A, 0, 100);
    kafka.write(B, 0, 100);
    consumer.start();
    read(Map.of(A, new Range(0, 10), B, new Range(0, 10)));
    kafka.silence(A);
    var found = read(Map.of(A, new Range(5, 100), B, new Range(10, 100)));
    assertEquals(offsets(5, 100), found.get(A));
    assertEquals(offsets(10, 100), found.get(B));
    assertEquals(2, opened.size());
    assertTrue(kafka.left());
    assertEquals(List.of(), gone);
  }

  @Test
  void endedConsumerHandsNothingOver() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    read(A, 0, 10);
    consumer.close();
    eventually(kafka::left, "the consumer leaves Kafka");
    assertThrows(IOException.class, () -> read(A, 30, 40));
  }

  @Test
  void silenceFailsTheTaskAfterItsTimeout() throws Exception {
    kafka.bounds(A, 0, 100);
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 200)));
    var error = assertThrows(IOException.class, () -> {
      while (consumer.take(lease, 0) != null) {
        // Up to the end.
      }
    });
    assertTrue(error.getMessage().contains("nothing for 0 s"), error.getMessage());
  }

  @Test
  void oldLeaseFailsAndTheNextTaskGetsAllRecords() throws Exception {
    kafka.bounds(A, 0, 0);
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 30)));
    long old = lease;
    var failed = new CompletableFuture<Throwable>();
    var thread = new Thread(() -> {
      try {
        failed.complete(new AssertionError("was given " + consumer.take(old, 60)));
      } catch (Exception e) {
        failed.complete(e);
      }
    });
    thread.start();
    eventually(() -> thread.getState() == Thread.State.TIMED_WAITING, "the old task's thread waits");
    assertTrue(consumer.release(() -> {}));
    lease = consumer.lease();
    var error = failed.get(5, TimeUnit.SECONDS);
    assertTrue(error instanceof IOException && error.getMessage().contains("its lease"), error.toString());
    kafka.write(A, 0, 30);
    assertEquals(offsets(0, 30), read(A, 0, 30));
    assertThrows(IOException.class, () -> consumer.hold(old, Map.of(A, new Range(5, 10))));
    assertThrows(IOException.class, () -> consumer.take(old, 5));
  }
}
