package muster.connector;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's view of a chunk: {@link MusterSource#SCHEMA}, without a copy. One view shows one chunk after the other.
 *
 * <p>Each column is a class of its own, so that the JIT inlines its getters where Spark's generated code calls them.
 */
final class ChunkBatch {
  private Chunk chunk;

  private final ColumnarBatch batch =
      new ColumnarBatch(
          new ColumnVector[] {
            new Key(), new Value(), new Topic(), new Partition(), new Offset(), new Timestamp(), new TimestampType(),
            new Headers()
          });

  /** The rows of {@code next}, until the next call. */
  ColumnarBatch of(Chunk next) {
    chunk = next;
    batch.setNumRows(next.rows());
    return batch;
  }

  private final class Key extends Column {
    Key() {
      super(DataTypes.BinaryType);
    }

    @Override
    public boolean isNullAt(int row) {
      return !chunk.hasKey(row);
    }

    @Override
    public byte[] getBinary(int row) {
      return chunk.key(row);
    }
  }

  private final class Value extends Column {
    Value() {
      super(DataTypes.BinaryType);
    }

    @Override
    public boolean isNullAt(int row) {
      return !chunk.hasValue(row);
    }

    @Override
    public byte[] getBinary(int row) {
      return chunk.value(row);
    }
  }

  private final class Topic extends Column {
    Topic() {
      super(DataTypes.StringType);
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return chunk.topic;
    }
  }

  private final class Partition extends Column {
    Partition() {
      super(DataTypes.IntegerType);
    }

    @Override
    public int getInt(int row) {
      return chunk.tp.partition();
    }
  }

  private final class Offset extends Column {
    Offset() {
      super(DataTypes.LongType);
    }

    @Override
    public long getLong(int row) {
      return chunk.offset(row);
    }
  }

  private final class Timestamp extends Column {
    Timestamp() {
      super(DataTypes.TimestampType);
    }

    @Override
    public boolean isNullAt(int row) {
      return !chunk.hasTimestamp(row);
    }

    @Override
    public long getLong(int row) {
      return chunk.timestamp(row);
    }
  }

  private final class TimestampType extends Column {
    TimestampType() {
      super(DataTypes.IntegerType);
    }

    @Override
    public int getInt(int row) {
      return chunk.timestampType(row);
    }
  }

  /** Null where a record has no header, as in Spark's own source. */
  private final class Headers extends Column {
    private final ColumnVector headers = new Header();

    Headers() {
      super(DataTypes.createArrayType(MusterSource.HEADER));
    }

    @Override
    public boolean isNullAt(int row) {
      return chunk.headers(row) == 0;
    }

    @Override
    public ColumnarArray getArray(int row) {
      return isNullAt(row) ? null : new ColumnarArray(headers, chunk.firstHeader(row), chunk.headers(row));
    }
  }

  /** Its rows are the headers of all records. */
  private final class Header extends Column {
    private final ColumnVector[] fields = {new HeaderKey(), new HeaderValue()};

    Header() {
      super(MusterSource.HEADER);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return fields[ordinal];
    }
  }

  private final class HeaderKey extends Column {
    HeaderKey() {
      super(DataTypes.StringType);
    }

    @Override
    public UTF8String getUTF8String(int header) {
      return chunk.headerKey(header);
    }
  }

  private final class HeaderValue extends Column {
    HeaderValue() {
      super(DataTypes.BinaryType);
    }

    @Override
    public boolean isNullAt(int header) {
      return chunk.headerValue(header) == null;
    }

    @Override
    public byte[] getBinary(int header) {
      return chunk.headerValue(header);
    }
  }

  /** A column without nulls, and without the getters of other types. */
  private abstract static class Column extends ColumnVector {
    Column(DataType type) {
      super(type);
    }

    @Override
    public void close() {}

    // Of these two Spark makes nothing but a guess at whether `isNullAt` is worth a call.

    @Override
    public boolean hasNull() {
      return true;
    }

    @Override
    public int numNulls() {
      return 1;
    }

    @Override
    public boolean isNullAt(int row) {
      return false;
    }

    @Override
    public byte[] getBinary(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public UTF8String getUTF8String(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public int getInt(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public long getLong(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnarArray getArray(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      throw new UnsupportedOperationException();
    }

    @Override
    public boolean getBoolean(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public byte getByte(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public short getShort(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public float getFloat(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public double getDouble(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnarMap getMap(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      throw new UnsupportedOperationException();
    }
  }
}
