package muster.connector;

import static java.util.stream.Collectors.toSet;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntConsumer;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A Kafka consumer that is kept between batches, and the thread that polls it.
 *
 * <p>The thread reads ahead of the ranges that tasks ask for, up to the share of memory that each partition has. A task
 * leases the consumer, says which partitions it holds and which ranges it wants, and takes what was read. Behind the end of
 * a range it goes on where the next one will probably begin. A range that begins there, the rule, goes on with what is
 * there; one that begins elsewhere, as when a batch is read a second time, is read from Kafka again.
 *
 * <p>A range ends by the consumer's position, not by the last record's offset: its last offsets may hold no record, because
 * of compaction or of a transaction's markers. Records that Kafka does not have hold up no range: they are handed over as a
 * chunk that says so, and the agent, which hears of it, decides where the partition goes on.
 *
 * <p>Leases are numbered. What a task that has ended still asks for, from another thread perhaps, fails: under the lease of
 * the next task it would take that one's records.
 *
 * <p>A client that is silent is replaced once by another one. Kafka's client remembers the last epoch of a partition's
 * leader, and where it has seen a topic gone, it takes what it hears of the one that was created again for outdated.
 *
 * <p>One lock guards all state that both sides use. No call to Kafka is made under it.
 */
final class CachedConsumer implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(CachedConsumer.class);

  /** Nanoseconds without a lease after which the consumer leaves Kafka: its partitions may be read elsewhere by then. */
  private static final long IDLE = TimeUnit.SECONDS.toNanos(60);

  private static final Duration POLL = Duration.ofMillis(200);
  private static final Duration LOOK_UP = Duration.ofSeconds(3);
  private static final Duration CLOSE = Duration.ofSeconds(1);

  /** Nanoseconds between two attempts to read where Kafka says that nothing is. */
  private static final long RETRY = TimeUnit.SECONDS.toNanos(1);

  /**
   * Nanoseconds for which a partition must be missing, or end before a range does, until that is believed: a leader that
   * has just changed may for a moment know less.
   */
  private static final long GONE_AFTER = TimeUnit.SECONDS.toNanos(10);

  private final String servers;
  private final Supplier<Consumer<ByteBuffer, ByteBuffer>> open;
  private final LongSupplier share;
  private final IntConsumer counted;
  private final long goneAfter;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Map<TopicPartition, Held> held = new LinkedHashMap<>();

  /** Columns that are filled again: as long-lived objects they cost the garbage collector nothing. */
  private final Queue<Chunk.Columns> spare = new ConcurrentLinkedQueue<>();

  private Consumer<ByteBuffer, ByteBuffer> client;
  private boolean assignmentChanged;
  private boolean closed;
  private Throwable failure;
  private Runnable whenIdle = () -> {};
  private long leases;

  /** The number of the present lease, 0 without one. */
  private long leased;

  private long released = System.nanoTime();

  /** A partition that the consumer reads. Times are of {@code System.nanoTime}. */
  private static final class Held {
    final TopicPartition tp;
    final UTF8String topic;
    final ArrayDeque<Chunk> chunks = new ArrayDeque<>();

    /** The next offset to hand over. */
    long head;

    /** The next offset to poll: where {@code chunks} end. */
    long next;

    /** Where the range ends that a task waits for. */
    long wanted;

    /** Where the range ends that a task asked for last. */
    long end;

    /** Where to read ahead behind {@code end}. */
    long then;

    long bytes;
    boolean seek = true;
    boolean paused;

    /** Kafka has nothing at {@code next} that it could be read from. */
    boolean outOfRange;

    long lookedUp = System.nanoTime() - RETRY;
    long progress;

    /** Another client was tried since the partition gave something. */
    boolean triedAnother;

    /** Since when Kafka has been without what is wanted; 0 while it has it. */
    long missingSince;

    /**
     * Kafka's client has seen that a new leader has other records, or none, from {@code forked} on, when it had read up to
     * {@code forkedUntil}.
     */
    long forked = Long.MAX_VALUE;

    long forkedUntil;

    Held(TopicPartition tp, long from) {
      this.tp = tp;
      topic = UTF8String.fromString(tp.topic());
      start(from);
    }

    void start(long from) {
      chunks.clear();
      bytes = 0;
      head = from;
      if (from <= forked || from > forkedUntil) {
        forked = Long.MAX_VALUE;
      }
      readFrom(from);
    }

    private void readFrom(long offset) {
      next = offset;
      seek = true;
      outOfRange = false;
      missingSince = 0;
    }

    /** Whether a task waits, and there has been nothing for {@code patience} nanoseconds. */
    boolean isSilent(long now, long patience) {
      return wanted > next && !paused && chunks.isEmpty() && now - progress > patience;
    }

    /** Whether what is before {@code next} was read of a leader whose end is lost: then nothing behind it is read. */
    boolean isForked() {
      return forked < next && next <= forkedUntil;
    }

    /** Whether Kafka is to be asked now where the partition begins and ends. */
    boolean isDoubtful(long now, long patience) {
      boolean gone = outOfRange && (wanted > next || missingSince == 0);
      return (gone || isSilent(now, patience)) && !isForked() && now - lookedUp > RETRY;
    }

    void add(Chunk chunk) {
      chunks.addLast(chunk);
      bytes += chunk.bytes();
      next = chunk.to;
      progress = System.nanoTime();
      triedAnother = false;
      missingSince = 0;
      leap();
    }

    /** Once the range is read, go on where the next one will probably begin. */
    private void leap() {
      if (next < end || then <= end) {
        return;
      }
      while (!chunks.isEmpty() && chunks.peekLast().to > end) {
        Chunk chunk = chunks.pollLast();
        bytes -= chunk.bytes();
        if (chunk.from < end) {
          chunks.addLast(chunk.before(end));
          bytes += chunks.peekLast().bytes();
        }
      }
      readFrom(then);
      end = then;
    }

    /** The next chunk up to {@code end}, null if none is there. */
    Chunk poll(long end) {
      Chunk chunk = chunks.pollFirst();
      if (chunk == null) {
        return null;
      }
      bytes -= chunk.bytes();
      if (chunk.to > end) {
        Chunk rest = chunk.since(end);
        chunks.addFirst(rest);
        bytes += rest.bytes();
        chunk = chunk.before(end);
      }
      head = chunk.to;
      return chunk;
    }

    /** Go on with a range: with what is there, if that has no gap. */
    void goOn(Range range) {
      while (!chunks.isEmpty() && chunks.peekFirst().to <= range.from()) {
        bytes -= chunks.pollFirst().bytes();
      }
      long reached = range.from();
      for (var chunk : chunks) {
        reached = chunk.from <= reached ? chunk.to : -1;
      }
      if (reached != next) {
        start(range.from());
      } else if (!chunks.isEmpty() && chunks.peekFirst().from < range.from()) {
        poll(range.from());
      }
      head = range.from();
      wanted = end = range.to();
      then = range.then();
      leap();
    }
  }

  /** {@code share} says how many bytes of a partition may be read ahead; {@code counted} hears how many there are more. */
  CachedConsumer(
      String servers, Supplier<Consumer<ByteBuffer, ByteBuffer>> open, LongSupplier share, IntConsumer counted) {
    this(servers, open, share, counted, GONE_AFTER);
  }

  CachedConsumer(
      String servers,
      Supplier<Consumer<ByteBuffer, ByteBuffer>> open,
      LongSupplier share,
      IntConsumer counted,
      long goneAfter) {
    this.servers = servers;
    this.open = open;
    this.share = share;
    this.counted = counted;
    this.goneAfter = goneAfter;
  }

  void start() {
    var thread = new Thread(this, "muster-read-ahead");
    thread.setDaemon(true);
    thread.start();
  }

  // ---- what tasks call

  /** Begin another lease; returns its number, 0 if the consumer has ended. */
  long lease() {
    lock.lock();
    try {
      leased = closed || failure != null ? 0 : ++leases;
      return leased;
    } finally {
      lock.unlock();
    }
  }

  /**
   * End the present lease: who waits under it is woken, and fails. Returns false if the consumer has ended. {@code whenIdle}
   * is called if it ends for want of another lease.
   */
  boolean release(Runnable whenIdle) {
    lock.lock();
    try {
      this.whenIdle = whenIdle;
      leased = 0;
      released = System.nanoTime();
      held.values().forEach(of -> of.wanted = of.head);
      changed.signalAll();
      return !closed && failure == null;
    } finally {
      lock.unlock();
    }
  }

  void close() {
    lock.lock();
    try {
      closed = true;
      wake();
    } finally {
      lock.unlock();
    }
  }

  /**
   * From now on exactly these partitions are held, and their ranges are to be handed over. Throws {@link IOException} under
   * any lease but the present one.
   */
  void hold(long lease, Map<TopicPartition, Range> ranges) throws IOException {
    lock.lock();
    try {
      check(lease);
      int before = held.size();
      boolean wake = held.keySet().retainAll(ranges.keySet());
      assignmentChanged |= wake;
      long now = System.nanoTime();
      for (var entry : ranges.entrySet()) {
        var range = entry.getValue();
        var of = held.get(entry.getKey());
        if (of == null) {
          of = new Held(entry.getKey(), range.from());
          held.put(of.tp, of);
          assignmentChanged = true;
        }
        of.goOn(range);
        of.progress = now;
        wake |= of.seek || of.outOfRange;
      }
      if (!closed) {
        counted.accept(held.size() - before);
      }
      if (wake) {
        wake();
      }
    } finally {
      lock.unlock();
    }
  }

  /**
   * Returns more of the ranges that are wanted, null when all was handed over.
   *
   * @param timeout seconds for which a partition may give nothing
   * @throws IOException under any lease but the present one, if Kafka refuses, or gives nothing for so long
   */
  Chunk take(long lease, long timeout) throws IOException, InterruptedException {
    long began = System.nanoTime();
    lock.lock();
    try {
      while (true) {
        check(lease);
        Held waiting = null;
        for (var of : held.values()) {
          if (of.head >= of.wanted) {
            continue;
          }
          Chunk chunk = of.poll(of.wanted);
          if (chunk != null) {
            if (of.paused && of.bytes <= share.getAsLong() / 2) {
              wake();
            }
            return chunk;
          }
          waiting = waiting == null || of.progress < waiting.progress ? of : waiting;
        }
        if (waiting == null) {
          return null;
        }
        await(waiting, Math.max(waiting.progress, began) - System.nanoTime(), timeout);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Called with the lock held. */
  private void check(long lease) throws IOException {
    if (!closed && failure == null && lease != leased) {
      throw new IOException(
          "Kafka at " + servers + ": the task that asks for records has ended, and its lease of the consumer with it; "
              + "end what still reads for that task, such as the writer of a script's input");
    }
  }

  /** Take back what {@code take} has returned, whose rows are no longer read: its memory is used again. */
  void giveBack(Chunk chunk) {
    var used = chunk.used();
    if (used != null) {
      spare.add(used);
    }
  }

  /** Wait for any change, {@code since} (nanoseconds, negative) the last one. Called with the lock held. */
  private void await(Held waiting, long since, long timeout) throws IOException, InterruptedException {
    String where =
        "Kafka at " + servers + ": topic '" + waiting.tp.topic() + "', partition " + waiting.tp.partition()
            + ", offset " + waiting.next + " (planned up to " + (waiting.wanted - 1) + "): ";
    if (failure != null) {
      throw new IOException(where + failure + "; see whether the executors reach the brokers and may read", failure);
    }
    if (closed) {
      throw new IOException(where + "its consumer was closed, because the query ended");
    }
    long left = since + TimeUnit.SECONDS.toNanos(timeout);
    if (left <= 0) {
      throw new IOException(where + "nothing for " + timeout + " s; see whether the executors reach the brokers");
    }
    changed.awaitNanos(left);
  }

  /** Called with the lock held. */
  private void wake() {
    changed.signalAll();
    if (client != null) {
      client.wakeup();
    }
  }

  // ---- the thread

  @Override
  public void run() {
    Consumer<ByteBuffer, ByteBuffer> kafka = null;
    try {
      do {
        kafka = another(kafka);
        while (step(kafka)) {
          // Until this is closed, or another client is to be tried.
        }
      } while (!isClosed());
    } catch (Throwable e) {
      lock.lock();
      try {
        failure = e;
      } finally {
        lock.unlock();
      }
      if (!(e instanceof Exception)) {
        LOG.error("reading ahead from Kafka at {} ended", servers, e);
      }
    } finally {
      end();
      close(kafka);
    }
  }

  /** Returns a new client that reads from where {@code old}, null at first, is left. */
  private Consumer<ByteBuffer, ByteBuffer> another(Consumer<ByteBuffer, ByteBuffer> old) {
    var next = open.get();
    lock.lock();
    try {
      client = next;
      assignmentChanged = true;
      held.values().forEach(of -> of.seek = true);
    } finally {
      lock.unlock();
    }
    close(old);
    return next;
  }

  private static void close(Consumer<?, ?> kafka) {
    if (kafka != null) {
      kafka.close(CloseOptions.timeout(CLOSE));
    }
  }

  private boolean isClosed() {
    lock.lock();
    try {
      return closed;
    } finally {
      lock.unlock();
    }
  }

  private void end() {
    lock.lock();
    try {
      closed = true;
      client = null;
      counted.accept(-held.size());
      held.values().forEach(of -> of.start(of.head));
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    whenIdle.run();
  }

  /** What the thread does next. */
  private static final class Todo {
    List<TopicPartition> assign;
    final Map<TopicPartition, Long> seek = new HashMap<>();
    final List<TopicPartition> pause = new ArrayList<>();
    final List<TopicPartition> resume = new ArrayList<>();
    final Map<String, List<TopicPartition>> lookUp = new HashMap<>();
    boolean poll;

    boolean isEmpty() {
      return assign == null && pause.isEmpty() && resume.isEmpty() && lookUp.isEmpty() && !poll;
    }
  }

  private boolean step(Consumer<ByteBuffer, ByteBuffer> kafka) throws InterruptedException {
    var todo = new Todo();
    lock.lock();
    try {
      closed |= leased == 0 && System.nanoTime() - released > IDLE;
      if (closed || isAnotherToBeTried()) {
        return false;
      }
      decide(todo);
      if (todo.isEmpty()) {
        changed.await(POLL.toMillis(), TimeUnit.MILLISECONDS);
        return true;
      }
    } finally {
      lock.unlock();
    }
    if (todo.assign != null) {
      kafka.assign(todo.assign);
    }
    todo.seek.forEach(kafka::seek);
    kafka.pause(todo.pause);
    kafka.resume(todo.resume);
    todo.lookUp.forEach((topic, partitions) -> lookUp(kafka, topic, partitions));
    if (todo.poll) {
      poll(kafka);
    }
    return true;
  }

  /** Whether a partition is silent for which no other client was tried. Called with the lock held. */
  private boolean isAnotherToBeTried() {
    long now = System.nanoTime();
    var silent = held.values().stream().filter(of -> !of.triedAnother && of.isSilent(now, goneAfter)).toList();
    silent.forEach(of -> {
      LOG.warn("Kafka at {}: {} gives nothing at offset {}; trying another client", servers, of.tp, of.next);
      of.triedAnother = true;
    });
    return !silent.isEmpty();
  }

  /** Called with the lock held. */
  private void decide(Todo todo) {
    long now = System.nanoTime();
    long bytes = share.getAsLong();
    if (assignmentChanged) {
      todo.assign = List.copyOf(held.keySet());
      assignmentChanged = false;
    }
    for (var of : held.values()) {
      if (of.isForked() && of.wanted > of.next) {
        skip(of, of.forked, of.wanted, false);
        changed.signalAll();
      }
      if (of.isDoubtful(now, goneAfter)) {
        of.lookedUp = now;
        todo.lookUp.computeIfAbsent(of.tp.topic(), topic -> new ArrayList<>()).add(of.tp);
      }
      if (of.seek && !of.outOfRange) {
        todo.seek.put(of.tp, of.next);
        of.seek = false;
      }
      boolean stop = of.outOfRange || of.isForked() || (of.paused ? of.bytes > bytes / 2 : of.bytes > bytes);
      if (stop != of.paused || todo.assign != null) {
        of.paused = stop;
        (stop ? todo.pause : todo.resume).add(of.tp);
      }
      todo.poll |= !stop;
    }
  }

  private void poll(Consumer<ByteBuffer, ByteBuffer> kafka) {
    ConsumerRecords<ByteBuffer, ByteBuffer> polled;
    try {
      polled = kafka.poll(POLL);
    } catch (WakeupException e) {
      return;
    } catch (OffsetOutOfRangeException e) {
      outOfRange(e);
      return;
    }
    var positions = new HashMap<TopicPartition, Long>();
    for (var tp : kafka.assignment()) {
      positions.put(tp, position(kafka, tp));
    }
    // Copied into columns before the lock is taken; only this thread moves `next`, but a task may start it elsewhere.
    var starts = starts(positions.keySet());
    var chunks = new ArrayList<Chunk>();
    starts.forEach((tp, from) -> {
      var records = polled.records(tp);
      long last = records.isEmpty() ? from : records.get(records.size() - 1).offset() + 1;
      long to = Math.max(last, positions.get(tp));
      chunks.addAll(Chunk.of(tp, UTF8String.fromString(tp.topic()), from, to, records, this::columns));
    });
    lock.lock();
    try {
      for (var chunk : chunks) {
        var of = held.get(chunk.tp);
        if (of != null && !of.seek && of.next == chunk.from) {
          of.add(chunk);
        }
      }
      if (!chunks.isEmpty()) {
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  private Chunk.Columns columns() {
    var used = spare.poll();
    return used == null ? new Chunk.Columns() : used;
  }

  /** Where the next chunk of each begins, without those that are to be read from elsewhere. */
  private Map<TopicPartition, Long> starts(Collection<TopicPartition> partitions) {
    var starts = new LinkedHashMap<TopicPartition, Long>();
    lock.lock();
    try {
      for (var tp : partitions) {
        var of = held.get(tp);
        if (of != null && !of.seek) {
          starts.put(tp, of.next);
        }
      }
    } finally {
      lock.unlock();
    }
    return starts;
  }

  /** The consumer's position, 0 if it is not known at present. What was polled must not be lost by asking. */
  private long position(Consumer<?, ?> kafka, TopicPartition tp) {
    while (true) {
      try {
        return kafka.position(tp, Duration.ZERO);
      } catch (WakeupException e) {
        // The next step looks at what changed; the call is made again.
      } catch (OffsetOutOfRangeException e) {
        outOfRange(e);
      } catch (TimeoutException e) {
        return 0;
      }
    }
  }

  private void outOfRange(OffsetOutOfRangeException found) {
    lock.lock();
    try {
      found.offsetOutOfRangePartitions().forEach((tp, offset) -> {
        var of = held.get(tp);
        if (of != null && !of.seek && of.next == offset) {
          of.outOfRange = true;
          if (found instanceof LogTruncationException truncated && truncated.divergentOffsets().containsKey(tp)) {
            of.forked = Math.min(of.forked, truncated.divergentOffsets().get(tp).offset());
            of.forkedUntil = offset;
          }
        }
      });
    } finally {
      lock.unlock();
    }
  }

  /** Ask Kafka where partitions of a topic begin and end that give nothing. */
  private void lookUp(Consumer<?, ?> kafka, String topic, List<TopicPartition> partitions) {
    try {
      var begins = kafka.beginningOffsets(partitions, LOOK_UP);
      var ends = kafka.endOffsets(partitions, LOOK_UP);
      partitions.forEach(tp -> found(tp, new Range(begins.get(tp), ends.get(tp))));
    } catch (WakeupException e) {
      // Asked again soon.
    } catch (TimeoutException | UnknownTopicOrPartitionException e) {
      Set<Integer> present = partitionsOf(kafka, topic);
      if (present != null) {
        partitions.stream().filter(tp -> !present.contains(tp.partition())).forEach(tp -> found(tp, null));
      }
    }
  }

  /** The partitions of a topic, null if Kafka does not say. */
  private static Set<Integer> partitionsOf(Consumer<?, ?> kafka, String topic) {
    try {
      var partitions = kafka.partitionsFor(topic, LOOK_UP);
      return partitions == null ? Set.of() : partitions.stream().map(PartitionInfo::partition).collect(toSet());
    } catch (UnknownTopicOrPartitionException e) {
      return Set.of();
    } catch (KafkaException e) {
      return null;
    }
  }

  /** Take note of where a partition begins and ends; null if there is no such partition. */
  private void found(TopicPartition tp, Range bounds) {
    lock.lock();
    try {
      var of = held.get(tp);
      if (of == null || of.seek) {
        return;
      }
      if (bounds != null && of.next < bounds.from()) {
        skip(of, of.next, bounds.from(), true);
      } else if (bounds != null && of.next <= bounds.to() && bounds.to() >= of.wanted) {
        of.missingSince = 0;
        resume(of);
      } else {
        endsEarly(of);
      }
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** The partition ends before what is wanted of it, or is not there: after a while that counts. */
  private void endsEarly(Held of) {
    long now = System.nanoTime();
    if (of.missingSince == 0) {
      of.missingSince = now;
    }
    if (of.wanted > of.next && now - of.missingSince > goneAfter) {
      skip(of, of.next, of.wanted, false);
    } else {
      resume(of);
    }
  }

  private static void resume(Held of) {
    of.seek |= of.outOfRange;
    of.outOfRange = false;
  }

  /** Go on at {@code to}, with a chunk that says that what is before it is gone, from {@code gone} on. */
  private void skip(Held of, long gone, long to, boolean deleted) {
    LOG.warn(
        "Kafka at {}: topic '{}', partition {}: it {} offset {}; {} to {} are left out, and the agent is informed",
        servers,
        of.tp.topic(),
        of.tp.partition(),
        deleted ? "begins at" : gone < of.next ? "was truncated at" : "is not there, or ends before",
        deleted ? to : gone,
        of.next,
        to - 1);
    of.add(Chunk.gone(of.tp, of.topic, of.next, to, gone, deleted));
    of.outOfRange = false;
    of.seek = true;
  }
}
