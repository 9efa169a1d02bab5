package muster.connector;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/** Kafka's consumer over partitions in memory, which a test changes while it is read. */
final class FakeKafka extends MockConsumer<ByteBuffer, ByteBuffer> {
  private static final int MOST = 3;
  private static final Node NODE = new Node(1, "k", 9092);

  private final Map<TopicPartition, TreeMap<Long, ConsumerRecord<ByteBuffer, ByteBuffer>>> records;
  private final Map<TopicPartition, Range> bounds;
  private final Map<TopicPartition, Integer> epochs;
  private final Set<TopicPartition> silent = new HashSet<>();
  private final Set<TopicPartition> outdated = new HashSet<>();
  private final Map<TopicPartition, Long> positions = new HashMap<>();
  private final Set<TopicPartition> paused = new HashSet<>();
  private final Map<TopicPartition, Long> forks = new HashMap<>();
  private final Set<TopicPartition> remade = new HashSet<>();
  private int forksSeen;
  private final Set<TopicPartition> leaderless = new HashSet<>();
  private final Map<TopicPartition, KafkaException> failures = new HashMap<>();
  private KafkaException failure;
  private int seeks;
  private boolean left;

  FakeKafka() {
    super("none");
    records = new HashMap<>();
    bounds = new HashMap<>();
    epochs = new HashMap<>();
  }

  /** Another client of the same Kafka. */
  FakeKafka(FakeKafka of) {
    super("none");
    records = of.records;
    bounds = of.bounds;
    epochs = of.epochs;
  }

  static ConsumerRecord<ByteBuffer, ByteBuffer> record(TopicPartition tp, long offset, String key, String value) {
    return record(tp, offset, key, value, Optional.empty());
  }

  private static ConsumerRecord<ByteBuffer, ByteBuffer> record(
      TopicPartition tp, long offset, String key, String value, Optional<Integer> epoch) {
    return new ConsumerRecord<>(
        tp.topic(),
        tp.partition(),
        offset,
        offset,
        TimestampType.CREATE_TIME,
        0,
        0,
        bytes(key),
        bytes(value),
        new RecordHeaders(),
        epoch);
  }

  static ByteBuffer bytes(String text) {
    return text == null ? null : ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
  }

  // ---- what the test changes

  synchronized void write(TopicPartition tp, long from, long to) {
    for (long offset = from; offset < to; offset++) {
      records.computeIfAbsent(tp, of -> new TreeMap<>()).put(offset, record(tp, offset, null, "v" + offset, Optional.ofNullable(epochs.get(tp))));
    }
    bounds(tp, bounds.getOrDefault(tp, new Range(0, 0)).from(), to);
  }

  synchronized void put(ConsumerRecord<ByteBuffer, ByteBuffer> record) {
    records.get(new TopicPartition(record.topic(), record.partition())).put(record.offset(), record);
  }

  synchronized void bounds(TopicPartition tp, long begin, long end) {
    bounds.put(tp, new Range(begin, end));
  }

  synchronized void truncate(TopicPartition tp, long end) {
    records.get(tp).tailMap(end, true).clear();
    bounds(tp, bounds.get(tp).from(), end);
  }

  /** A new leader has other records from {@code from} on, up to {@code to}; this client sees it until it seeks. */
  synchronized void fork(TopicPartition tp, long from, long to) {
    truncate(tp, from);
    write(tp, from, to);
    forks.put(tp, from);
  }

  /** The partition's leader writes from now on with this epoch. */
  synchronized void epoch(TopicPartition tp, int epoch) {
    epochs.put(tp, epoch);
  }

  /** The topic is created again, with records up to {@code to} and earlier epochs; this client sees it until it seeks. */
  synchronized void remake(TopicPartition tp, long to) {
    delete(tp);
    epoch(tp, 0);
    write(tp, 0, to);
    remade.add(tp);
  }

  synchronized int forksSeen() {
    return forksSeen;
  }

  synchronized void delete(TopicPartition tp) {
    records.remove(tp);
    bounds.remove(tp);
  }

  /** This client gives nothing of the partition any more. */
  synchronized void silence(TopicPartition tp) {
    silent.add(tp);
  }

  /** This client gives something of the partition again. */
  synchronized void hear(TopicPartition tp) {
    silent.remove(tp);
  }

  /** Nor does this client say where the partition begins and ends, as when it remembers a later epoch of its leader. */
  synchronized void outdate(TopicPartition tp) {
    silence(tp);
    outdated.add(tp);
  }

  synchronized void fail(KafkaException with) {
    failure = with;
  }

  /** From now on, polling the partition fails so; null: it does not. */
  synchronized void fail(TopicPartition tp, KafkaException with) {
    failures.put(tp, with);
  }

