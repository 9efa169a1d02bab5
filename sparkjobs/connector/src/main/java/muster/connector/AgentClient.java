package muster.connector;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.concurrent.TimeUnit;

/**
 * Asks the agent of the consumer, which runs in the driver's script, for the next batch.
 *
 * <p>Not with {@code java.net.http}: its first request takes a quarter of a second more, most of it to load TLS.
 */
final class AgentClient {
  private static final String PATH = "/source/next";
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Milliseconds. A planning waits for Kafka, whose calls the agent bounds. */
  private static final int TIMEOUT = (int) TimeUnit.SECONDS.toMillis(60);

  private static final int CONNECT_TIMEOUT = (int) TimeUnit.SECONDS.toMillis(5);

  /**
   * What there is to tell the agent.
   *
   * @param gone what tasks did not find in Kafka since it last answered
   * @param bytes how many bytes of keys, values and headers tasks have read since the query began
   * @param held how many bytes the executors hold of what they read ahead
   */
  record News(Collection<Gone> gone, long bytes, long held) {}

  private final String url;
  private final String token;

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
  NextBatch next(BatchOffset finished, int parallelism, News news) throws IOException {
    int status;
    String answer;
    try {
      // The agent is on this machine: a proxy would only be in the way.
      var http = (HttpURLConnection) URI.create(url + PATH).toURL().openConnection(Proxy.NO_PROXY);
      http.setConnectTimeout(CONNECT_TIMEOUT);
      http.setReadTimeout(TIMEOUT);
      http.setRequestProperty("Authorization", "Bearer " + token);
      http.setRequestProperty("Content-Type", "application/json");
      http.setDoOutput(true);
      http.getOutputStream().write(question(finished, parallelism, news).getBytes(StandardCharsets.UTF_8));
      status = http.getResponseCode();
      answer = text(status < 400 ? http.getInputStream() : http.getErrorStream());
    } catch (IOException e) {
      throw new IOException(
          "agent at " + url + ": " + e + "; it runs in the driver script, whose log says whether it is still there", e);
    }
    if (status == 200) {
      return NextBatch.parse(answer);
    }
    String said = "agent at " + url + ": " + PATH + ": " + status + ": " + shortened(answer) + "; ";
    if (status >= 500) {
      throw new IOException(said + "the driver's log says why");
    }
    throw new IllegalStateException(said + step(status));
  }

  /** All of a response's body, so that its connection is used again; there may be none. */
  private static String text(InputStream body) throws IOException {
    if (body == null) {
      return "";
    }
    try (body) {
      return new String(body.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private static String question(BatchOffset finished, int parallelism, News news) {
    ObjectNode question = JSON.createObjectNode();
    question.putRawValue("finished", new RawValue(finished.json()));
    question.put("parallelism", parallelism);
    question.set("gone", JSON.valueToTree(news.gone().stream().map(AgentClient::node).toList()));
    question.put("bytes", news.bytes());
    question.put("held", news.held());
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
