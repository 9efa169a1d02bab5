package muster.connector;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

class ChunkTest {
  private static final TopicPartition TP = new TopicPartition("t", 7);
  private static final UTF8String TOPIC = UTF8String.fromString("t");

  private static Chunk only(long from, long to, List<ConsumerRecord<ByteBuffer, ByteBuffer>> records) {
    return Chunk.of(TP, TOPIC, from, to, records, Chunk.Columns::new);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @Test
  void chunkKeepsKeysAndValuesThatAreNullOrEmpty() {
    var chunk =
        only(
            10,
            13,
            List.of(
                FakeKafka.record(TP, 10, null, "one"),
                FakeKafka.record(TP, 11, "k", null),
                FakeKafka.record(TP, 12, "", "")));
    assertEquals(3, chunk.rows());
    assertFalse(chunk.hasKey(0));
    assertArrayEquals(bytes("one"), chunk.value(0));
    assertArrayEquals(bytes("k"), chunk.key(1));
    assertNull(chunk.value(1));
    assertFalse(chunk.hasValue(1));
    assertTrue(chunk.hasKey(2));
    assertArrayEquals(new byte[0], chunk.key(2));
    assertArrayEquals(new byte[0], chunk.value(2));
    assertEquals(12, chunk.offset(2));
    assertEquals(12_000, chunk.timestamp(2));
  }

  @Test
  void chunkKeepsHeadersOfTheRecordsThatHaveAny() {
    var headers = new RecordHeaders().add("a", bytes("1")).add("b", null);
    var with =
        new ConsumerRecord<ByteBuffer, ByteBuffer>(
            "t", 7, 1, -1, TimestampType.NO_TIMESTAMP_TYPE, 0, 0, null, null, headers, Optional.empty());
    var chunk = only(0, 3, List.of(FakeKafka.record(TP, 0, null, "x"), with, FakeKafka.record(TP, 2, null, "y")));
    assertEquals(List.of(0, 2, 0), List.of(chunk.headers(0), chunk.headers(1), chunk.headers(2)));
    assertEquals(UTF8String.fromString("a"), chunk.headerKey(chunk.firstHeader(1)));
    assertArrayEquals(bytes("1"), chunk.headerValue(0));
    assertNull(chunk.headerValue(1));
    assertFalse(chunk.hasTimestamp(1));
    assertEquals(-1, chunk.timestampType(1));
    var rest = chunk.split(1)[1];
    assertEquals(2, rest.headers(0));
    assertEquals(0, rest.firstHeader(0));
    assertEquals(List.of(5L, 1L, 4L), List.of(chunk.size(), chunk.before(1).size(), rest.size()));
  }

  @Test
  void chunkSplitsAtAnOffsetThatHoldsNoRecord() {
    var chunk = only(10, 30, List.of(FakeKafka.record(TP, 12, null, "a"), FakeKafka.record(TP, 20, null, "b")));
    var before = chunk.split(15)[0];
    var since = chunk.split(15)[1];
    assertEquals(List.of(10L, 15L), List.of(before.from, before.to));
    assertEquals(List.of(15L, 30L), List.of(since.from, since.to));
    assertEquals(1, before.rows());
    assertEquals(20, since.offset(0));
    assertArrayEquals(bytes("b"), since.value(0));
  }

  @Test
  void columnsThatAreFilledAgainHoldNothingOfBefore() {
    var headers = new RecordHeaders().add("a", bytes("1"));
    var one =
        new ConsumerRecord<>(
            "t", 7, 0, 0, TimestampType.CREATE_TIME, 0, 0, FakeKafka.bytes("one"), FakeKafka.bytes("longer than afterwards"), headers, Optional.empty());
    var columns = only(0, 3, List.of(one, FakeKafka.record(TP, 1, "k", "b"), FakeKafka.record(TP, 2, "k", "c"))).used();
    var again = List.of(FakeKafka.record(TP, 8, "key", null), FakeKafka.record(TP, 9, null, "longer than before"));
    var chunk = Chunk.of(TP, TOPIC, 8, 10, again, sizes -> columns);
    assertSame(columns, chunk.used());
    assertEquals(2, chunk.rows());
    assertEquals(3 + 18, chunk.size());
    assertArrayEquals(bytes("key"), chunk.key(0));
    assertFalse(chunk.hasValue(0));
    assertFalse(chunk.hasKey(1));
    assertArrayEquals(bytes("longer than before"), chunk.value(1));
    assertEquals(List.of(8L, 9L), List.of(chunk.offset(0), chunk.offset(1)));
    assertEquals(List.of(0, 0), List.of(chunk.headers(0), chunk.headers(1)));
    assertEquals(1, chunk.split(9)[1].rows());
  }

  private static Chunk of(int rows, int size) {
    var records = new ArrayList<ConsumerRecord<ByteBuffer, ByteBuffer>>();
    for (long offset = 0; offset < rows; offset++) {
      records.add(FakeKafka.record(TP, offset, null, "x".repeat(size)));
    }
    return only(0, rows, records);
  }

  @Test
  void largerPartOfASplitChunkKeepsItsColumnsAndTheirMemoryCountsOnce() {
    var chunk = of(100, 1000);
    for (long at : List.of(1L, 30L, 50L, 70L, 99L, 100L)) {
      var parts = chunk.split(at);
      assertEquals(100, parts[0].rows() + parts[1].rows());
      boolean copied = at >= 50;
      assertSame(copied ? chunk.used() : null, parts[0].used(), "at " + at);
      assertEquals(!copied, parts[1].used() == chunk.used(), "at " + at);
      if (parts[1].rows() > 0) {
        assertEquals(at, parts[1].offset(0));
        assertEquals(1000, parts[1].value(0).length);
        assertTrue(!copied || parts[1].held() < 1200L * parts[1].rows() + 1000, "at " + at);
      }
    }
    assertNull(only(3, 5, List.of()).used());
  }

  @Test
  void chunkWhoseEndIsNotKeptTakesNoMoreThanTwiceItsRows() {
    var chunk = of(100, 1000);
    for (long at : List.of(1L, 30L, 70L)) {
      var kept = chunk.before(at);
      assertEquals(at, kept.rows());
      assertTrue(kept.held() < 2400 * at + 1000, kept.held() + " at " + at);
    }
  }

  @Test
  void copiedRowsKeepNullsAndHeaders() {
    var headers = new RecordHeaders().add("a", bytes("1")).add("b", null);
    var with =
        new ConsumerRecord<>(
            "t", 7, 3, 0, TimestampType.CREATE_TIME, 0, 0, FakeKafka.bytes("k"), FakeKafka.bytes("v"), headers, Optional.empty());
    var records = List.of(
        FakeKafka.record(TP, 0, "x", "one"), FakeKafka.record(TP, 1, null, "two"), FakeKafka.record(TP, 2, "y", null), with);
    var rest = only(0, 4, records).split(2)[1];
    assertEquals(2, rest.rows());
    assertArrayEquals(bytes("y"), rest.key(0));
    assertFalse(rest.hasValue(0));
    assertArrayEquals(bytes("v"), rest.value(1));
    assertEquals(List.of(0, 2), List.of(rest.headers(0), rest.headers(1)));
    assertEquals(UTF8String.fromString("b"), rest.headerKey(rest.firstHeader(1) + 1));
    assertEquals(3, rest.offset(1));
  }

  @Test
  void columnsAreFilledAgainOnlyWithAboutAsMuch() {
    var columns = of(100, 1000).used();
    assertTrue(columns.fit(new Chunk.Sizes(100, 0, 100_000, 0)));
    assertTrue(columns.fit(new Chunk.Sizes(70, 0, 70_000, 0)));
    assertFalse(columns.fit(new Chunk.Sizes(100, 0, 200_000, 0)), "too small");
    assertFalse(columns.fit(new Chunk.Sizes(1, 0, 100, 0)), "most of it would be free");
  }

  @Test
  void offsetsWithoutRecordsAreAnEmptyChunk() {
    assertEquals(0, only(3, 5, List.of()).rows());
    assertNull(Chunk.of(TP, TOPIC, 3, 3, List.of(), Chunk.Columns::new));
  }

  @Test
  void goneChunkSaysWhatOfItIsGoneWhenItIsSplit() {
    var gone = Chunk.gone(TP, TOPIC, 3, 9, 3, true);
    assertEquals(new Gone("t", 7, 3, 5, true), gone.before(5).gone);
    assertEquals(new Gone("t", 7, 5, 9, true), gone.split(5)[1].gone);
    var ended = Chunk.gone(TP, TOPIC, 3, 9, 1, false);
    assertEquals(new Gone("t", 7, 1, 5, false), ended.before(5).gone);
    assertEquals(new Gone("t", 7, 1, 9, false), ended.split(5)[1].gone);
  }

  @Test
  void sparkSeesEachColumn() {
    var headers = new RecordHeaders().add("a", bytes("1")).add("b", null);
    var with =
        new ConsumerRecord<>(
            "t",
            7,
            1,
            5,
            TimestampType.LOG_APPEND_TIME,
            0,
            0,
            FakeKafka.bytes("k"),
            FakeKafka.bytes("v"),
            headers,
            Optional.empty());
    var chunk = only(0, 2, List.of(FakeKafka.record(TP, 0, null, null), with));
    var batch = new ChunkBatch().of(chunk);
    assertEquals(2, batch.numRows());
    var first = batch.getRow(0);
    assertTrue(first.isNullAt(0) && first.isNullAt(1) && first.isNullAt(7));
    var second = batch.getRow(1);
    assertArrayEquals(bytes("k"), second.getBinary(0));
    assertArrayEquals(bytes("v"), second.getBinary(1));
    assertEquals("t", second.getUTF8String(2).toString());
    assertEquals(List.of(7, 1), List.of(second.getInt(3), second.getInt(6)));
    assertEquals(List.of(1L, 5_000L), List.of(second.getLong(4), second.getLong(5)));
    var array = second.getArray(7);
    assertEquals(2, array.numElements());
    assertEquals("a", array.getStruct(0, 2).getUTF8String(0).toString());
    assertArrayEquals(bytes("1"), array.getStruct(0, 2).getBinary(1));
    assertTrue(array.getStruct(1, 2).isNullAt(1));
  }
}
