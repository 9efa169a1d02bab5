package muster.connector;

import static org.junit.jupiter.api.Assertions.fail;

import java.util.function.BooleanSupplier;

/** Waits for a condition. */
final class Eventually {
  private Eventually() {}

  static void eventually(BooleanSupplier test, String what) throws InterruptedException {
    long deadline = System.nanoTime() + 10_000_000_000L;
    while (!test.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        fail(what);
      }
      Thread.sleep(2);
    }
  }
}
