package muster.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class GoneReportsTest {
  private final GoneReports reports = new GoneReports();

  private static Gone gone(long from) {
    return new Gone("t", 0, from, from + 10, true);
  }

  @Test
  void reportThatComesWhileOthersArePassedOnStays() {
    reports.add(gone(0));
    var passedOn = reports.value();
    reports.add(gone(0));
    reports.add(gone(10));
    reports.remove(passedOn);
    assertEquals(List.of(gone(0), gone(10)), reports.value());
    assertEquals(List.of(gone(0)), passedOn);
  }

  @Test
  void reportsOfTasksAreMerged() {
    var task = reports.copyAndReset();
    task.add(gone(0));
    reports.add(gone(10));
    reports.merge(task);
    assertEquals(List.of(gone(10), gone(0)), reports.value());
    assertEquals(List.of(gone(10), gone(0)), reports.copy().value());
    reports.remove(reports.value());
    assertTrue(reports.isZero());
  }
}
