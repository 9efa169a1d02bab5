package muster.connector;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Consecutive records of one partition in columns; or, without any record, offsets at which there is none.
 *
 * <p>A chunk reaches from {@link #from} to {@link #to}, the offset at which the next one begins; its records are the rows
 * {@code low} to {@code high} of the columns. Keys and values are each in one array, copied once out of what Kafka's client
 * has decompressed. The arrays are used again when the rows have been read.
 *
 * <p>Of two chunks that share columns one counts their memory: the one that is kept longer.
 */
final class Chunk {
  /** Bytes of a chunk and its columns without any row. */
  private static final int EMPTY = 512;

  final TopicPartition tp;
  final UTF8String topic;
  final long from;
  final long to;
  final int low;
  final int high;

  /** Kafka has no record here that was to be read; null if there is simply none. */
  final Gone gone;

  private final Columns columns;

  /** Whether the columns' memory counts for this chunk. */
  private final boolean owner;

  private Chunk(
      TopicPartition tp,
      UTF8String topic,
      long from,
      long to,
      int low,
      int high,
      Columns columns,
      boolean owner,
      Gone gone) {
    this.tp = tp;
    this.topic = topic;
    this.from = from;
    this.to = to;
    this.low = low;
    this.high = high;
    this.columns = columns;
    this.owner = owner;
    this.gone = gone;
  }

  /** Offsets that hold no record, as with compaction and the markers of transactions. */
  static Chunk empty(TopicPartition tp, UTF8String topic, long from, long to) {
    return new Chunk(tp, topic, from, to, 0, 0, Columns.NONE, false, null);
  }

  /** Offsets whose records are gone; a partition that ends may have ended before them, at {@code gone}. */
  static Chunk gone(TopicPartition tp, UTF8String topic, long from, long to, long gone, boolean deleted) {
    return new Chunk(
        tp, topic, from, to, 0, 0, Columns.NONE, false, new Gone(tp.topic(), tp.partition(), gone, to, deleted));
  }

  /**
   * What was polled of a partition; {@code to} is the consumer's position afterwards. Null if there is nothing.
   * {@code columns} gives new ones, or some that are to be filled again.
   */
  static Chunk of(
      TopicPartition tp,
      UTF8String topic,
      long from,
      long to,
      List<ConsumerRecord<ByteBuffer, ByteBuffer>> records,
      Function<Sizes, Columns> columns) {
    if (records.isEmpty()) {
      return to > from ? empty(tp, topic, from, to) : null;
    }
    var sizes = Sizes.of(records);
    return new Chunk(tp, topic, from, to, 0, records.size(), columns.apply(sizes).fill(records, sizes), true, null);
  }

  int rows() {
    return high - low;
  }

  /** The bytes of memory that count for this chunk: its columns' whole arrays. */
  long held() {
    return owner ? columns.capacity() : EMPTY;
  }

  /** The columns, to be filled again; null if there are none, or another chunk counts them. */
  Columns used() {
    return owner ? columns : null;
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

  /** What is before {@code offset}, where the rest is not kept. */
  Chunk before(long offset) {
    int row = row(offset);
    return row - low < columns.rows / 2 ? copied(from, offset, low, row) : shared(from, offset, low, row, owner);
  }

  /** What is before {@code offset}, and what begins there, which is kept longer: copied where it is the smaller part. */
  Chunk[] split(long offset) {
    int row = row(offset);
    boolean copies = high - row <= columns.rows / 2;
    return new Chunk[] {
      shared(from, offset, low, row, owner && copies),
      copies ? copied(offset, to, row, high) : shared(offset, to, row, high, owner)
    };
  }

  private Chunk shared(long start, long end, int first, int last, boolean owns) {
    return new Chunk(tp, topic, start, end, first, last, columns, owns, gone(start, end));
  }

  private Chunk copied(long start, long end, int first, int last) {
    boolean empty = first == last;
    var copy = empty ? Columns.NONE : columns.copy(first, last);
    return new Chunk(tp, topic, start, end, 0, last - first, copy, !empty, gone(start, end));
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

  /** The number of some records and their bytes. */
  record Sizes(int rows, int keys, int values, long headers) {
    /** What a header takes besides its key and value. */
    private static final int HEADER = 96;

    static Sizes of(List<ConsumerRecord<ByteBuffer, ByteBuffer>> records) {
      int keys = 0;
      int values = 0;
      long headers = 0;
      for (var record : records) {
        keys = Math.addExact(keys, length(record.key()));
        values = Math.addExact(values, length(record.value()));
        headers += of(record.headers());
      }
      return new Sizes(records.size(), keys, values, headers);
    }

    /** The bytes of headers, and of the objects that hold them. */
    static long of(Headers headers) {
      long sum = 0;
      for (Header header : headers.toArray()) {
        sum += HEADER + header.key().length() + (header.value() == null ? 0 : header.value().length);
      }
      return sum;
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

  /** The rows of one chunk after the other. */
  static final class Columns {
    private static final Columns NONE = new Columns(new Sizes(0, 0, 0, 0));

    /** Bytes of a row in the arrays that have one element a row. */
    private static final int ROW = 25;

    private final Bytes keys;
    private final Bytes values;
    private final long[] offsets;
    private final long[] timestamps;
    private final byte[] timestampTypes;
    private int rows;
    private long headers;

    /** The end of each record's headers; null where no record has any. */
    private int[] headerEnds;

    private final List<UTF8String> headerKeys = new ArrayList<>();
    private final List<byte[]> headerValues = new ArrayList<>();

    /** Columns for records of about these sizes. */
    Columns(Sizes sizes) {
      int most = rounded(sizes.rows());
      keys = new Bytes(most, rounded(sizes.keys()));
      values = new Bytes(most, rounded(sizes.values()));
      offsets = new long[most];
      timestamps = new long[most];
      timestampTypes = new byte[most];
    }

    /** At most an eighth more, so that what comes next, about as large, fits as well. */
    private static int rounded(int size) {
      int step = Math.max(1, Integer.highestOneBit(size) >> 3);
      return (int) Math.min(Integer.MAX_VALUE - 8, ((long) size + step - 1) / step * step);
    }

    /** The bytes of all arrays. */
    long capacity() {
      return EMPTY + keys.data.length + values.data.length + (long) ROW * offsets.length + headers;
    }

    /** Whether these records fit, and leave no more free than they take. */
    boolean fit(Sizes sizes) {
      return !isSmallerThan(sizes)
          && offsets.length <= 2 * sizes.rows()
          && (long) keys.data.length + values.data.length <= 2L * ((long) sizes.keys() + sizes.values());
    }

    /** Whether these records do not fit. */
    boolean isSmallerThan(Sizes sizes) {
      return offsets.length < sizes.rows() || keys.data.length < sizes.keys() || values.data.length < sizes.values();
    }

    private Columns copy(int low, int high) {
      var copy = new Columns(new Sizes(high - low, keys.size(low, high), values.size(low, high), 0));
      copy.rows = high - low;
      copy.keys.copy(keys, low, high);
      copy.values.copy(values, low, high);
      System.arraycopy(offsets, low, copy.offsets, 0, copy.rows);
      System.arraycopy(timestamps, low, copy.timestamps, 0, copy.rows);
      System.arraycopy(timestampTypes, low, copy.timestampTypes, 0, copy.rows);
      if (headerEnds != null) {
        copy.copyHeaders(this, low, high);
      }
      return copy;
    }

    private void copyHeaders(Columns of, int low, int high) {
      int first = low == 0 ? 0 : of.headerEnds[low - 1];
      int last = high == 0 ? 0 : of.headerEnds[high - 1];
      headerEnds = new int[rows];
      for (int row = 0; row < rows; row++) {
        headerEnds[row] = of.headerEnds[low + row] - first;
      }
      headerKeys.addAll(of.headerKeys.subList(first, last));
      headerValues.addAll(of.headerValues.subList(first, last));
      for (int header = 0; header < headerKeys.size(); header++) {
        byte[] value = headerValues.get(header);
        headers += Sizes.HEADER + headerKeys.get(header).numBytes() + (value == null ? 0 : value.length);
      }
    }

    private Columns fill(List<ConsumerRecord<ByteBuffer, ByteBuffer>> records, Sizes sizes) {
      rows = records.size();
      headers = sizes.headers();
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
    private final byte[] data;

    /** Where each ends; the complement of it where there is none. */
    private final int[] ends;

    Bytes(int rows, int size) {
      data = new byte[size];
      ends = new int[rows];
    }

    void copy(Bytes of, int low, int high) {
      int first = of.start(low);
      System.arraycopy(of.data, first, data, 0, of.size(low, high));
      for (int row = low; row < high; row++) {
        int end = of.ends[row];
        ends[row - low] = end < 0 ? ~(~end - first) : end - first;
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
