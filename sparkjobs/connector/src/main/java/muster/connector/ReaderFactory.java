package muster.connector;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
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
  private static final String STORES = "muster-state";

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
    var task = (TaskPartition) partition;
    try {
      if (!task.state().isEmpty()) {
        SettingsServer.INSTANCE.give(task.state(), SparkEnv.get().executorId(), stores());
      }
      var reader =
          new TaskReader(task, ConsumerPool.INSTANCE, readTimeout, gone::add, bytes::add);
      // What the executor holds as the task begins, from its last one: Spark may look before a task's readers are closed.
      held.add(new HeldBytes.Of(SparkEnv.get().executorId(), memory.held()));
      return reader;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The folder of this executor's stores, which ends with it, as Python finds it by SPARK_LOCAL_DIRS. */
  private static Path stores() {
    return SparkEnv.get().blockManager().diskBlockManager().localDirs()[0].toPath().resolve(STORES);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("records are read in columns");
  }
}
