package muster.connector;

import java.net.URI;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * {@code muster-scratch:///folder}: local files that keep the rights of the process that made them.
 *
 * <p>Hadoop's own local file system sets the rights of each new file, and without its native library it starts a process
 * for that. A query's checkpoint gets two files a batch, which took a fifth of the time of a small batch.
 */
public final class ScratchFileSystem extends RawLocalFileSystem {
  private static final URI ROOT = URI.create("muster-scratch:///");

  @Override
  public String getScheme() {
    return ROOT.getScheme();
  }

  @Override
  public URI getUri() {
    return ROOT;
  }

  @Override
  public void setPermission(Path path, FsPermission permission) {}
}
