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
 * <p>All consumers together read ahead within one bound, see {@link Memory}.
 */
final class ConsumerPool {
  static final ConsumerPool INSTANCE =
      new ConsumerPool(new Memory(Memory.usual(Runtime.getRuntime().maxMemory())), ConsumerPool::open);

  interface Opener {
    Consumer<ByteBuffer, ByteBuffer> open(
        Map<String, String> settings, String clientId, Memory.Share share, Valve valve);
  }

  private final Memory memory;
  private final Opener opener;
  private final AtomicInteger made = new AtomicInteger();
  private final ConcurrentHashMap<Key, CachedConsumer> idle = new ConcurrentHashMap<>();

  /** The consumer of a slot for one Kafka cluster; with other settings it is another one. */
  private record Key(String slot, Map<String, String> settings) {}

  /** A task's hold of a consumer, by the number of its lease. */
  record Lease(CachedConsumer consumer, long number) {}

  ConsumerPool(Memory memory, Opener opener) {
    this.memory = memory;
    this.opener = opener;
  }

  Memory memory() {
    return memory;
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
            (share, valve) -> opener.open(cluster.settings(), "muster-" + made.incrementAndGet(), share, valve),
            memory);
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

  private static Consumer<ByteBuffer, ByteBuffer> open(
      Map<String, String> settings, String clientId, Memory.Share share, Valve valve) {
    Valve.quiet();
    return new KafkaConsumer<>(ConsumerSettings.of(settings, clientId, share), valve.keys, valve.values);
  }
}
