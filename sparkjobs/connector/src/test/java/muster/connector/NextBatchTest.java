package muster.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class NextBatchTest {
  private static final String ANSWER =
      """
      {"offset": {"t": {"0": [5, 9], "1": [0, 0]}},
       "tasks": [{"k:9092": {"t": {"0": [5, 9, 11]}}}, {}],
       "kafka": {"k:9092": {"bootstrap.servers": "k:9092", "sasl.jaas.config": "secret"}},
       "metrics": {"maxOffsetsBehindLatest": "3"}}""";

  private final List<String> asked = new ArrayList<>();
  private HttpServer server;
  private int status = 200;
  private String answer = ANSWER;

  @BeforeEach
  void start() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/source/next", exchange -> {
      asked.add(exchange.getRequestHeaders().getFirst("Authorization"));
      asked.add(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
      byte[] body = answer.getBytes(StandardCharsets.UTF_8);
      exchange.sendResponseHeaders(status, body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    });
    server.start();
  }

  @AfterEach
  void stop() {
    server.stop(0);
  }

  private NextBatch next() throws Exception {
    var client = new AgentClient("http://127.0.0.1:" + server.getAddress().getPort(), "secret-token");
    var news = new AgentClient.News(List.of(new Gone("t", 0, 1, 3, true)), 7, 9);
    return client.next(new BatchOffset("{\"t\":{\"0\":[0,5]}}"), 2, news);
  }

  @Test
  void planIsWhatTheAgentAnswers() throws Exception {
    var plan = next();
    assertEquals("{\"t\":{\"0\":[5,9],\"1\":[0,0]}}", plan.end().json());
    assertEquals(
        List.of(Map.of("k:9092", Map.of(new TopicPartition("t", 0), new Range(5, 9, 11))), Map.of()), plan.tasks());
    assertEquals("3", plan.metrics().get("maxOffsetsBehindLatest"));
    assertEquals("secret", plan.settings("k:9092").get("sasl.jaas.config"));
    assertFalse(plan.failOnDataLoss());
    assertFalse(plan.toString().contains("secret"));
    assertEquals("Bearer secret-token", asked.get(0));
    assertEquals(
        "{\"finished\":{\"t\":{\"0\":[0,5]}},\"parallelism\":2,"
            + "\"gone\":[{\"topic\":\"t\",\"partition\":0,\"from\":1,\"to\":3,\"deleted\":true}],\"bytes\":7,\"held\":9}",
        asked.get(1));
  }

  @Test
  void planSaysWhetherTasksFailOnDataLoss() throws Exception {
    answer = ANSWER.substring(0, ANSWER.length() - 1) + ", \"failOnDataLoss\": true}";
    assertTrue(next().failOnDataLoss());
  }

  @Test
  void agentThatIsNotReadyMayBeAskedAgain() {
    status = 503;
    answer = "not now";
    var error = assertThrows(IOException.class, this::next);
    assertTrue(error.getMessage().contains("503: not now"), error.getMessage());
    server.stop(0);
    assertThrows(IOException.class, this::next);
  }

  @Test
  void refusalSaysWhatToDo() {
    status = 401;
    answer = "wrong token";
    var error = assertThrows(IllegalStateException.class, this::next);
    assertTrue(error.getMessage().contains("check the source's options 'agent' and 'token'"), error.getMessage());
  }

  @Test
  void answerThatIsNoPlanIsNotShown() {
    answer = "{\"kafka\": \"secret\"}";
    var error = assertThrows(IllegalArgumentException.class, this::next);
    assertFalse(error.getMessage().contains("secret"), error.getMessage());
  }

  @Test
  void settingsThatKafkaDoesNotHaveAreNamed() {
    var error =
        assertThrows(
            IllegalArgumentException.class,
            () -> ConsumerSettings.check(Map.of("bootstrap.servers", "k", "queued.min.messages", "1")));
    assertTrue(error.getMessage().contains("queued.min.messages"), error.getMessage());
    assertFalse(error.getMessage().contains("bootstrap.servers"));
  }

  @Test
  void settingsOfTheAgentStandAboveDefaultsAndBelowWhatReadingNeeds() {
    var settings =
        ConsumerSettings.of(
            Map.of("max.poll.records", "7", "auto.offset.reset", "latest", "group.id", "g", "client.id", "mine"), "c-1",
            new Memory.Share(1 << 20, 1 << 19));
    assertEquals("7", settings.get("max.poll.records"));
    assertEquals("none", settings.get("auto.offset.reset"));
    assertEquals("mine-c-1", settings.get("client.id"));
    assertFalse(settings.containsKey("group.id"));
  }

  @Test
  void fetchesAreNoLargerThanTheShareOfMemory() {
    var share = new Memory.Share(1 << 20, 1 << 19);
    var usual = ConsumerSettings.of(Map.of(), "c", share);
    assertEquals("1048576", usual.get("fetch.max.bytes"));
    assertEquals("1048576", usual.get("max.partition.fetch.bytes"));
    var less = ConsumerSettings.of(Map.of("fetch.max.bytes", "5000", "max.partition.fetch.bytes", "x"), "c", share);
    assertEquals("5000", less.get("fetch.max.bytes"));
    assertEquals("x", less.get("max.partition.fetch.bytes"), "Kafka's client says what is wrong with it");
  }
}
