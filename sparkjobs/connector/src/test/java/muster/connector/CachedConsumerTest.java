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
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(20)
class CachedConsumerTest {
  private static final TopicPartition A = new TopicPartition("t", 0);
  private static final TopicPartition B = new TopicPartition("t", 1);
  private static final TopicPartition OTHER = new TopicPartition("other", 0);

  private final FakeKafka kafka = new FakeKafka();
  private final List<FakeKafka> opened = new CopyOnWriteArrayList<>();
  private final List<Gone> gone = new ArrayList<>();
  /** The least bound that one consumer can have. */
  private static final long SMALL = 256 << 10;

  private final Memory memory = new Memory(64 << 20);
  private final CachedConsumer consumer =
      new CachedConsumer("k:9092", this::open, memory, TimeUnit.MILLISECONDS.toNanos(100));

  private long lease = consumer.lease();
  private volatile boolean everyClientIsSilentOfA;

  private FakeKafka open(Memory.Share share, Valve valve) {
    opened.add(opened.isEmpty() ? kafka : new FakeKafka(kafka));
    var client = opened.get(opened.size() - 1);
    if (everyClientIsSilentOfA) {
      client.silence(A);
    }
    return client;
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
      consumer.giveBack(lease, chunk);
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
  void partitionThatEndsBeforeTheRangeFailsItsTaskAndIsReadUpToThere() throws Exception {
    kafka.write(A, 0, 100);
    kafka.write(B, 0, 10);
    consumer.start();
    read(Map.of(A, new Range(0, 50), B, new Range(0, 10)));
    eventually(() -> kafka.readTo(A) == 100, "all is read ahead");
    kafka.truncate(A, 90);
    consumer.hold(lease, Map.of(A, new Range(50, 120), B, new Range(10, 10)));
    assertFailure("MISSING: topic 't', partition 0, offset 100: Kafka at k:9092: it ends at offset 90");
    assertEquals(offsets(50, 90), read(A, 50, 90));
    assertEquals(1, opened.size());
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
  void partitionThatIsNotThereFailsItsTaskWhileOthersFlow() throws Exception {
    kafka.write(A, 0, 10);
    kafka.write(B, 0, 20);
    consumer.start();
    read(Map.of(A, new Range(0, 10), B, new Range(0, 10)));
    kafka.delete(A);
    consumer.hold(lease, Map.of(A, new Range(10, 20), B, new Range(10, 10)));
    assertFailure("MISSING: topic 't', partition 0, offset 10: Kafka at k:9092: it is not there");
    assertEquals(offsets(10, 20), read(Map.of(A, new Range(10, 10), B, new Range(10, 20))).get(B));
    kafka.write(A, 0, 20);
    assertEquals(offsets(0, 20), read(A, 0, 20), "it was made again");
  }

  @Test
  void epochIsForgottenThatTheTopicsLeaderHasNotHeardOf() throws Exception {
    kafka.epoch(A, 4);
    kafka.write(A, 0, 10);
    kafka.write(B, 0, 10);
    consumer.start();
    read(Map.of(A, new Range(0, 10), B, new Range(0, 10)));
    kafka.remake(A, 20);
    eventually(() -> kafka.forksSeen() > 0, "the client sees it while no task asks");
    assertEquals(offsets(10, 20), read(Map.of(A, new Range(10, 20), B, new Range(10, 10))).get(A));
    assertEquals(offsets(0, 20), read(Map.of(A, new Range(0, 20), B, new Range(10, 10))).get(A));
    assertEquals(1, opened.size(), "no client is at a loss");
  }

  /** All room for reading ahead is used, and no more. */
  private void fill(TopicPartition tp) throws Exception {
    long[] before = {-1};
    eventually(() -> kafka.readTo(tp) == before[0] || (before[0] = pause(kafka.readTo(tp))) < 0, "it stops");
    assertTrue(memory.held() <= SMALL && memory.held() > SMALL - 40_000, "held: " + memory.held());
  }

  private static long pause(long result) {
    try {
      Thread.sleep(50);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return result;
  }

  @Test
  void readingAheadStopsAtTheBoundAndGoesOnAsTasksTake() throws Exception {
    memory.limit(SMALL, 1);
    kafka.write(A, 0, 3000);
    consumer.start();
    read(A, 0, 10);
    fill(A);
    assertTrue(kafka.readTo(A) < 2000, "read up to " + kafka.readTo(A));
    assertEquals(offsets(10, 3000), read(A, 10, 3000));
  }

  @Test
  void taskThatWaitsHasWhatWasReadAheadOfOthersGivenUp() throws Exception {
    memory.limit(SMALL, 1);
    kafka.write(A, 0, 3000);
    kafka.bounds(B, 0, 0);
    consumer.start();
    read(Map.of(A, new Range(0, 10), B, new Range(0, 0)));
    fill(A);
    kafka.write(B, 0, 300);
    assertEquals(offsets(0, 300), read(Map.of(A, new Range(10, 10), B, new Range(0, 300))).get(B));
    assertTrue(memory.held() <= SMALL, "held: " + memory.held());
    assertEquals(offsets(10, 3000), read(Map.of(A, new Range(10, 3000), B, new Range(300, 300))).get(A));
  }

  @Test
  void recordLargerThanTheBoundPassesAlone() throws Exception {
    memory.limit(SMALL, 1);
    kafka.write(A, 0, 5);
    kafka.put(FakeKafka.record(A, 2, null, "x".repeat(2 * (int) SMALL)));
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 5)));
    var sizes = new ArrayList<Long>();
    for (Chunk chunk = consumer.take(lease, 5); chunk != null; chunk = consumer.take(lease, 5)) {
      sizes.add(chunk.size());
      consumer.giveBack(lease, chunk);
    }
    assertTrue(sizes.stream().mapToLong(size -> size).sum() > 2 * SMALL);
    eventually(() -> memory.held() <= SMALL, "it is not kept");
  }

