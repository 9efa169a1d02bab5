package muster.connector;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
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
 * <p>The thread reads ahead of the ranges that tasks ask for, as long as the {@link Memory} of the JVM has room for another
 * poll. Where it has none and a task waits, what is behind the task's ranges is given up, and until these are read, nothing but
 * them is fetched. A task leases the consumer, says which partitions it holds and which ranges it wants, and takes what was read. Behind the end of
 * a range it goes on where the next one will probably begin. A range that begins there, the rule, goes on with what is
 * there; one that begins elsewhere, as when a batch is read a second time, is read from Kafka again.
 *
 * <p>A range ends by the consumer's position, not by the last record's offset: its last offsets may hold no record, because
 * of compaction or of a transaction's markers. Records that were deleted or truncated hold up no range: they are handed over as
 * a chunk that says so, and the agent, which hears of it, decides where the partition goes on.
 *
 * <p>Leases are numbered. What a task that has ended still asks for, from another thread perhaps, fails: under the lease of
 * the next task it would take that one's records.
 *
 * <p>Partitions that are not to be read now are not assigned to Kafka's client. It would keep what it has fetched of a paused
 * one, and with that the whole answer that it came in.
 *
 * <p>A partition that cannot be read leaves the client for a while, with its {@link Fault}; a task that wants it fails, and
 * only that. So does one whose partition ends before its range: the agent plans it again. A partition that is silent although Kafka
 * has records of it, or does not say, goes to another client; one that is silent there, too, has a fault. No task waits longer
 * for it, because the other partitions of a batch wait with it.
 *
 * <p>Kafka's client remembers the latest epoch of a partition's leader, also the one that a seek names, and takes all that it
 * hears of an earlier one for outdated. So a seek in a topic that was created again names no epoch of the old one.
 *
 * <p>One lock guards all state that both sides use. No call to Kafka is made under it.
 */
