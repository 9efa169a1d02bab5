package muster.connector;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.SparkEnv;
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
  private final HeldBytes held;
  private final long maxReadAhead;
  private final int clients;

  /** About {@code clients} consumers are expected in an executor. {@code maxReadAhead} is in bytes; 0 is what is usual. */
  ReaderFactory(
      long readTimeout, GoneReports gone, LongAccumulator bytes, HeldBytes held, long maxReadAhead, int clients) {
    this.readTimeout = readTimeout;
    this.gone = gone;
    this.bytes = bytes;
    this.held = held;
    this.maxReadAhead = maxReadAhead;
    this.clients = clients;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    var memory = ConsumerPool.INSTANCE.memory();
    memory.limit(maxReadAhead > 0 ? maxReadAhead : Memory.usual(Runtime.getRuntime().maxMemory()), clients);
    try {
      var reader =
          new TaskReader((TaskPartition) partition, ConsumerPool.INSTANCE, readTimeout, gone::add, bytes::add);
      // What the executor holds as the task begins, from its last one: Spark may look before a task's readers are closed.
      held.add(new HeldBytes.Of(SparkEnv.get().executorId(), memory.held()));
      return reader;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("records are read in columns");
  }
}
