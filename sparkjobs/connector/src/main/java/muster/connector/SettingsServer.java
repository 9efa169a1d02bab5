package muster.connector;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.HexFormat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives Kafka's settings to the Python processes of this executor, which read the changelogs of state by key.
 *
 * <p>The settings hold secrets. They come with the tasks' ranges, as those of the reader, and are kept in memory only:
 * a closure in Python would put them into files of Spark's. A process finds the server and its token in a file of the
 * executor's own folder that no other user can read. The token is of no use when the executor has ended.
 */
final class SettingsServer {
  static final SettingsServer INSTANCE = new SettingsServer();

  /** What Python takes for the file, in the folder of the executor's stores. */
  static final String FILE = "settings-server";

  private static final Logger LOG = LoggerFactory.getLogger(SettingsServer.class);

  /** Milliseconds that one who connects has to say the token. */
  private static final int PATIENCE = 2000;

  private volatile String answer = "";
  private ServerSocket socket;

  /** Give these settings from now on, as part of {@code executor}; the file is in {@code folder}. */
  synchronized void give(String settings, String executor, Path folder) throws IOException {
    answer = executor + "\n" + settings;
    if (socket == null) {
      var opened = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
      try {
        start(opened, folder);
      } catch (IOException | RuntimeException e) {
        opened.close();
        throw e;
      }
      socket = opened;
    }
  }

  synchronized void close() throws IOException {
    if (socket != null) {
      socket.close();
      socket = null;
    }
  }

  private void start(ServerSocket opened, Path folder) throws IOException {
    var random = new byte[32];
    new SecureRandom().nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    Files.createDirectories(folder, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    Path written =
        Files.createTempFile(
            folder, FILE, "", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    Files.writeString(
        written, opened.getInetAddress().getHostAddress() + " " + opened.getLocalPort() + " " + token);
    Files.move(written, folder.resolve(FILE), StandardCopyOption.ATOMIC_MOVE);
    var thread = new Thread(() -> serve(opened, token.getBytes(StandardCharsets.US_ASCII)), "muster-settings");
    thread.setDaemon(true);
    thread.start();
  }

  private void serve(ServerSocket opened, byte[] token) {
    while (!opened.isClosed()) {
      try (var client = opened.accept()) {
        client.setSoTimeout(PATIENCE);
        if (MessageDigest.isEqual(client.getInputStream().readNBytes(token.length), token)) {
          client.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
        }
      } catch (IOException e) {
        if (!opened.isClosed()) {
          LOG.warn("a Python process did not get Kafka's settings, and asks again: {}", e.toString());
        }
      }
    }
  }
}
