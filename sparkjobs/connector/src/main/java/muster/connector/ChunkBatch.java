package muster.connector;

import java.util.function.IntFunction;
import java.util.function.IntPredicate;
import java.util.function.IntToLongFunction;
import java.util.function.IntUnaryOperator;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's view of a chunk: {@link MusterSource#SCHEMA}, without a copy. One view shows one chunk after the other. */
final class ChunkBatch {
  private Chunk chunk;

  private final ColumnarBatch batch =
      new ColumnarBatch(
          new ColumnVector[] {
            new Column(DataTypes.BinaryType).nullUnless(row -> chunk.hasKey(row)).binary(row -> chunk.key(row)),
            new Column(DataTypes.BinaryType).nullUnless(row -> chunk.hasValue(row)).binary(row -> chunk.value(row)),
            new Column(DataTypes.StringType).text(row -> chunk.topic),
            new Column(DataTypes.IntegerType).integer(row -> chunk.tp.partition()),
            new Column(DataTypes.LongType).number(row -> chunk.offset(row)),
            new Column(DataTypes.TimestampType)
                .nullUnless(row -> chunk.hasTimestamp(row))
                .number(row -> chunk.timestamp(row)),
            new Column(DataTypes.IntegerType).integer(row -> chunk.timestampType(row)),
            headers()
          });

  /** The rows of {@code next}, until the next call. */
  ColumnarBatch of(Chunk next) {
    chunk = next;
    batch.setNumRows(next.rows());
    return batch;
  }

  private Column headers() {
    var elements =
        new Column(MusterSource.HEADER)
            .children(
                new Column(DataTypes.StringType).text(header -> chunk.headerKey(header)),
                new Column(DataTypes.BinaryType)
                    .nullUnless(header -> chunk.headerValue(header) != null)
                    .binary(header -> chunk.headerValue(header)));
    return new Column(DataTypes.createArrayType(MusterSource.HEADER))
        .nullUnless(row -> chunk.headers(row) > 0)
        .array(row -> new ColumnarArray(elements, chunk.firstHeader(row), chunk.headers(row)));
  }

  /** A column made of functions of the row; of its getters those work that its type has. */
  private static final class Column extends ColumnVector {
    private IntPredicate there;
    private IntFunction<byte[]> binary;
    private IntFunction<UTF8String> text;
    private IntUnaryOperator integer;
    private IntToLongFunction number;
    private IntFunction<ColumnarArray> array;
    private ColumnVector[] children = {};

    Column(DataType type) {
      super(type);
    }

    Column nullUnless(IntPredicate test) {
      there = test;
      return this;
    }

    Column binary(IntFunction<byte[]> get) {
      binary = get;
      return this;
    }

    Column text(IntFunction<UTF8String> get) {
      text = get;
      return this;
    }

    Column integer(IntUnaryOperator get) {
      integer = get;
      return this;
    }

    Column number(IntToLongFunction get) {
      number = get;
      return this;
    }

    Column array(IntFunction<ColumnarArray> get) {
      array = get;
      return this;
    }

    Column children(ColumnVector... of) {
      children = of;
      return this;
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
      return there != null;
    }

    @Override
    public int numNulls() {
      // Spark asks only whether there are any.
      return there != null ? 1 : 0;
    }

    @Override
    public boolean isNullAt(int row) {
      return there != null && !there.test(row);
    }

    @Override
    public byte[] getBinary(int row) {
      return isNullAt(row) ? null : binary.apply(row);
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return text.apply(row);
    }

    @Override
    public int getInt(int row) {
      return integer.applyAsInt(row);
    }

    @Override
    public long getLong(int row) {
      return number.applyAsLong(row);
    }

    @Override
    public ColumnarArray getArray(int row) {
      return isNullAt(row) ? null : array.apply(row);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return children[ordinal];
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
