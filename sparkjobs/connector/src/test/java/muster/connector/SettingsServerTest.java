package muster.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SettingsServerTest {
  private final SettingsServer server = new SettingsServer();
  private @TempDir Path folder;

  @AfterEach
  void close() throws IOException {
    server.close();
  }

  private String[] said() throws IOException {
    return Files.readString(folder.resolve("state").resolve(SettingsServer.FILE)).split(" ");
  }

  private String ask(String token) throws IOException {
    try (var socket = new Socket(said()[0], Integer.parseInt(said()[1]))) {
      socket.getOutputStream().write(token.getBytes(StandardCharsets.US_ASCII));
      return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  @Test
  void settingsOfTheLastTaskAreGivenForTheToken() throws IOException {
    server.give("{\"old\": 1}", "7", folder.resolve("state"));
    String token = said()[2];
    server.give("{\"new\": 1}", "7", folder.resolve("state"));
    assertEquals("7\n{\"new\": 1}", ask(token));
    assertEquals(token, said()[2]);
    assertEquals("", ask("0".repeat(token.length())));
    assertEquals("7\n{\"new\": 1}", ask(token));
  }

  @Test
  void fileIsOfItsUserAloneAndHoldsNoSettings() throws IOException {
    server.give("secret", "7", folder.resolve("state"));
    Path file = folder.resolve("state").resolve(SettingsServer.FILE);
    assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file.getParent())));
    assertFalse(Files.readString(file).contains("secret"));
  }
}
