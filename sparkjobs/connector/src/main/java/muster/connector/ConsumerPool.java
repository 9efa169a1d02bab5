package muster.connector;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * The consumers of an executor, each leased to one task at a time.
 *
 * <p>Two tasks of one slot may run at once: a handler that goes through its batch in two threads, speculation, a task that
 * was believed dead. If they shared a consumer, each would take records from the other. So the second gets one of its own.
 *
 * <p>All consumers together read ahead within one bound, of which each partition has an even share.
 */
final class ConsumerPool {
  /** Bytes that are read ahead at most: enough for the time between two batches, and not more, because the heap grows. */
  private static final long MOST = 48L << 20;

  static final ConsumerPool INSTANCE =
      new ConsumerPool(Math.min(MOST, Runtime.getRuntime().maxMemory() / 8), ConsumerPool::open);

  interface Opener {
    Consumer<ByteBuffer, ByteBuffer> open(Map<String, String> settings, String clientId);
  }

  private final long bound;
  private final Opener opener;
  private final AtomicInteger partitions = new AtomicInteger();
  private final AtomicInteger made = new AtomicInteger();
  private final ConcurrentHashMap<Key, CachedConsumer> idle = new ConcurrentHashMap<>();

  /** The consumer of a slot for one Kafka cluster; with other settings it is another one. */
  private record Key(String slot, Map<String, String> settings) {}

  /** A task's hold of a consumer, by the number of its lease. */
  record Lease(CachedConsumer consumer, long number) {}

  /** {@code bound} is in bytes. */
  ConsumerPool(long bound, Opener opener) {
    this.bound = bound;
    this.opener = opener;
  }

  /** Lease the slot's consumer. It has to be given back. */
  Lease take(String slot, TaskPartition.ClusterRanges cluster) {
    var kept = idle.remove(new Key(slot, cluster.settings()));
    long number = kept == null ? 0 : kept.lease();
    if (number > 0) {
      return new Lease(kept, number);
    }
    var consumer =
        new CachedConsumer(
            cluster.servers(),
            () -> opener.open(cluster.settings(), "muster-" + made.incrementAndGet()),
            this::share,
            partitions::addAndGet);
    consumer.start();
    return new Lease(consumer, consumer.lease());
  }

  /** End the lease. */
  void giveBack(String slot, TaskPartition.ClusterRanges cluster, CachedConsumer consumer) {
    var key = new Key(slot, cluster.settings());
    // What closes by itself later takes itself out; the slot's next task would notice in any case.
    if (!consumer.release(() -> idle.remove(key, consumer)) || idle.putIfAbsent(key, consumer) != null) {
      consumer.close();
    }
  }

  /** Close the consumers of a query that wait for its next batch. */
  void close(String query) {
    idle.forEach((key, consumer) -> {
      if (key.slot().startsWith(query) && idle.remove(key, consumer)) {
        consumer.close();
      }
    });
  }

  /** How many bytes of a partition may be read ahead. */
  private long share() {
    return bound / Math.max(1, partitions.get());
  }

  private static Consumer<ByteBuffer, ByteBuffer> open(Map<String, String> settings, String clientId) {
    return new KafkaConsumer<>(ConsumerSettings.of(settings, clientId));
  }
}
