package muster.connector;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the reader of a task, in an executor. Records are handed over in columns. */
final class ReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final long readTimeout;
  private final GoneReports gone;

  ReaderFactory(long readTimeout, GoneReports gone) {
    this.readTimeout = readTimeout;
    this.gone = gone;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new TaskReader((TaskPartition) partition, ConsumerPool.INSTANCE, readTimeout, gone::add);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("records are read in columns");
  }
}
