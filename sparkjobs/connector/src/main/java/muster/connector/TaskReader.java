package muster.connector;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Gives the records of a task's ranges, chunk by chunk, each partition's in order. */
final class TaskReader implements PartitionReader<ColumnarBatch> {
  private final TaskPartition task;
  private final ConsumerPool pool;
  private final long readTimeout;
  private final Consumer<Gone> report;
  private final LongConsumer read;
  private final List<ConsumerPool.Lease> leased = new ArrayList<>();
  private final ChunkBatch view = new ChunkBatch();
  private int current;
  private Chunk chunk;

  /** Spark's operators may read in another thread, and go on when the task has ended. */
  private volatile boolean closed;

  /**
   * {@code readTimeout} is in seconds. What Kafka does not have any more goes to {@code report}, the bytes of the records
   * to {@code read}.
   */
  TaskReader(TaskPartition task, ConsumerPool pool, long readTimeout, Consumer<Gone> report, LongConsumer read)
      throws IOException {
    this.task = task;
    this.pool = pool;
    this.readTimeout = readTimeout;
    this.report = report;
    this.read = read;
    try {
      // All clusters' at once, so that each reads ahead while another one is read.
      for (var cluster : task.clusters()) {
        var lease = pool.take(task.slot(), cluster);
        leased.add(lease);
        lease.consumer().hold(lease.number(), cluster.ranges());
      }
    } catch (IOException | RuntimeException e) {
      close();
      throw e;
    }
  }

  @Override
  public boolean next() throws IOException {
    if (closed) {
      throw new IOException("the task has ended; end what still reads for it, such as the writer of a script's input");
    }
    if (chunk != null) {
      leased.get(current).consumer().giveBack(leased.get(current).number(), chunk);
    }
    while (current < leased.size()) {
      chunk = take(leased.get(current));
      if (chunk == null) {
        current++;
      } else if (chunk.gone != null) {
        report.accept(chunk.gone);
        if (task.failOnDataLoss() && chunk.gone.deleted()) {
          throw new IOException(lost(chunk.gone));
        }
      } else if (chunk.rows() > 0) {
        read.accept(chunk.size());
        return true;
      }
    }
    return false;
  }

  @Override
  public ColumnarBatch get() {
    return view.of(chunk);
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    for (int i = 0; i < leased.size(); i++) {
      pool.giveBack(task.slot(), task.clusters().get(i), leased.get(i).consumer());
    }
  }

  private static String lost(Gone gone) {
    return "topic '" + gone.topic() + "', partition " + gone.partition() + ": the records from offset " + gone.from()
        + " up to " + gone.to() + " were deleted before they were read, and failOnDataLoss is true; the partition is "
        + "parked, and a person is asked";
  }

  private Chunk take(ConsumerPool.Lease lease) throws IOException {
    try {
      return lease.consumer().take(lease.number(), readTimeout);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the task was stopped");
    }
  }
}
