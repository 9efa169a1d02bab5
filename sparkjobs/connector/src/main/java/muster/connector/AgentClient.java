package muster.connector;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Collection;

/** Asks the agent of the consumer, which runs in the driver's script, for the next batch. */
final class AgentClient {
  private static final String PATH = "/source/next";
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A planning waits for Kafka, whose calls the agent bounds. */
  private static final Duration TIMEOUT = Duration.ofSeconds(60);

  /**
   * What there is to tell the agent.
   *
   * @param gone what tasks did not find in Kafka since it last answered
   * @param bytes how many bytes of keys, values and headers tasks have read since the query began
   */
  record News(Collection<Gone> gone, long bytes) {}

  private final String url;
  private final String token;
  private final HttpClient http =
      HttpClient.newBuilder()
          .version(HttpClient.Version.HTTP_1_1)
          .connectTimeout(Duration.ofSeconds(5))
          // The agent is on this machine: a proxy would only be in the way.
          .proxy(HttpClient.Builder.NO_PROXY)
          .build();

  AgentClient(String url, String token) {
    this.url = url;
    this.token = token;
  }

  /**
   * Returns the batch that follows the one that ended with {@code finished}.
   *
   * @param parallelism how many tasks run at a time
   * @throws IOException if asking again may help
   * @throws IllegalStateException if it does not help: the agent refuses
   */
  NextBatch next(BatchOffset finished, int parallelism, News news) throws IOException, InterruptedException {
    var request =
        HttpRequest.newBuilder(URI.create(url + PATH))
            .timeout(TIMEOUT)
            .header("Authorization", "Bearer " + token)
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(question(finished, parallelism, news)))
            .build();
    HttpResponse<String> answer;
    try {
      answer = http.send(request, HttpResponse.BodyHandlers.ofString());
    } catch (IOException e) {
      throw new IOException(
          "agent at " + url + ": " + e + "; it runs in the driver script, whose log says whether it is still there", e);
    }
    int status = answer.statusCode();
    if (status == 200) {
      return NextBatch.parse(answer.body());
    }
    String said = "agent at " + url + ": " + PATH + ": " + status + ": " + shortened(answer.body()) + "; ";
    if (status >= 500) {
      throw new IOException(said + "the driver's log says why");
    }
    throw new IllegalStateException(said + step(status));
  }

  private static String question(BatchOffset finished, int parallelism, News news) {
    ObjectNode question = JSON.createObjectNode();
    question.putRawValue("finished", new RawValue(finished.json()));
    question.put("parallelism", parallelism);
    question.set("gone", JSON.valueToTree(news.gone().stream().map(AgentClient::node).toList()));
    question.put("bytes", news.bytes());
    return question.toString();
  }

  private static ObjectNode node(Gone gone) {
    return JSON.createObjectNode()
        .put("topic", gone.topic())
        .put("partition", gone.partition())
        .put("from", gone.from())
        .put("to", gone.to())
        .put("deleted", gone.deleted());
  }

  private static String step(int status) {
    return switch (status) {
      case 401 -> "check the source's options 'agent' and 'token', unless its query has ended";
      case 409 -> "the query is started again, from the committed offsets";
      case 422 -> "check that the connector's jar and muster are of the same version";
      default -> "check the source's option 'agent'";
    };
  }

  private static String shortened(String text) {
    return text.length() <= 300 ? text : text.substring(0, 300);
  }
}
