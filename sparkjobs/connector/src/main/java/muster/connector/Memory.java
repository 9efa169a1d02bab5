package muster.connector;

import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/**
 * The account of the bytes that the consumers of a JVM hold of what they read ahead, within one bound. Thread-safe.
 *
 * <p>Of each consumer these are counted: what its client may have fetched, one answer of each broker and one that is being
 * gone through; the records of one poll; and the columns of its chunks, those in a task's hands and those kept to be filled
 * again. The first two are fixed for as long as a client is open: {@link #share} says how large they may be. The columns of a
 * poll are reserved before it is asked for. Each consumer may always hold those of two polls, so that a task is never
 * without: one that it goes through, and the next.
 */
final class Memory {
  private static final long LEAST_PIECE = 16 << 10;
  private static final long MOST_FETCH = 16 << 20;
  private static final long MOST_POLL = 4 << 20;

  /** Bytes without a setting, at most. */
  private static final long MOST = 64L << 20;

  private static final String OPTION = "max_read_ahead";

  private final Set<Account> accounts = new LinkedHashSet<>();
  private final Map<String, Integer> brokers = new HashMap<>();
  private long bound;
  private int expected = 1;

  /** Bytes that a client may fetch of a broker at a time, and that one poll may bring. */
  record Share(long fetch, long poll) {}

  Memory(long bound) {
    this.bound = bound;
  }

  /** The bound of a heap for which none is set. */
  static long usual(long heap) {
    return Math.min(MOST, heap / 8);
  }

  /** Throws {@link IllegalArgumentException} naming the option if a heap is too small for a bound. */
  static void check(long bound, long heap) {
    if (bound > heap / 2) {
      throw new IllegalArgumentException(
          OPTION + " is " + bound + " bytes, and the heap of this JVM " + heap + "; set at most half of that, " + heap / 2
              + ", or a larger spark.driver.memory or spark.executor.memory");
    }
  }

  /** From now on all consumers together hold {@code most} bytes, and about {@code clients} of them are expected. */
  synchronized void limit(long most, int clients) {
    bound = most;
    expected = clients;
  }

  /** Take note of how many brokers a Kafka cluster has; the most that were seen count. */
  synchronized void brokers(String servers, int number) {
    brokers.merge(servers, number, Math::max);
  }

  /** Bytes that are held, or reserved for what Kafka's clients hold. */
  synchronized long held() {
    return accounts.stream().mapToLong(of -> of.fixed() + of.held).sum();
  }

  /**
   * What a client of a Kafka cluster may fetch and poll. Throws {@link IllegalArgumentException} naming the option if the bound
   * is too small for as many clients.
   */
  synchronized Share share(String servers) {
    // By powers of two, so that clients are seldom replaced.
    long clients = Long.highestOneBit(2 * clients() - 1);
    long answers = brokers.getOrDefault(servers, 1) + 1L;
    long fetch = 3 * bound / (8 * clients * answers);
    long poll = bound / (16 * clients);
    if (Math.min(fetch, poll) < LEAST_PIECE) {
      long least = LEAST_PIECE * clients * Math.max(16, (8 * answers + 2) / 3);
      throw new IllegalArgumentException(
          OPTION + " is " + bound + " bytes, too few for " + clients + " tasks that read " + (answers - 1)
              + " brokers; set at least " + least);
    }
    return new Share(Math.min(MOST_FETCH, fetch), Math.min(MOST_POLL, poll));
  }

  /** How many consumers there are, or are expected. */
  private long clients() {
    return Math.max(Math.max(1, expected), accounts.stream().filter(of -> !of.leaving).count());
  }

  Account open(String servers) {
    return new Account(servers);
  }

  /** One consumer's part. */
  final class Account {
    private final String servers;
    private Share share;

    /** How many answers of brokers its clients may hold, and how many clients it has. */
    private long answers;

    private long clients;
    private long held;
    private boolean leaving;

    private Account(String servers) {
      this.servers = servers;
      synchronized (Memory.this) {
        accounts.add(this);
      }
    }

    /** Begin with a new client, one of so many; returns how it may read. */
    Share begin(int of) {
      synchronized (Memory.this) {
        share = share(servers);
        answers = brokers.getOrDefault(servers, 1) + 1L;
        clients = of;
        return share;
      }
    }

    /** Whether a client may fetch too much, because there are more consumers or brokers than when it was opened. */
    boolean isTooLarge(Share of) {
      synchronized (Memory.this) {
        return share(servers).fetch() < of.fetch();
      }
    }

    /** Reserve the columns of a poll; false if there is no room for them. */
    boolean reserve(long poll) {
      synchronized (Memory.this) {
        long others = accounts.stream().filter(of -> of != this).mapToLong(Account::least).sum();
        // Those that have not begun yet find their room, too.
        long toBegin = Math.max(0, clients() - accounts.stream().filter(of -> of.share != null && !of.leaving).count());
        others += toBegin * (answers * share.fetch() + 3 * share.poll());
        if (held > poll && fixed() + held + others + poll > bound) {
          return false;
        }
        held += poll;
        return true;
      }
    }

    /** Count so many bytes more, or less. */
    void count(long more) {
      synchronized (Memory.this) {
        held += more;
      }
    }

    /** From now on others have its share. */
    void leave() {
      synchronized (Memory.this) {
        leaving = true;
      }
    }

    void close() {
      synchronized (Memory.this) {
        accounts.remove(this);
      }
    }

    private long fixed() {
      return share == null ? 0 : clients * (answers * share.fetch() + share.poll());
    }

    /** What is left to it in any case. */
    private long least() {
      return fixed() + Math.max(held, share == null ? 0 : 2 * share.poll());
    }
  }
}