final class CachedConsumer implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(CachedConsumer.class);

  /** Nanoseconds without a lease after which the consumer leaves Kafka: its partitions may be read elsewhere by then. */
  private static final long IDLE = TimeUnit.SECONDS.toNanos(60);

  private static final Duration POLL = Duration.ofMillis(200);

  /** How long each of two clients is polled. */
  private static final Duration SHORT_POLL = Duration.ofMillis(50);

  /** How long a look-up takes, of all topics together: nothing is polled meanwhile. */
  private static final Duration LOOK_UP = Duration.ofSeconds(1);

  private static final Duration CLOSE = Duration.ofSeconds(1);

  /** Nanoseconds between two look-ups. */
  private static final long RETRY = TimeUnit.SECONDS.toNanos(1);

  /** Nanoseconds until a partition is tried again that could not be read. */
  private static final long RETRY_FAULT = TimeUnit.SECONDS.toNanos(5);

  /** Nanoseconds of silence after which Kafka is asked for a partition's leader, beginning and end. */
  private static final long LOOK_AFTER = TimeUnit.SECONDS.toNanos(3);

  /** Nanoseconds of silence after which a partition goes to another client: the first answer of a broker may take a while. */
  private static final long SILENT_AFTER = TimeUnit.SECONDS.toNanos(5);

  private final String servers;
  private final Opener open;
  private final Memory memory;
  private final Memory.Account account;
  private final long silentAfter;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Map<TopicPartition, Held> held = new LinkedHashMap<>();

  /** Columns that are filled again, the last one first: as long-lived objects they cost the garbage collector nothing. */
  private final ArrayDeque<Chunk.Columns> spare = new ArrayDeque<>();

  private long spareBytes;

  /** Bytes of the chunks that the present lease's task has. */
  private long inHand;

  /** How many threads wait in {@link #take}. */
  private int waiting;

  /** Nothing but what tasks want is read, because there was no room for more. */
  private boolean scarce;

  /** Tasks that wait have yet to hear of faults. */
  private boolean faultsFound;

  /** There is no room for another poll. */
  private boolean full;

  /** Since when there has been room for every poll. */
  private long polling = System.nanoTime();

  private Client main;

  /** Reads the partitions that {@link #main} is silent of; null as long as there are none. */
  private Client aside;

  private boolean closed;
  private Throwable failure;
  private Runnable whenIdle = () -> {};
  private long leases;

  /** The number of the present lease, 0 without one. */
  private long leased;

  private long released = System.nanoTime();

  /** Opens a client of Kafka, which polls through the valve. */
  interface Opener {
    Consumer<ByteBuffer, ByteBuffer> open(Memory.Share share, Valve valve);
  }

  /** A client of Kafka, and what is assigned to it. */
  private static final class Client {
    final Valve valve = new Valve();
    final Consumer<ByteBuffer, ByteBuffer> kafka;
    final Memory.Share share;
    final Set<String> topics = new HashSet<>();
    Set<TopicPartition> assigned = Set.of();

    Client(Opener open, Memory.Share share) {
      this.share = share;
      kafka = open.open(share, valve);
    }
  }

  /** A partition that the consumer reads. Times are of {@code System.nanoTime}. */
  private final class Held {
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

    /** The epoch of the leader that wrote what is before {@code next}, where that is known. */
    Optional<Integer> epoch = Optional.empty();

    /** Whether the client beside the main one reads it. */
    boolean isAside;

    /** Why it cannot be read at present, null if it can. */
    Fault fault;

    /** Since when it has been assigned to a client. */
    long assigned;

    /** Kafka has nothing at {@code next} that it could be read from. */
    boolean outOfRange;

    long lookedUp = System.nanoTime() - RETRY;
    long progress;

    /** Another client was tried since the partition gave something. */
    boolean triedAnother;

    /** When Kafka said last that it has what is wanted, or did not answer the partition's client although there is a leader. */
    long doubted;

    /** Kafka was without what is wanted when it was asked last. */
    boolean missing;

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
      counted(-bytes);
      head = from;
      if (from <= forked || from > forkedUntil) {
        forked = Long.MAX_VALUE;
      }
      readFrom(from);
    }

    private void counted(long more) {
      bytes += more;
      account.count(more);
    }

    private void readFrom(long offset) {
      if (offset != next) {
        fault = null;
        epoch = Optional.empty();
      }
      next = offset;
      seek = true;
      outOfRange = false;
      missing = false;
    }

    /** Give up what was read ahead and not handed over. */
    void evict() {
      readFrom(chunks.peekFirst().from);
      chunks.clear();
      counted(-bytes);
    }

    boolean isWanted() {
      return wanted > next;
    }

    /** Whether it is to be fetched now. */
    boolean isActive(long now) {
      return !outOfRange && !isForked() && !isFaulty(now) && (isWanted() || !scarce);
    }

    boolean isFaulty(long now) {
      return fault != null && now < fault.until();
    }

    /** Whether a task waits, and there has been nothing for {@code patience} nanoseconds for which it was fetched. */
    boolean isSilent(long now, long patience) {
      long since = Math.max(Math.max(progress, assigned), polling);
      return isWanted() && !full && isActive(now) && !seek && chunks.isEmpty() && now - since > patience;
    }

    /** Whether what is before {@code next} was read of a leader whose end is lost: then nothing behind it is read. */
    boolean isForked() {
      return forked < next && next <= forkedUntil;
    }

    /** Whether Kafka is to be asked now where the partition begins and ends: at once if it could not be read before. */
    boolean isDoubtful(long now) {
      boolean gone = outOfRange && (isWanted() || !missing);
      boolean silent = isSilent(now, fault == null ? Math.min(silentAfter, LOOK_AFTER) : 0);
      return (gone || silent) && !isForked() && now - lookedUp > RETRY;
    }

    /** Whether it gives nothing although Kafka has records of it, or does not say. */
    boolean isMute(long now) {
      return doubted > progress && isSilent(now, fault == null ? silentAfter : Math.min(silentAfter, RETRY));
    }

    void add(Chunk chunk) {
      chunks.addLast(chunk);
      counted(chunk.held());
      next = chunk.to;
      progress = System.nanoTime();
      triedAnother = false;
      missing = false;
      fault = null;
      leap();
    }

    /** Once the range is read, go on where the next one will probably begin. */
    private void leap() {
      if (next < end || then <= end) {
        return;
      }
      while (!chunks.isEmpty() && chunks.peekLast().to > end) {
        Chunk chunk = chunks.pollLast();
        counted(-chunk.held());
        if (chunk.from < end) {
          chunks.addLast(chunk.before(end));
          counted(chunks.peekLast().held());
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
      counted(-chunk.held());
      if (chunk.to > end) {
        var parts = chunk.split(end);
        chunk = parts[0];
        chunks.addFirst(parts[1]);
        counted(parts[1].held());
      }
      head = chunk.to;
      return chunk;
    }

    /** Go on with a range: with what is there, if that has no gap. */
    void goOn(Range range) {
      while (!chunks.isEmpty() && chunks.peekFirst().to <= range.from()) {
        counted(-chunks.pollFirst().held());
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

  CachedConsumer(String servers, Opener open, Memory memory) {
    this(servers, open, memory, SILENT_AFTER);
  }

  CachedConsumer(String servers, Opener open, Memory memory, long silentAfter) {
    this.servers = servers;
    this.open = open;
    this.memory = memory;
    this.silentAfter = silentAfter;
    account = memory.open(servers);
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
      account.count(-inHand);
      inHand = 0;
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
      account.leave();
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
      boolean wake = held.values().removeIf(of -> {
        boolean gone = !ranges.containsKey(of.tp);
        if (gone) {
          of.start(of.head);
        }
        return gone;
      });
      long now = System.nanoTime();
      scarce = false;
      for (var entry : ranges.entrySet()) {
        var range = entry.getValue();
        var of = held.get(entry.getKey());
        if (of == null) {
          of = new Held(entry.getKey(), range.from());
          held.put(of.tp, of);
        }
        of.goOn(range);
        of.progress = now;
        wake |= of.seek || of.outOfRange;
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
   * @throws IOException under any lease but the present one
   * @throws ReadException if a partition cannot be read, or gives nothing for so long
   */
  Chunk take(long lease, long timeout) throws IOException, InterruptedException {
    long began = System.nanoTime();
    lock.lock();
    try {
      while (true) {
        check(lease);
        Held waits = null;
        for (var of : held.values()) {
          if (of.head >= of.wanted) {
            continue;
          }
          Chunk chunk = of.poll(of.wanted);
          if (chunk != null) {
            inHand += chunk.held();
            account.count(chunk.held());
            return chunk;
          }
          if (of.isFaulty(System.nanoTime())) {
            throw faults();
          }
          waits = waits == null || of.progress < waits.progress ? of : waits;
        }
        if (waits == null) {
          return null;
        }
        await(waits, Math.max(waits.progress, began) - System.nanoTime(), timeout);
      }
    } finally {
      lock.unlock();
    }
  }

  /** What is wrong with all partitions that are wanted, so that not each of them fails a batch. Called with the lock held. */
  private ReadException faults() {
    return ReadException.of(held.values().stream()
        .filter(of -> of.head < of.wanted && of.chunks.isEmpty() && of.fault != null)
        .map(of -> new ReadException(of.fault.kind(), of.tp, of.next, servers, of.fault.why(), of.fault.cause()))
        .toList());
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
  void giveBack(long lease, Chunk chunk) {
    lock.lock();
    try {
      if (lease != leased) {
        return;
      }
      inHand -= chunk.held();
      account.count(-chunk.held());
      keep(chunk.used());
      if (full) {
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Called with the lock held. */
  private void keep(Chunk.Columns used) {
    if (used != null && main != null && spareBytes + used.capacity() <= main.share.poll()) {
      spare.addLast(used);
      spareBytes += used.capacity();
      account.count(used.capacity());
    }
  }

  /** Called with the lock held. */
  private void dropSpare() {
    account.count(-spareBytes);
    spareBytes = 0;
    spare.clear();
  }

  /** Wait for any change, {@code since} (nanoseconds, negative) the last one. Called with the lock held. */
  private void await(Held of, long since, long timeout) throws IOException, InterruptedException {
    if (failure != null) {
      throw new ReadException(ReadException.Kind.KAFKA, of.tp, of.next, servers, failure.toString(), failure);
    }
    if (closed) {
      throw new IOException(
          "Kafka at " + servers + ": " + of.tp + ": its consumer was closed, because the query ended");
    }
    long left = since + TimeUnit.SECONDS.toNanos(timeout);
    if (left <= 0) {
      throw new ReadException(
          ReadException.Kind.SILENT, of.tp, of.next, servers, "nothing for " + timeout + " s", null);
    }
    waiting++;
    if (full) {
      changed.signalAll();
    }
    try {
      changed.awaitNanos(left);
    } finally {
      waiting--;
    }
  }

  /** Called with the lock held. */
  private void wake() {
    changed.signalAll();
    if (main != null) {
      main.kafka.wakeup();
    }
    if (aside != null) {
      aside.kafka.wakeup();
    }
  }

  // ---- the thread

  @Override
  public void run() {
    try {
      while (!isOver()) {
        if (main == null || account.isTooLarge(main.share)) {
          open(false);
        }
        if (isAnotherTried()) {
          open(true);
        }
        boolean idle = !step(main, aside == null);
        if (aside != null) {
          step(aside, idle);
        }
        tellFaults();
      }
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
      var clients = new Client[] {main, aside};
      end();
      for (var client : clients) {
        close(client);
      }
    }
  }

  /** Open a client in place of the main one, or of the one beside it, which reads from where the old one is left. */
  private void open(boolean beside) {
    var old = beside ? aside : main;
    var next = new Client(open, account.begin(beside || aside != null ? 2 : 1));
    lock.lock();
    try {
      if (beside) {
        aside = next;
      } else {
        main = next;
      }
      held.values().stream().filter(of -> of.isAside == beside).forEach(of -> of.seek = true);
    } finally {
      lock.unlock();
    }
    close(old);
  }

  private static void close(Client client) {
    if (client != null) {
      client.kafka.close(CloseOptions.timeout(CLOSE));
    }
  }

  private boolean isOver() {
    lock.lock();
    try {
      closed |= leased == 0 && System.nanoTime() - released > IDLE;
      return closed;
    } finally {
      lock.unlock();
    }
  }

  private void end() {
    lock.lock();
    try {
      closed = true;
      main = null;
      aside = null;
      dropSpare();
      held.values().forEach(of -> of.start(of.head));
      account.close();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    whenIdle.run();
  }

  /** What the thread does next with a client. */
  private static final class Todo {
    List<TopicPartition> assign;
    final Map<TopicPartition, OffsetAndMetadata> seek = new HashMap<>();
    final Map<String, List<TopicPartition>> lookUp = new HashMap<>();
    boolean poll;

    boolean isEmpty() {
      return assign == null && lookUp.isEmpty() && !poll;
    }
  }

  /** Wake the tasks that wait, once all faults are known: each task names all in one failure. */
  private void tellFaults() {
    lock.lock();
    try {
      if (faultsFound) {
        faultsFound = false;
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Do what there is to do with a client; false if that is nothing, for which it may wait for a change. */
  private boolean step(Client client, boolean wait) throws InterruptedException {
    var todo = new Todo();
    lock.lock();
    try {
      if (closed) {
        return false;
      }
      decide(client, todo);
      if (todo.isEmpty()) {
        if (wait) {
          changed.await((aside == null ? POLL : SHORT_POLL).toMillis(), TimeUnit.MILLISECONDS);
        }
        return false;
      }
    } finally {
      lock.unlock();
    }
    if (todo.assign != null) {
      client.kafka.assign(todo.assign);
    }
    todo.seek.forEach(client.kafka::seek);
    long until = System.nanoTime() + LOOK_UP.toNanos();
    todo.lookUp.forEach((topic, partitions) -> lookUp(client.kafka, topic, partitions, until));
    if (todo.poll) {
      poll(client);
      countBrokers(client);
    }
    return true;
  }

  /** Whether partitions are silent of which Kafka may have records: they go to another client, or have come from there. */
  private boolean isAnotherTried() {
    lock.lock();
    try {
      long now = System.nanoTime();
      var mute = held.values().stream().filter(of -> of.isMute(now)).toList();
      for (var of : mute) {
        if (of.triedAnother) {
          faulty(of.tp, ReadException.Kind.SILENT, "it gives nothing, nor does it to another client of Kafka", null);
        } else {
          LOG.warn("Kafka at {}: {} gives nothing at offset {}; trying another client", servers, of.tp, of.next);
        }
        of.triedAnother = of.isAside = of.seek = true;
        of.epoch = Optional.empty();
      }
      return !mute.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  /** Called with the lock held. */
  private void decide(Client client, Todo todo) {
    long now = System.nanoTime();
    scarce &= held.values().stream().anyMatch(Held::isWanted);
    boolean wasFull = full;
    full = !reserve(client);
    if (wasFull && !full) {
      polling = now;
    }
    var active = new ArrayList<TopicPartition>();
    for (var of : held.values()) {
      if (of.isAside != (client == aside)) {
        continue;
      }
      if (of.isForked() && of.isWanted()) {
        skip(of, of.forked, of.wanted);
      }
      if (of.isDoubtful(now)) {
        of.lookedUp = now;
        todo.lookUp.computeIfAbsent(of.tp.topic(), topic -> new ArrayList<>()).add(of.tp);
      }
      if (!of.isActive(now)) {
        of.seek = true;
        continue;
      }
      active.add(of.tp);
      if (!client.assigned.contains(of.tp)) {
        of.seek = true;
        of.assigned = now;
      }
      if (of.seek) {
        todo.seek.put(of.tp, new OffsetAndMetadata(of.next, of.epoch, ""));
        of.seek = false;
      }
    }
    if (active.size() != client.assigned.size() || !client.assigned.containsAll(active)) {
      todo.assign = active;
      client.assigned = Set.copyOf(active);
    }
    todo.poll = !full && !active.isEmpty();
    if (!full && !todo.poll) {
      account.count(-client.share.poll());
    }
  }

  /** Reserve room for a poll, for which a task that waits gives up what was read ahead. Called with the lock held. */
  private boolean reserve(Client client) {
    long poll = client.share.poll();
    if (account.reserve(poll)) {
      return true;
    }
    dropSpare();
    // A task that has not seen yet what is there for it does not wait.
    if (waiting == 0 || held.values().stream().anyMatch(of -> of.head < of.wanted && !of.chunks.isEmpty())) {
      return account.reserve(poll);
    }
    scarce = true;
    var largestFirst = new ArrayList<>(held.values());
    largestFirst.sort(Comparator.comparingLong((Held of) -> of.bytes).reversed());
    for (var of : largestFirst) {
      if (account.reserve(poll)) {
        return true;
      }
      if (!of.chunks.isEmpty()) {
        of.evict();
      }
    }
    // All that is left is what the tasks have in their hands, such as a record that is larger than the bound.
    if (!account.reserve(poll)) {
      account.count(poll);
    }
    return true;
  }

  private void poll(Client client) {
    var chunks = new ArrayList<Chunk>();
    var epochs = new HashMap<TopicPartition, Optional<Integer>>();
    try {
      client.valve.open(client.share.poll());
      var polled = client.kafka.poll(aside == null ? POLL : SHORT_POLL);
      var positions = new HashMap<TopicPartition, Long>();
      for (var tp : client.kafka.assignment()) {
        positions.put(tp, position(client, tp));
      }
      // Copied into columns before the lock is taken; only this thread moves `next`, but a task may start it elsewhere.
      for (var start : starts(positions.keySet())) {
        var records = polled.records(start.tp());
        var last = records.isEmpty() ? null : records.get(records.size() - 1);
        long to = Math.max(last == null ? start.from() : last.offset() + 1, positions.get(start.tp()));
        var chunk = Chunk.of(start.tp(), start.topic(), start.from(), to, records, this::columns);
        if (chunk != null) {
          chunks.add(chunk);
          epochs.put(start.tp(), last == null ? Optional.empty() : last.leaderEpoch());
        }
      }
    } catch (WakeupException e) {
      // The next step looks at what changed.
    } catch (OffsetOutOfRangeException e) {
      outOfRange(e);
    } catch (KafkaException | IllegalStateException e) {
      failed(e, client.assigned);
    } finally {
      add(chunks, epochs, client.share.poll());
    }
  }

  /** Take what was polled, in place of what was {@code reserved} for it. */
  private void add(List<Chunk> chunks, Map<TopicPartition, Optional<Integer>> epochs, long reserved) {
    lock.lock();
    try {
      for (var chunk : chunks) {
        var of = held.get(chunk.tp);
        if (of != null && !of.seek && of.next == chunk.from) {
          of.epoch = epochs.get(chunk.tp);
          of.add(chunk);
        }
      }
      account.count(-reserved);
      if (!chunks.isEmpty()) {
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  private Chunk.Columns columns(Chunk.Sizes sizes) {
    lock.lock();
    try {
      var last = spare.peekLast();
      if (last == null) {
        return new Chunk.Columns(sizes);
      }
      boolean fits = last.fit(sizes);
      if (fits || last.isSmallerThan(sizes)) {
        spare.removeLast();
        spareBytes -= last.capacity();
        account.count(-last.capacity());
      }
      return fits ? last : new Chunk.Columns(sizes);
    } finally {
      lock.unlock();
    }
  }

  /** Where the next chunk of a partition begins. */
  private record Start(TopicPartition tp, UTF8String topic, long from) {}

  /** Where the next chunk of each begins, without those that are to be read from elsewhere. */
  private List<Start> starts(Collection<TopicPartition> partitions) {
    var starts = new ArrayList<Start>();
    lock.lock();
    try {
      for (var tp : partitions) {
        var of = held.get(tp);
        if (of != null && !of.seek) {
          starts.add(new Start(tp, of.topic, of.next));
        }
      }
    } finally {
      lock.unlock();
    }
    return starts;
  }

  /** The consumer's position, 0 if it is not known at present. What was polled must not be lost by asking. */
  private long position(Client client, TopicPartition tp) {
    while (true) {
      try {
        return client.kafka.position(tp, Duration.ZERO);
      } catch (WakeupException e) {
        // The next step looks at what changed; the call is made again.
      } catch (OffsetOutOfRangeException e) {
        outOfRange(e);
      } catch (TimeoutException e) {
        return 0;
      } catch (KafkaException e) {
        failed(e, client.assigned);
        return 0;
      }
    }
  }

  /** Take note of an error as a fault of its partitions; throws it if it is of none. */
  private void failed(RuntimeException error, Collection<TopicPartition> partitions) {
    var faulty = Fault.partitionsOf(error, partitions);
    if (faulty.isEmpty()) {
      throw error;
    }
    faulty.forEach(tp -> faulty(tp, Fault.kindOf(error), Fault.words(error), error));
  }

  private void faulty(TopicPartition tp, ReadException.Kind kind, String why, Throwable cause) {
    lock.lock();
    try {
      var of = held.get(tp);
      if (of == null) {
        return;
      }
      if (of.fault == null) {
        LOG.warn("Kafka at {}: {} cannot be read at offset {}: {}: {}; trying again", servers, tp, of.next, kind, why);
      }
      of.fault = new Fault(kind, why, cause, System.nanoTime() + RETRY_FAULT);
      faultsFound = true;
    } finally {
      lock.unlock();
    }
  }

  /** Count the brokers that may answer this client, once for each topic; their number says how much it may fetch. */
  private void countBrokers(Client client) {
    for (var tp : client.assigned) {
      if (client.topics.add(tp.topic())) {
        try {
          var partitions = client.kafka.partitionsFor(tp.topic(), SHORT_POLL);
          long nodes = partitions == null ? 0 : partitions.stream()
              .flatMap(of -> Stream.of(of.replicas())).map(Node::id).distinct().count();
          memory.brokers(servers, (int) Math.max(1, nodes));
        } catch (WakeupException e) {
          client.topics.remove(tp.topic());
        } catch (KafkaException e) {
          // A poll, or a look-up, says it.
        }
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
          if (found instanceof LogTruncationException truncated) {
            var from = truncated.divergentOffsets().get(tp);
            if (from == null) {
              of.epoch = Optional.empty(); // its leader has never heard of it: the topic was created again
            } else {
              of.forked = Math.min(of.forked, from.offset());
              of.forkedUntil = offset;
            }
          }
        }
      });
    } finally {
      lock.unlock();
    }
  }

  /** Ask Kafka for the leaders of a topic's partitions that give nothing, and where they begin and end. */
  private void lookUp(Consumer<?, ?> kafka, String topic, List<TopicPartition> partitions, long until) {
    try {
      var leaders = leaders(kafka, topic, until);
      var led = partitions.stream().filter(tp -> leaders == null || leaders.getOrDefault(tp.partition(), true)).toList();
      partitions.stream().filter(tp -> !led.contains(tp))
          .forEach(tp -> faulty(tp, ReadException.Kind.LEADER, "it has no leader", null));
      if (led.isEmpty()) {
        return;
      }
      try {
        var begins = kafka.beginningOffsets(led, left(until));
        var ends = kafka.endOffsets(led, left(until));
        led.forEach(tp -> found(tp, new Range(begins.get(tp), ends.get(tp))));
      } catch (TimeoutException | UnknownTopicOrPartitionException e) {
        var present = leaders(kafka, topic, until);
        if (present != null) {
          led.stream().filter(tp -> !present.containsKey(tp.partition())).forEach(tp -> found(tp, null));
          led.stream().filter(tp -> present.getOrDefault(tp.partition(), false)).forEach(this::unanswered);
        }
      }
    } catch (WakeupException e) {
      // Asked again soon.
    } catch (KafkaException e) {
      failed(e, partitions);
    }
  }

  /** At least a moment: of a question without any, Kafka's client says that there is no answer as if it were one. */
  private static Duration left(long until) {
    return Duration.ofMillis(Math.max(1, TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime())));
  }

  /** The partitions of a topic, each with whether it has a leader; null if Kafka does not say. */
  private static Map<Integer, Boolean> leaders(Consumer<?, ?> kafka, String topic, long until) {
    try {
      var partitions = kafka.partitionsFor(topic, left(until));
      var found = new HashMap<Integer, Boolean>();
      if (partitions != null) {
        partitions.forEach(of -> found.put(of.partition(), of.leader() != null && !of.leader().isEmpty()));
      }
      return found;
    } catch (UnknownTopicOrPartitionException e) {
      return Map.of();
    } catch (TimeoutException e) {
      return null;
    }
  }

  /** Take note of where a partition begins and ends; null if there is no such partition. */
  private void found(TopicPartition tp, Range bounds) {
    lock.lock();
    try {
      var of = held.get(tp);
      if (of == null || (of.seek && of.isActive(System.nanoTime()))) {
        return; // a task has it read from elsewhere now
      }
      if (bounds != null && of.next < bounds.from()) {
        skip(of, of.next, bounds.from());
        return;
      }
      of.missing = bounds == null || bounds.to() < Math.max(of.next, of.wanted);
      resume(of);
      if (!of.missing) {
        of.doubted = System.nanoTime();
      } else if (of.isWanted()) {
        var why = bounds == null ? "it is not there" : "it ends at offset " + bounds.to() + ", before what Kafka said it has";
        faulty(tp, ReadException.Kind.MISSING, why, null);
      }
    } finally {
      lock.unlock();
    }
  }

  /** A client with a partition's outdated epoch gets no answer: it cannot say whether Kafka has records of it. */
  private void unanswered(TopicPartition tp) {
    lock.lock();
    try {
      var of = held.get(tp);
      if (of != null) {
        of.doubted = System.nanoTime();
      }
    } finally {
      lock.unlock();
    }
  }

  private static void resume(Held of) {
    of.seek |= of.outOfRange;
    of.outOfRange = false;
  }

  /**
   * Go on at {@code to}, with a chunk that says that what is before it is gone, from {@code gone} on: deleted, if that is where
   * the partition was to go on, else truncated. Called with the lock held.
   */
  private void skip(Held of, long gone, long to) {
    boolean deleted = gone == of.next;
    LOG.warn(
        "Kafka at {}: topic '{}', partition {}: it {} offset {}; {} to {} are left out, and the agent is informed",
        servers,
        of.tp.topic(),
        of.tp.partition(),
        deleted ? "begins at" : "was truncated at",
        deleted ? to : gone,
        of.next,
        to - 1);
    of.add(Chunk.gone(of.tp, of.topic, of.next, to, gone, deleted));
    of.outOfRange = false;
    of.seek = true;
    changed.signalAll();
  }
}
