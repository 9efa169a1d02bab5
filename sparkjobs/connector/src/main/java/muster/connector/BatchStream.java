package muster.connector;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.util.LongAccumulator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's part of a query: has the agent plan each batch, and gives Spark the tasks of it.
 *
 * <p>An agent that does not answer for a moment fails nothing: no batch is planned until it answers. It lives in the
 * driver's script, so if it is gone for longer than {@link #PATIENCE}, the driver is dying, and the query fails.
 */
final class BatchStream implements MicroBatchStream, SupportsAdmissionControl, ReportsSourceMetrics {
  private static final Logger LOG = LoggerFactory.getLogger(BatchStream.class);

  /** Nanoseconds for which the agent may be out of reach. */
  private static final long PATIENCE = TimeUnit.SECONDS.toNanos(30);

  /** Batches whose plans are kept: more than one, for handlers that go on with a batch for a while in a thread. */
  private static final int KEPT = 64;

  private final String id = UUID.randomUUID().toString();
  private final AgentClient agent;
  private final long readTimeout;
  private final SparkContext spark = SparkContext.getOrCreate();
  private final ExecutorLocations locations = new ExecutorLocations();
  private final GoneReports gone = new GoneReports();

  /** Bytes of keys, values and headers that tasks have handed over since the query began. */
  private final LongAccumulator bytes = new LongAccumulator();

  private final HeldBytes held = new HeldBytes();
  private final long maxReadAhead;

  private final Map<String, NextBatch> plans =
      new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, NextBatch> eldest) {
          return size() > KEPT;
        }
      };
  private Map<String, String> metrics = Map.of();
  private long bytesBefore;
  private long agentLost;

  /**
   * {@code readTimeout} is in seconds, {@code maxReadAhead} in bytes; 0 is what is usual for the heap. Throws
   * {@link IllegalArgumentException} if that does not fit heap and cores.
   */
  BatchStream(AgentClient agent, long readTimeout, long maxReadAhead) {
    this.agent = agent;
    this.readTimeout = readTimeout;
    this.maxReadAhead = maxReadAhead;
    check(maxReadAhead);
    spark.register(gone);
    spark.register(bytes);
    spark.register(held);
    spark.addSparkListener(locations);
    addPresentExecutors();
  }

  @Override
  public Offset initialOffset() {
    return BatchOffset.NONE;
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new BatchOffset(json);
  }

  /** Of no importance: the agent decides how much a batch holds. */
  @Override
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.allAvailable();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a start and a limit where a source takes them");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    var missed = gone.value();
    bytesBefore = bytes.value();
    var news = new AgentClient.News(new LinkedHashSet<>(missed), bytesBefore, held());
    try {
      var next = agent.next((BatchOffset) start, Math.max(1, spark.defaultParallelism()), news);
      gone.remove(missed);
      agentLost = 0;
      remember(next);
      return next.end();
    } catch (IOException e) {
      waitForAgent(e);
      return start;
    }
  }

  /**
   * The tasks of the batch that ends with {@code end}; those of the same batch always read the same. The one that ends
   * where the query begins is for warming up: none of its records count, and there may be no plan of it.
   */
  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    NextBatch plan = planOf(end);
    if (plan == null) {
      return new InputPartition[0];
    }
    var tasks = new ArrayList<InputPartition>();
    for (int slot = 0; slot < plan.tasks().size(); slot++) {
      var clusters = clusters(plan, slot);
      if (clusters.stream().anyMatch(of -> of.ranges().values().stream().anyMatch(range -> !range.isEmpty()))) {
        tasks.add(
            new TaskPartition(
                id + "/" + slot, clusters, plan.failOnDataLoss(), locations.of(slot, plan.tasks().size()),
                spark.isLocal() ? "" : plan.state()));
      }
    }
    return tasks.toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ReaderFactory(readTimeout, gone, bytes, held, maxReadAhead, clients());
  }

  /** What the agent said when it planned the batch, and what the batch's tasks have read. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumed) {
    var all = new HashMap<>(metrics);
    all.put("bytesRead", Long.toString(bytes.value() - bytesBefore));
    return all;
  }

  /** Nothing: offsets are committed by the agent, when the handler has returned. */
  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {
    spark.removeSparkListener(locations);
    ConsumerPool.INSTANCE.close(id);
  }

  /** Executors that came before this query, which the listener has not heard of. */
  private void addPresentExecutors() {
    var there = SparkEnv.get().blockManager().master().getMemoryStatus().keysIterator();
    while (there.hasNext()) {
      var executor = there.next();
      locations.add(executor.executorId(), executor.host());
    }
  }

  private void check(long bound) {
    long heap =
        spark.isLocal()
            ? Runtime.getRuntime().maxMemory()
            : spark.conf().getSizeAsBytes("spark.executor.memory", "1g");
    if (bound > 0) {
      Memory.check(bound, heap);
    }
    var memory = new Memory(0);
    memory.limit(bound > 0 ? bound : Memory.usual(heap), clients());
    memory.share("");
  }

  /** How many tasks run at a time in an executor. */
  private int clients() {
    return Math.max(1, spark.isLocal() ? spark.defaultParallelism() : spark.conf().getInt("spark.executor.cores", 1));
  }

  /** The bytes that the consumers of all executors hold, or held when they ended their last tasks. */
  private long held() {
    return held.value().entrySet().stream()
        .filter(of -> of.getKey().equals("driver") || locations.isThere(of.getKey()))
        .mapToLong(Map.Entry::getValue)
        .sum();
  }

  private void waitForAgent(IOException error) {
    long now = System.nanoTime();
    if (agentLost == 0) {
      agentLost = now;
      LOG.warn("{}; no batch is planned until it answers", error.getMessage());
    }
    if (now - agentLost > PATIENCE) {
      throw new UncheckedIOException(error);
    }
  }

  private void remember(NextBatch next) {
    metrics = next.metrics();
    synchronized (plans) {
      plans.putIfAbsent(next.end().json(), next);
    }
  }

  private NextBatch planOf(Offset end) {
    synchronized (plans) {
      NextBatch plan = plans.get(end.json());
      if (plan == null && !end.json().equals(BatchOffset.NONE.json())) {
        throw new IllegalStateException(
            "the batch up to " + end.json() + " was not planned in this run of the query, or too long ago; use a batch "
                + "within its handler, and start the query with a new checkpoint");
      }
      return plan;
    }
  }

  private static List<TaskPartition.ClusterRanges> clusters(NextBatch plan, int slot) {
    var clusters = new ArrayList<TaskPartition.ClusterRanges>();
    plan.tasks().get(slot).forEach((servers, ranges) -> {
      var settings = new HashMap<>(plan.settings(servers));
      ConsumerSettings.check(settings);
      clusters.add(new TaskPartition.ClusterRanges(servers, settings, new LinkedHashMap<>(ranges)));
    });
    return clusters;
  }
}
