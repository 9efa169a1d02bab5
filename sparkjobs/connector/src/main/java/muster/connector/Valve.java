package muster.connector;

import java.nio.ByteBuffer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;

/**
 * Ends a poll when it has brought so many bytes: Kafka's own limit is one of records, whatever they unpack to.
 *
 * <p>Kafka's client gives each record's key and value to deserializers. One that fails ends the poll with the records before
 * it, and the client keeps its place: the next poll begins with that very record. The first record of a poll always passes.
 * Used by one thread.
 */
final class Valve {
  /** What a record takes besides its key, value and headers, while it is on its way from the client into columns. */
  private static final int OVERHEAD = 300;

  private static final SerializationException FULL = new Full();

  /** Made once, and without a trace. */
  private static final class Full extends SerializationException {
    private static final long serialVersionUID = 1L;

    Full() {
      super("the poll has brought as much as it may");
    }
  }

  final Deserializer<ByteBuffer> keys = new Part(false);
  final Deserializer<ByteBuffer> values = new Part(true);
  private long most = Long.MAX_VALUE;
  private long sum;

  /** Of a record whose value has not been seen, and may be null. */
  private long begun;

  /** Have Kafka's client not log each end of a poll as an error; what it logs besides is for its developers. */
  static void quiet() {
    try {
      Configurator.setLevel(KafkaConsumer.class.getPackageName() + ".internals.CompletedFetch", Level.OFF);
    } catch (LinkageError e) {
      // The log is written by something else than Spark's own.
    }
  }

  /** The next poll may bring so many bytes. */
  void open(long bytes) {
    most = bytes;
    sum = 0;
    begun = 0;
  }

  private void pass(long size, boolean ends) {
    if (!ends) {
      sum += begun;
      begun = 0;
    }
    if (sum > 0 && sum + begun + size > most) {
      begun = 0;
      throw FULL;
    }
    begun += size;
    if (ends) {
      sum += begun;
      begun = 0;
    }
  }

  private final class Part implements Deserializer<ByteBuffer> {
    private final boolean ends;

    Part(boolean ends) {
      this.ends = ends;
    }

    @Override
    public ByteBuffer deserialize(String topic, byte[] data) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ByteBuffer deserialize(String topic, Headers headers, ByteBuffer data) {
      long more = data.remaining();
      pass(ends ? more + OVERHEAD + Chunk.Sizes.of(headers) : more, ends);
      return data;
    }
  }
}
