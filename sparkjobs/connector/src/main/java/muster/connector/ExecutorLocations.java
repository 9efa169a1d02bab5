package muster.connector;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/**
 * Where the slots' tasks are to run: a slot stays with an executor, which has its consumer and what that read ahead.
 *
 * <p>Executors become known when the query begins, when they come, or when a task begins there. As long as none is
 * known, and in local mode, there is no preference. A preference is only that: Spark runs a task elsewhere if its executor
 * is busy for longer than {@code spark.locality.wait}, and it reads the same there.
 */
final class ExecutorLocations extends SparkListener {
  private static final String[] ANYWHERE = {};

  /** What Spark takes for one executor of a host: the prefix, the host and the executor's id. */
  private static final String PREFIX = "executor_";

  private final Map<String, String> hosts = new TreeMap<>();
  private final Map<Integer, String> executorOf = new HashMap<>();

  @Override
  public void onExecutorAdded(SparkListenerExecutorAdded event) {
    add(event.executorId(), event.executorInfo().executorHost());
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    remove(event.executorId());
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    add(event.taskInfo().executorId(), event.taskInfo().host());
  }

  synchronized void add(String executor, String host) {
    if (!executor.equals("driver")) {
      hosts.put(executor, host);
    }
  }

  synchronized void remove(String executor) {
    hosts.remove(executor);
  }

  synchronized boolean isThere(String executor) {
    return hosts.containsKey(executor);
  }

  /** Where the task of a slot prefers to run, as Spark writes it. */
  synchronized String[] of(int slot, int slots) {
    executorOf.keySet().removeIf(known -> known >= slots);
    executorOf.values().retainAll(hosts.keySet());
    if (hosts.isEmpty()) {
      return ANYWHERE;
    }
    // No executor gets more than its even share, so that one that comes gets slots of the others.
    int most = (slots + hosts.size() - 1) / hosts.size();
    String executor = executorOf.get(slot);
    if (executor == null || load(executor) > most) {
      executorOf.remove(slot);
      executor = hosts.keySet().stream().min((a, b) -> Long.compare(load(a), load(b))).orElseThrow();
      executorOf.put(slot, executor);
    }
    return new String[] {PREFIX + hosts.get(executor) + "_" + executor};
  }

  private long load(String executor) {
    return executorOf.values().stream().filter(executor::equals).count();
  }
}
