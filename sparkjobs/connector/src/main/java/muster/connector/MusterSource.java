package muster.connector;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code spark.readStream.format("muster-kafka")}: the Kafka partitions that a Muster consumer holds, as a stream.
 *
 * <p>Options: {@code agent} (URL of the consumer's local API), {@code token} (its bearer token for this query) and
 * {@code read_timeout} (seconds for which a partition may give nothing before a task fails; 120) and
 * {@code max_read_ahead} (bytes that an executor holds of what is read ahead; an eighth of its heap, at most 64 MB). How to reach Kafka is
 * no option, because Spark shows options in plans; the agent says it.
 */
public final class MusterSource implements TableProvider, DataSourceRegister {
  static final String FORMAT = "muster-kafka";

  static final StructType HEADER =
      new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);

  /** The columns of Spark's own Kafka source, headers included. */
  static final StructType SCHEMA =
      new StructType()
          .add("key", DataTypes.BinaryType)
          .add("value", DataTypes.BinaryType)
          .add("topic", DataTypes.StringType)
          .add("partition", DataTypes.IntegerType)
          .add("offset", DataTypes.LongType)
          .add("timestamp", DataTypes.TimestampType)
          .add("timestampType", DataTypes.IntegerType)
          .add("headers", DataTypes.createArrayType(HEADER));

  @Override
  public String shortName() {
    return FORMAT;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new MusterTable();
  }

  private static final class MusterTable implements SupportsRead {
    @Override
    public String name() {
      return FORMAT;
    }

    // Spark 3.5 has no other way than this, which later versions deprecate.
    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new MusterScan(options);
    }
  }

  private static final class MusterScan implements Scan {
    private final CaseInsensitiveStringMap options;

    MusterScan(CaseInsensitiveStringMap options) {
      this.options = options;
    }

    @Override
    public StructType readSchema() {
      return SCHEMA;
    }

    @Override
    public String description() {
      return FORMAT;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return new BatchStream(
          new AgentClient(required("agent"), required("token")), options.getLong("read_timeout", 120),
          options.getLong("max_read_ahead", 0));
    }

    private String required(String name) {
      String value = options.get(name);
      if (value == null || value.isEmpty()) {
        throw new IllegalArgumentException(
            "format '" + FORMAT + "': option '" + name + "' is missing; set .option(\"" + name + "\", ...)");
      }
      return value;
    }
  }
}
