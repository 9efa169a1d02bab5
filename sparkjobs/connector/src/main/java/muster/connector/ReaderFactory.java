package muster.connector;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.LongAccumulator;

/** Makes the reader of a task, in an executor. Records are handed over in columns. */
final class ReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final long readTimeout;
  private final GoneReports gone;
  private final LongAccumulator bytes;

  ReaderFactory(long readTimeout, GoneReports gone, LongAccumulator bytes) {
    this.readTimeout = readTimeout;
    this.gone = gone;
    this.bytes = bytes;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    try {
      return new TaskReader((TaskPartition) partition, ConsumerPool.INSTANCE, readTimeout, gone::add, bytes::add);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("records are read in columns");
  }
}
