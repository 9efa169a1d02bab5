package muster.connector;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Consecutive records of one partition in columns; or, without any record, offsets at which there is none.
 *
 * <p>A chunk reaches from {@link #from} to {@link #to}, the offset at which the next one begins; its records are the rows
 * {@code low} to {@code high} of the columns. Keys and values are each in one array, copied once out of what Kafka's client
 * has decompressed. The arrays are used again when the rows have been read.
 */
final class Chunk {
  /** Bytes of a chunk's keys, values and headers at which the next one begins: a batch of Spark's is one chunk. */
  static final int MOST_BYTES = 16 << 20;

  /** What a record takes besides its key, value and headers. */
  private static final int OVERHEAD = 40;

  final TopicPartition tp;
  final UTF8String topic;
  final long from;
  final long to;
  final int low;
  final int high;

  /** Kafka has no record here that was to be read; null if there is simply none. */
  final Gone gone;

  private final Columns columns;

  private Chunk(TopicPartition tp, UTF8String topic, long from, long to, int low, int high, Columns columns, Gone gone) {
    this.tp = tp;
    this.topic = topic;
    this.from = from;
    this.to = to;
    this.low = low;
    this.high = high;
    this.columns = columns;
    this.gone = gone;
  }

  /** Offsets that hold no record, as with compaction and the markers of transactions. */
  static Chunk empty(TopicPartition tp, UTF8String topic, long from, long to) {
    return new Chunk(tp, topic, from, to, 0, 0, Columns.NONE, null);
  }

  /** Offsets whose records are gone; a partition that ends may have ended before them, at {@code gone}. */
  static Chunk gone(TopicPartition tp, UTF8String topic, long from, long to, long gone, boolean deleted) {
    return new Chunk(
        tp, topic, from, to, 0, 0, Columns.NONE, new Gone(tp.topic(), tp.partition(), gone, to, deleted));
  }

  /**
   * The chunks of what was polled of a partition; {@code to} is the consumer's position afterwards. {@code columns} gives
   * new ones, or some that are to be filled again.
   */
  static List<Chunk> of(
      TopicPartition tp,
      UTF8String topic,
      long from,
      long to,
      List<ConsumerRecord<ByteBuffer, ByteBuffer>> records,
      Supplier<Columns> columns) {
    var chunks = new ArrayList<Chunk>();
    int first = 0;
    long start = from;
    var sizes = Sizes.NONE;
    for (int i = 0; i < records.size(); i++) {
      var record = records.get(i);
      var more = sizes.and(record);
      if (i > first && more.sum() > MOST_BYTES) {
        chunks.add(filled(tp, topic, start, record.offset(), records.subList(first, i), sizes, columns));
        first = i;
        start = record.offset();
        more = Sizes.NONE.and(record);
      }
      sizes = more;
    }
    if (first < records.size()) {
      chunks.add(filled(tp, topic, start, to, records.subList(first, records.size()), sizes, columns));
    } else if (to > from) {
      chunks.add(empty(tp, topic, from, to));
    }
    return chunks;
  }

  int rows() {
    return high - low;
  }

  /** The memory that the rows take, about. */
  long bytes() {
    return columns.rows == 0 ? 0 : columns.bytes * rows() / columns.rows;
  }

  /** The columns, to be filled again; null if there are none, or another chunk has rows of them that follow these. */
  Columns used() {
    return rows() > 0 && high == columns.rows ? columns : null;
  }

  /** The bytes of the rows' keys, values and headers. */
  long size() {
    long size = (long) columns.keys.size(low, high) + columns.values.size(low, high);
    for (int header = firstHeader(0); header < firstHeader(rows()); header++) {
      byte[] value = headerValue(header);
      size += headerKey(header).numBytes() + (value == null ? 0 : value.length);
    }
    return size;
  }

  /** What is before {@code offset}. */
  Chunk before(long offset) {
    return new Chunk(tp, topic, from, offset, low, row(offset), columns, gone(from, offset));
  }

  /** What begins at {@code offset}. */
  Chunk since(long offset) {
    return new Chunk(tp, topic, offset, to, row(offset), high, columns, gone(offset, to));
  }

  private Gone gone(long start, long end) {
    return gone == null
        ? null
        : new Gone(gone.topic(), gone.partition(), gone.deleted() ? start : gone.from(), end, gone.deleted());
  }

  /** The first row whose offset is not below {@code offset}. */
  private int row(long offset) {
    int found = Arrays.binarySearch(columns.offsets, low, high, offset);
    return found < 0 ? -found - 1 : found;
  }

  private static Chunk filled(
      TopicPartition tp,
      UTF8String topic,
      long from,
      long to,
      List<ConsumerRecord<ByteBuffer, ByteBuffer>> records,
      Sizes sizes,
      Supplier<Columns> columns) {
    return new Chunk(tp, topic, from, to, 0, records.size(), columns.get().fill(records, sizes), null);
  }

  /** The bytes of some records. */
  private record Sizes(int keys, int values, long headers) {
    static final Sizes NONE = new Sizes(0, 0, 0);

    Sizes and(ConsumerRecord<ByteBuffer, ByteBuffer> record) {
      long ofHeaders = 0;
      for (Header header : record.headers().toArray()) {
        ofHeaders += header.key().length() + (header.value() == null ? 0 : header.value().length);
      }
      return new Sizes(keys + length(record.key()), values + length(record.value()), headers + ofHeaders);
    }

    long sum() {
      return (long) keys + values + headers;
    }

    private static int length(ByteBuffer buffer) {
      return buffer == null ? 0 : buffer.remaining();
    }
  }

  // ---- one row, counted from `low`

  byte[] key(int row) {
    return columns.keys.get(low + row);
  }

  boolean hasKey(int row) {
    return columns.keys.isThere(low + row);
  }

  byte[] value(int row) {
    return columns.values.get(low + row);
  }

  boolean hasValue(int row) {
    return columns.values.isThere(low + row);
  }

  long offset(int row) {
    return columns.offsets[low + row];
  }

  /** Microseconds since 1970. */
  long timestamp(int row) {
    return columns.timestamps[low + row];
  }

  /** Kafka's number: -1 none, 0 set by the producer, 1 by the broker. */
  int timestampType(int row) {
    return columns.timestampTypes[low + row];
  }

  boolean hasTimestamp(int row) {
    return timestampType(row) != TimestampType.NO_TIMESTAMP_TYPE.id;
  }

  /** How many headers the record has. */
  int headers(int row) {
    int[] ends = columns.headerEnds;
    return ends == null ? 0 : ends[low + row] - firstHeader(row);
  }

  /** Where its headers begin among those of all rows. */
  int firstHeader(int row) {
    return low + row == 0 || columns.headerEnds == null ? 0 : columns.headerEnds[low + row - 1];
  }

  UTF8String headerKey(int header) {
    return columns.headerKeys.get(header);
  }

  byte[] headerValue(int header) {
    return columns.headerValues.get(header);
  }

  /** The rows of one chunk after the other: arrays that are large enough are filled again. */
  static final class Columns {
    private static final Columns NONE = new Columns();

    private final Bytes keys = new Bytes();
    private final Bytes values = new Bytes();
    private long[] offsets = {};
    private long[] timestamps = {};
    private byte[] timestampTypes = {};
    private int rows;
    private long bytes;

    /** The end of each record's headers; null where no record has any. */
    private int[] headerEnds;

    private final List<UTF8String> headerKeys = new ArrayList<>();
    private final List<byte[]> headerValues = new ArrayList<>();

    private Columns fill(List<ConsumerRecord<ByteBuffer, ByteBuffer>> records, Sizes sizes) {
      rows = records.size();
      if (offsets.length < rows) {
        offsets = new long[rows];
        timestamps = new long[rows];
        timestampTypes = new byte[rows];
      }
      keys.clear(rows, sizes.keys());
      values.clear(rows, sizes.values());
      headerEnds = null;
      headerKeys.clear();
      headerValues.clear();
      for (int row = 0; row < rows; row++) {
        var record = records.get(row);
        keys.set(row, record.key());
        values.set(row, record.value());
        offsets[row] = record.offset();
        timestamps[row] = record.timestamp() * 1000;
        timestampTypes[row] = (byte) record.timestampType().id;
        addHeaders(row, record);
      }
      bytes = sizes.sum() + (long) OVERHEAD * rows;
      return this;
    }

    private void addHeaders(int row, ConsumerRecord<ByteBuffer, ByteBuffer> record) {
      Header[] headers = record.headers().toArray();
      if (headerEnds == null && headers.length > 0) {
        headerEnds = new int[rows];
      }
      if (headerEnds != null) {
        for (Header header : headers) {
          headerKeys.add(UTF8String.fromString(header.key()));
          headerValues.add(header.value());
        }
        headerEnds[row] = headerKeys.size();
      }
    }
  }

  /** A column of bytes, all in one array. */
  private static final class Bytes {
    private byte[] data = {};

    /** Where each ends; the complement of it where there is none. */
    private int[] ends = {};

    void clear(int rows, int size) {
      if (data.length < size) {
        data = new byte[size];
      }
      if (ends.length < rows) {
        ends = new int[rows];
      }
    }

    /** Rows are set in their order. */
    void set(int row, ByteBuffer buffer) {
      int start = start(row);
      if (buffer == null) {
        ends[row] = ~start;
        return;
      }
      int length = buffer.remaining();
      buffer.get(buffer.position(), data, start, length);
      ends[row] = start + length;
    }

    /** Of the rows from {@code low} up to, not including, {@code high}. */
    int size(int low, int high) {
      return start(high) - start(low);
    }

    boolean isThere(int row) {
      return ends[row] >= 0;
    }

    byte[] get(int row) {
      return isThere(row) ? Arrays.copyOfRange(data, start(row), ends[row]) : null;
    }

    private int start(int row) {
      int end = row == 0 ? 0 : ends[row - 1];
      return end < 0 ? ~end : end;
    }
  }
}
