package muster.connector;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.util.AccumulatorV2;

/** The bytes that each executor's consumers held when its last task ended, on their way to the driver. */
final class HeldBytes extends AccumulatorV2<HeldBytes.Of, Map<String, Long>> {
  private static final long serialVersionUID = 1L;

  /** What an executor holds. */
  record Of(String executor, long bytes) {}

  private final ConcurrentHashMap<String, Long> held = new ConcurrentHashMap<>();

  @Override
  public boolean isZero() {
    return held.isEmpty();
  }

  @Override
  public AccumulatorV2<Of, Map<String, Long>> copy() {
    var copy = new HeldBytes();
    copy.held.putAll(held);
    return copy;
  }

  @Override
  public void reset() {
    held.clear();
  }

  @Override
  public void add(Of of) {
    held.put(of.executor(), of.bytes());
  }

  @Override
  public void merge(AccumulatorV2<Of, Map<String, Long>> other) {
    held.putAll(other.value());
  }

  @Override
  public Map<String, Long> value() {
    return Map.copyOf(held);
  }
}
