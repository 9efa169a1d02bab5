package muster.connector;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class ExecutorLocationsTest {
  private final ExecutorLocations locations = new ExecutorLocations();

  private List<String> of(int slots) {
    return IntStream.range(0, slots).mapToObj(slot -> String.join(",", locations.of(slot, slots))).toList();
  }

  @Test
  void slotsHaveNoPreferenceInTheDriver() {
    locations.add("driver", "host");
    assertArrayEquals(new String[0], locations.of(0, 2));
  }

  @Test
  void slotsStayWhereTheyAreUntilAnExecutorComesOrGoes() {
    locations.add("1", "a");
    locations.add("2", "b");
    var before = of(4);
    assertEquals(List.of("executor_a_1", "executor_b_2", "executor_a_1", "executor_b_2"), before);
    assertEquals(before, of(4));
    locations.remove("1");
    assertEquals(List.of("executor_b_2"), of(4).stream().distinct().toList());
    locations.add("3", "a");
    var after = of(4);
    assertEquals(2, after.stream().filter("executor_a_3"::equals).count(), after.toString());
    assertEquals(after, of(4));
  }
}
