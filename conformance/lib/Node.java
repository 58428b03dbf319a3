import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** One `settee serve` with a data directory of its own, on free ports. */
final class Node implements AutoCloseable {
  private static final long START_SECONDS = 20;
  private static final long STOP_SECONDS = 30;
  /** Whether the SDK connects with couchbases://. */
  private static final boolean OVER_TLS = "1".equals(System.getenv("SETTEE_OVER_TLS"));

  private final Path home;
  private Process process;
  private int kv;
  private int http;
  private int tls;
  private int https;

  Node() throws Exception {
    home = Files.createTempDirectory("settee-conformance-");
    start();
  }

  int kv() {
    return kv;
  }

  /** Where the SDK connects, with TLS or without. */
  String address() {
    return OVER_TLS ? "couchbases://127.0.0.1:" + tls : "couchbase://127.0.0.1:" + kv;
  }

  /** Where the SDK connects, then what it trusts there, if anything. */
  List<String> place() {
    return Stream.concat(Stream.of(address()), authority().map(Path::toString).stream()).toList();
  }

  /** What the SDK trusts there, if that is over TLS. */
  Optional<Path> authority() {
    return Optional.of(home.resolve("data/tls/ca.pem")).filter(path -> OVER_TLS);
  }

  /** Waits until the node serves; later starts take the ports of the first. */
  void start() throws Exception {
    Path portsFile = home.resolve("ports.json");
    Files.deleteIfExists(portsFile);
    File log = home.resolve("log").toFile();
    List<String> command = new ArrayList<>(List.of(
        // The node does not outlive this process, however that ends.
        "setpriv", "--pdeathsig", "KILL",
        System.getenv("SETTEE_BIN"), "serve",
        "--data-dir", home.resolve("data").toString(),
        "--kv-port", Integer.toString(kv), "--http-port", Integer.toString(http),
        "--ports-file", portsFile.toString()));
    if (OVER_TLS) {
      command.addAll(List.of("--kv-tls-port", Integer.toString(tls), "--https-port", Integer.toString(https)));
    }
    process = new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.appendTo(log))
        .start();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
    while (!Files.exists(portsFile)) {
      if (!process.isAlive() || System.nanoTime() > deadline) {
        throw new AssertionError("the node does not serve:\n" + Files.readString(log.toPath()));
      }
      Thread.sleep(5);
    }
    String ports = Files.readString(portsFile);
    kv = port(ports, "kv");
    http = port(ports, "http");
    tls = OVER_TLS ? port(ports, "kv_tls") : 0;
    https = OVER_TLS ? port(ports, "https") : 0;
  }

  private static int port(String ports, String name) {
    Matcher found = Pattern.compile("\"" + name + "\"\\s*:\\s*(\\d+)").matcher(ports);
    if (!found.find()) {
      throw new AssertionError("no port " + name + " in " + ports);
    }
    return Integer.parseInt(found.group(1));
  }

  /** SIGTERM: the node must drain, flush and end with 0. */
  void stop() throws Exception {
    process.destroy();
    if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
      kill();
      throw new AssertionError("the node ignores SIGTERM");
    }
    if (process.exitValue() != 0) {
      throw new AssertionError("after SIGTERM: " + process.exitValue() + "\n" + Files.readString(home.resolve("log")));
    }
  }

  /** SIGKILL: nothing is drained. */
  void kill() throws Exception {
    process.destroyForcibly().waitFor();
  }

  @Override
  public void close() throws Exception {
    try {
      stop();
    } finally {
      try (Stream<Path> files = Files.walk(home)) {
        for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
          Files.delete(file);
        }
      } catch (IOException ignored) {
        // What is left is in the system's folder for temporary files.
      }
    }
  }
}