  @Test
  void whatATaskHasDoesNotCountAfterItsLease() throws Exception {
    memory.limit(SMALL, 1);
    kafka.write(A, 0, 100);
    consumer.start();
    for (int i = 0; i < 1000; i++) {
      consumer.hold(lease, Map.of(A, new Range(0, 100)));
      consumer.take(lease, 5);
      consumer.release(() -> {});
      lease = consumer.lease();
    }
    assertEquals(offsets(0, 100), read(A, 0, 100));
    assertTrue(memory.held() <= SMALL, "held: " + memory.held());
  }

  @Test
  void closedConsumerHoldsNothing() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    read(A, 0, 50);
    consumer.close();
    eventually(() -> memory.held() == 0, "all is given up");
  }

  @Test
  void errorOfTheWholeClientFailsTheTaskAndEndsTheConsumer() throws Exception {
    kafka.write(A, 0, 10);
    kafka.fail(new SaslAuthenticationException("who are you?"));
    consumer.start();
    var error = assertThrows(IOException.class, () -> read(A, 0, 10));
    assertTrue(error.getMessage().startsWith("KAFKA: topic 't', partition 0, offset 0: Kafka at k:9092: "), error.getMessage());
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
    assertFalse(kafka.left(), "what it has of others stays");
    assertEquals(List.of(), gone);
    int before = opened.get(1).seeks();
    assertEquals(offsets(100, 150), readWritten(150));
    assertEquals(before, opened.get(1).seeks(), "it goes on there");
  }

  @Test
  void partitionThatAnotherClientGetsNothingOfFailsItsTaskAndMendsByItself() throws Exception {
    kafka.write(A, 0, 100);
    kafka.write(B, 0, 100);
    everyClientIsSilentOfA = true;
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 10), B, new Range(0, 0)));
    assertFailure("SILENT: topic 't', partition 0, offset 0: ");
    assertEquals(offsets(0, 100), read(Map.of(A, new Range(0, 0), B, new Range(0, 100))).get(B));
    everyClientIsSilentOfA = false;
    eventually(() -> {
      opened.forEach(each -> each.hear(A));
      return opened.stream().anyMatch(each -> each.readTo(A) == 100);
    }, "it is read again");
    assertEquals(offsets(0, 10), read(Map.of(A, new Range(0, 10), B, new Range(100, 100))).get(A));
  }

  @Test
  void clientThatDoesNotSayWhereASilentPartitionEndsIsReplaced() throws Exception {
    kafka.write(A, 0, 100);
    consumer.start();
    read(Map.of(A, new Range(0, 10)));
    kafka.outdate(A);
    assertEquals(offsets(5, 100), read(Map.of(A, new Range(5, 100))).get(A));
    assertEquals(2, opened.size());
  }

  private List<Long> readWritten(long to) throws Exception {
    kafka.write(A, 100, to);
    return read(Map.of(A, new Range(100, to), B, new Range(100, 100))).get(A);
  }

  @Test
  void partitionThatQueuesBehindASlowTaskIsNoFalseAlarm() throws Exception {
    memory.limit(SMALL, 1);
    kafka.write(A, 0, 3000);
    kafka.write(B, 0, 10);
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 3000), B, new Range(0, 10)));
    var taken = new ArrayList<Long>();
    for (Chunk chunk = consumer.take(lease, 5); chunk != null; chunk = consumer.take(lease, 5)) {
      if (taken.isEmpty()) {
        Thread.sleep(500); // far longer than silence may last
      }
      for (int row = 0; row < chunk.rows(); row++) {
        taken.add(chunk.offset(row));
      }
      consumer.giveBack(lease, chunk);
    }
    assertEquals(3010, taken.size());
    assertEquals(1, opened.size());
  }

  /** Take until a partition fails. */
  private ReadException failure() {
    return assertThrows(ReadException.class, () -> {
      for (Chunk chunk = consumer.take(lease, 5); chunk != null; chunk = consumer.take(lease, 5)) {
        consumer.giveBack(lease, chunk);
      }
    });
  }

  private void assertFailure(String begins) {
    var message = failure().getMessage();
    assertTrue(message.startsWith(begins), message);
  }

  @Test
  void unreadablePartitionFailsOnlyTheTaskThatWantsIt() throws Exception {
    kafka.write(A, 0, 10);
    kafka.write(OTHER, 0, 10);
    consumer.start();
    kafka.fail(OTHER, new TopicAuthorizationException(Set.of("other")));
    assertEquals(offsets(0, 10), read(Map.of(A, new Range(0, 10), OTHER, new Range(0, 0))).get(A));
    consumer.hold(lease, Map.of(A, new Range(0, 10), OTHER, new Range(0, 10)));
    var error = failure();
    assertTrue(error.getMessage().startsWith("RIGHT: topic 'other', partition 0, offset 0: Kafka at k:9092: "), error.getMessage());
    assertEquals(offsets(0, 10), read(Map.of(A, new Range(0, 10), OTHER, new Range(0, 0))).get(A));
    assertEquals(1, opened.size(), "the client stays");
  }

  @Test
  void mendedPartitionIsReadAgainByItself() throws Exception {
    kafka.write(A, 0, 10);
    kafka.fail(A, new TopicAuthorizationException(Set.of("t")));
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 10)));
    failure();
    kafka.fail(A, null);
    eventually(() -> kafka.readTo(A) == 10, "it is read");
    assertEquals(offsets(0, 10), read(A, 0, 10));
  }

  @Test
  void damagedRecordIsNamedByItsOffsetAndSeekPassesIt() throws Exception {
    kafka.write(A, 0, 10);
    consumer.start();
    read(A, 0, 4);
    eventually(() -> kafka.readTo(A) == 10, "the rest is read ahead");
    kafka.fail(A, new KafkaException("Received exception when fetching the next record from t-0. If needed, please seek"));
    kafka.write(A, 10, 20);
    consumer.hold(lease, Map.of(A, new Range(4, 20)));
    var error = failure();
    assertTrue(error.getMessage().startsWith("CORRUPT: topic 't', partition 0, offset 10: "), error.getMessage());
    kafka.fail(A, null);
    assertEquals(offsets(11, 20), read(A, 11, 20), "at once, since it is read elsewhere");
  }

  @Test
  void partitionsWithoutALeaderAreNamedTogetherWhileOthersFlow() throws Exception {
    for (var tp : List.of(A, B, OTHER)) {
      kafka.write(tp, 0, 10);
    }
    kafka.leaderless(B, true);
    kafka.leaderless(OTHER, true);
    consumer.start();
    consumer.hold(lease, Map.of(A, new Range(0, 10), B, new Range(0, 10), OTHER, new Range(0, 10)));
    var said = failure().getMessage();
    for (var line : List.of("LEADER: topic 't', partition 1, offset 0: ", "LEADER: topic 'other', partition 0, offset 0: ")) {
      assertTrue(said.startsWith(line) || said.contains("\nReadException: " + line), said);
    }
    var flows = Map.of(A, new Range(0, 10), B, new Range(0, 0), OTHER, new Range(0, 0));
    assertEquals(offsets(0, 10), read(flows).get(A));
  }

  @Test
  void partitionThatIsStillWithoutALeaderHoldsUpNoFurtherTask() throws Exception {
    kafka.write(A, 0, 10);
    kafka.leaderless(A, true);
    var patient = new CachedConsumer("k:9092", this::open, memory, TimeUnit.SECONDS.toNanos(5));
    patient.start();
    long lease = patient.lease();
    patient.hold(lease, Map.of(A, new Range(0, 10)));
    assertThrows(ReadException.class, () -> patient.take(lease, 20));
    Thread.sleep(5_500); // it is tried again
    patient.hold(lease, Map.of(A, new Range(0, 10)));
    long began = System.nanoTime();
    assertThrows(ReadException.class, () -> patient.take(lease, 20));
    assertTrue(System.nanoTime() - began < TimeUnit.SECONDS.toNanos(2), "another 3 s");
    patient.close();
  }

  @Test
  void errorOfAPartitionIsNotTakenForThatOfAnotherWhoseNameIsLonger() {
    var one = new TopicPartition("a.t", 1);
    var other = new TopicPartition("t", 1);
    var third = new TopicPartition("t", 11);
    var error = new KafkaException("Encountered corrupt message when fetching offset 5 for topic-partition t-1");
    assertEquals(List.of(other), Fault.partitionsOf(error, List.of(one, other, third)));
    var refused = new TopicAuthorizationException(Set.of("a.t"));
    assertEquals(List.of(one), Fault.partitionsOf(refused, List.of(one, other, third)));
    assertEquals(List.of(), Fault.partitionsOf(new KafkaException("no broker"), List.of(one, other)));
    assertEquals(ReadException.Kind.CODEC, Fault.kindOf(new KafkaException("x", new NoClassDefFoundError("zstd"))));
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
