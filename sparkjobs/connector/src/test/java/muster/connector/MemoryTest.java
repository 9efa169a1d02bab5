package muster.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class MemoryTest {
  private static final long BOUND = 48 << 20;

  private final Memory memory = new Memory(BOUND);

  private static long poll(Memory of) {
    return of.share("k").poll();
  }

  @Test
  void sharesOfAllClientsAndBrokersLeaveRoomForTwoPollsEach() {
    for (int brokers : List.of(1, 3, 9)) {
      for (int clients : List.of(1, 2, 3, 8, 16)) {
        var of = new Memory(BOUND);
        of.brokers("k", brokers);
        var accounts = new ArrayList<Memory.Account>();
        for (int i = 0; i < clients; i++) {
          accounts.add(of.open("k"));
        }
        accounts.forEach(account -> account.begin(1));
        for (int i = 0; i < 2; i++) {
          accounts.forEach(account -> assertTrue(account.reserve(poll(of))));
        }
        assertTrue(of.held() <= BOUND, brokers + " brokers, " + clients + " clients: " + of.held());
        while (accounts.stream().anyMatch(account -> account.reserve(poll(of)))) {
          assertTrue(of.held() <= BOUND, "held: " + of.held());
        }
      }
    }
  }

  @Test
  void consumerThatFillsTheMemoryLeavesOthersTheirTwoPolls() {
    var one = memory.open("k");
    var other = memory.open("k");
    one.begin(1);
    other.begin(1);
    while (one.reserve(poll(memory))) {
      assertTrue(memory.held() < BOUND);
    }
    assertTrue(other.reserve(poll(memory)));
    assertTrue(other.reserve(poll(memory)));
    assertFalse(other.reserve(poll(memory)));
    assertTrue(memory.held() <= BOUND);
  }

  @Test
  void consumerThatBeginsFirstLeavesRoomForThoseThatAreExpected() {
    memory.limit(BOUND, 4);
    var first = memory.open("k");
    first.begin(1);
    while (first.reserve(poll(memory))) {
      assertTrue(memory.held() < BOUND);
    }
    for (int i = 0; i < 3; i++) {
      var other = memory.open("k");
      other.begin(1);
      assertTrue(other.reserve(poll(memory)) && other.reserve(poll(memory)));
    }
    assertTrue(memory.held() <= BOUND, "held: " + memory.held());
  }

  @Test
  void clientIsTooLargeWhenConsumersOrBrokersAreMore() {
    var one = memory.open("k");
    var first = one.begin(1);
    assertFalse(one.isTooLarge(first));
    memory.brokers("k", 3);
    assertTrue(one.isTooLarge(first));
    var second = one.begin(1);
    memory.brokers("k", 2);
    assertFalse(one.isTooLarge(second), "fewer are no reason");
    var other = memory.open("k");
    assertTrue(one.isTooLarge(second));
    other.leave();
    assertFalse(one.isTooLarge(second));
  }

  @Test
  void boundThatIsTooSmallIsNamedWithWhatWouldFit() {
    memory.limit(1 << 20, 8);
    var error = assertThrows(IllegalArgumentException.class, () -> memory.share("k"));
    assertEquals(
        "max_read_ahead is 1048576 bytes, too few for 8 tasks that read 1 brokers; set at least 2097152",
        error.getMessage());
    memory.limit(2 << 20, 8);
    memory.share("k");
  }

  @Test
  void heapThatIsTooSmallForTheBoundIsNamedWithWhatWouldFit() {
    var error = assertThrows(IllegalArgumentException.class, () -> Memory.check(300 << 20, 512 << 20));
    assertTrue(error.getMessage().contains("max_read_ahead is 314572800 bytes") && error.getMessage().contains("268435456"));
    Memory.check(256 << 20, 512 << 20);
  }
}
