package muster.connector;

import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.util.AccumulatorV2;

/**
 * What tasks did not find in Kafka, on its way from the executors to the driver.
 *
 * <p>Spark's own collection accumulator can only be emptied as a whole, with what has come since it was looked at: the
 * threads of a handler may go on with a batch while the next one is planned. So the driver takes out those very reports
 * that it has passed on.
 */
final class GoneReports extends AccumulatorV2<Gone, List<Gone>> {
  private static final long serialVersionUID = 1L;

  /** Few, and read by other threads: an executor's heartbeat writes it down while a task adds to it. */
  private final CopyOnWriteArrayList<Gone> reports = new CopyOnWriteArrayList<>();

  @Override
  public boolean isZero() {
    return reports.isEmpty();
  }

  @Override
  public AccumulatorV2<Gone, List<Gone>> copy() {
    var copy = new GoneReports();
    copy.reports.addAll(value());
    return copy;
  }

  @Override
  public void reset() {
    reports.clear();
  }

  @Override
  public void add(Gone report) {
    reports.add(report);
  }

  @Override
  public void merge(AccumulatorV2<Gone, List<Gone>> other) {
    reports.addAll(other.value());
  }

  /** What is there now; later reports do not change it. */
  @Override
  public List<Gone> value() {
    return List.copyOf(reports);
  }

  /** Take out these very reports; equal ones that came later stay. */
  void remove(Collection<Gone> passedOn) {
    var them = Collections.<Gone>newSetFromMap(new IdentityHashMap<>());
    them.addAll(passedOn);
    reports.removeIf(them::contains);
  }
}