  /** The partition has no leader, and gives nothing. */
  synchronized void leaderless(TopicPartition tp, boolean is) {
    if (is) {
      leaderless.add(tp);
    } else {
      leaderless.remove(tp);
    }
  }

  synchronized int seeks() {
    return seeks;
  }

  synchronized boolean left() {
    return left;
  }

  synchronized long readTo(TopicPartition tp) {
    return positions.getOrDefault(tp, -1L);
  }

  // ---- what the consumer calls

  @Override
  public synchronized void assign(Collection<TopicPartition> partitions) {
    positions.keySet().retainAll(partitions);
    paused.retainAll(partitions);
    partitions.forEach(tp -> positions.putIfAbsent(tp, 0L));
  }

  @Override
  public synchronized Set<TopicPartition> assignment() {
    return Set.copyOf(positions.keySet());
  }

  @Override
  public synchronized void seek(TopicPartition tp, long offset) {
    seeks++;
    forks.remove(tp);
    remade.remove(tp);
    positions.put(tp, offset);
  }

  @Override
  public synchronized void seek(TopicPartition tp, OffsetAndMetadata offset) {
    if (offset.leaderEpoch().orElse(-1) > epochs.getOrDefault(tp, -1)) {
      outdate(tp);
    }
    seek(tp, offset.offset());
  }

  @Override
  public synchronized void pause(Collection<TopicPartition> partitions) {
    paused.addAll(partitions);
  }

  @Override
  public synchronized void resume(Collection<TopicPartition> partitions) {
    paused.removeAll(partitions);
  }

  @Override
  public synchronized long position(TopicPartition tp, Duration timeout) {
    return positions.get(tp);
  }

  @Override
  public ConsumerRecords<ByteBuffer, ByteBuffer> poll(Duration timeout) {
    try {
      Thread.sleep(1);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return poll();
  }

  private synchronized ConsumerRecords<ByteBuffer, ByteBuffer> poll() {
    if (failure != null) {
      throw failure;
    }
    if (!forks.isEmpty()) {
      forksSeen++;
      var tp = forks.keySet().iterator().next();
      throw new LogTruncationException(
          Map.of(tp, positions.get(tp)), Map.of(tp, new OffsetAndMetadata(forks.get(tp))));
    }
    for (var tp : assignment()) {
      if (remade.contains(tp)) {
        forksSeen++;
        throw new LogTruncationException(Map.of(tp, positions.get(tp)), Map.of());
      }
      if (failures.get(tp) != null) {
        throw failures.get(tp);
      }
    }
    var found = new HashMap<TopicPartition, List<ConsumerRecord<ByteBuffer, ByteBuffer>>>();
    for (var tp : assignment()) {
      long at = positions.get(tp);
      Range of = bounds.get(tp);
      if (of == null || paused.contains(tp) || silent.contains(tp) || leaderless.contains(tp)) {
        continue;
      }
      if (at < of.from() || at > of.to()) {
        throw new OffsetOutOfRangeException(Map.of(tp, at));
      }
      var log = records.getOrDefault(tp, new TreeMap<>()).tailMap(at, true);
      var some = new ArrayList<>(log.values()).subList(0, Math.min(MOST, log.size()));
      if (some.isEmpty()) {
        positions.put(tp, of.to());
      } else {
        found.put(tp, some);
        positions.put(tp, some.get(some.size() - 1).offset() + 1);
      }
    }
    return new ConsumerRecords<>(found, Map.of());
  }

  @Override
  public synchronized Map<TopicPartition, Long> beginningOffsets(Collection<TopicPartition> partitions, Duration timeout) {
    return timeout.isZero() ? Map.of() : offsets(partitions, true);
  }

  @Override
  public synchronized Map<TopicPartition, Long> endOffsets(Collection<TopicPartition> partitions, Duration timeout) {
    return timeout.isZero() ? Map.of() : offsets(partitions, false);
  }

  private Map<TopicPartition, Long> offsets(Collection<TopicPartition> partitions, boolean begin) {
    var offsets = new HashMap<TopicPartition, Long>();
    for (var tp : partitions) {
      Range of = bounds.get(tp);
      if (of == null || leaderless.contains(tp) || outdated.contains(tp)) {
        throw new TimeoutException("unknown");
      }
      offsets.put(tp, begin ? of.from() : of.to());
    }
    return offsets;
  }

  @Override
  public synchronized List<PartitionInfo> partitionsFor(String topic, Duration timeout) {
    return bounds.keySet().stream()
        .filter(tp -> tp.topic().equals(topic))
        .map(tp -> new PartitionInfo(topic, tp.partition(), leaderless.contains(tp) ? null : NODE, new Node[] {NODE}, null))
        .toList();
  }

  @Override
  public void wakeup() {}

  @Override
  public synchronized void close(CloseOptions options) {
    left = true;
  }
}
