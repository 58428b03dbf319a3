import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawStringTranscoder;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Streams a node's changes through the Java DCP client, unmodified, and compares with the node. */
public final class Suite {
  private static final int WRITERS = 8;
  private static final long DEADLINE_SECONDS = 90;
  private static final long CATCH_UP_SECONDS = 40;
  private static final long SYSTEM_EVENTS = 3;

  /** The last that the node confirmed about a key; no value for a deletion. */
  record Written(long seqno, long cas, String value) {}

  private final long seed;
  private final Node node;
  private final Cluster cluster;
  private final Collection collection;
  private final Map<String, Written> expected = new HashMap<>();
  private final AtomicLong operations = new AtomicLong();

  private Suite() throws Exception {
    String text = System.getenv("SETTEE_SEED");
    seed = text == null ? 1 : Long.parseLong(text);
    System.out.println("SETTEE_SEED=" + seed);
    node = new Node();
    cluster = Cluster.connect("couchbase://127.0.0.1:" + node.kv(),
        ClusterOptions.clusterOptions("Administrator", "password")
            .environment(env -> env.timeoutConfig(t -> t.kvTimeout(Duration.ofSeconds(10)))));
    Bucket bucket = cluster.bucket("default");
    bucket.waitUntilReady(Duration.ofSeconds(30), com.couchbase.client.java.diagnostics.WaitUntilReadyOptions
        .waitUntilReadyOptions().serviceTypes(com.couchbase.client.core.service.ServiceType.KV));
    collection = bucket.defaultCollection();
  }

  public static void main(String[] arguments) {
    Tests.main("dcp-java", arguments, () -> {
      if (arguments.length > 3 && arguments[0].equals("follow")) {
        Follower.follow(arguments[1], List.of(arguments).subList(3, arguments.length));
        Runtime.getRuntime().halt(0);
      }
      return new Suite().tests();
    });
  }

  private Tests tests() {
    Tests tests = new Tests(() -> {
      cluster.disconnect();
      node.close();
    });
    tests.put("streams_from_the_beginning_under_load", () -> within(this::streamsUnderLoad));
    tests.put("resumes_after_cuts_at_random_frames", () -> within(this::resumesAfterCuts));
    tests.put("resumes_from_a_saved_state_after_a_restart", () -> within(this::resumesFromState));
    tests.put("waits_for_a_listener_that_does_not_return", () -> within(this::waitsForTheListener));
    tests.put("rolls_back_an_unknown_branch", () -> within(this::rollsBack));
    return tests;
  }

  /** A test that hangs ends the suite. */
  private static void within(Tests.Test test) throws Exception {
    Thread watch = new Thread(() -> {
      try {
        Thread.sleep(DEADLINE_SECONDS * 1000);
        System.out.println("FAIL dcp-java: a test hangs");
        System.out.println("0 passed, 1 failed");
        Runtime.getRuntime().halt(1);
      } catch (InterruptedException ended) {
        // In time.
      }
    });
    watch.setDaemon(true);
    watch.start();
    try {
      test.run();
    } finally {
      watch.interrupt();
    }
  }

  /** Writes with several threads, each with keys of its own; the results are expected afterwards. */
  private final class Load {
    private final ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
    private final List<Future<Map<String, Written>>> results = new ArrayList<>();
    private volatile boolean ending;

    Load(String prefix, int keys, long count) {
      for (int writer = 0; writer < WRITERS; writer++) {
        int own = writer;
        results.add(threads.submit(() -> write(prefix, keys, count / WRITERS, own)));
      }
    }

    private Map<String, Written> write(String prefix, int keys, long count, int writer) {
      Random random = new Random(seed * WRITERS + writer);
      Map<String, Written> last = new HashMap<>();
      for (long n = 0; n < count && !ending; n++) {
        String key = prefix + "-" + (random.nextInt(keys / WRITERS) * WRITERS + writer);
        Written before = last.get(key);
        if (before != null && before.value() != null && random.nextInt(5) == 0) {
          last.put(key, written(collection.remove(key), null));
        } else {
          String value = "{\"n\":" + random.nextLong() + "}";
          last.put(key, written(collection.upsert(key, value,
              UpsertOptions.upsertOptions().transcoder(RawStringTranscoder.INSTANCE)), value));
        }
        operations.incrementAndGet();
      }
      return last;
    }

    void finish(boolean now) throws Exception {
      ending = now;
      for (Future<Map<String, Written>> result : results) {
        expected.putAll(result.get());
      }
      threads.shutdown();
    }
  }

  private static Written written(MutationResult result, String value) {
    return new Written(result.mutationToken().orElseThrow().sequenceNumber(), result.cas(), value);
  }

  /** Polls until the condition names nothing that is missing. */
  private static void eventually(java.util.concurrent.Callable<String> missing) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CATCH_UP_SECONDS);
    for (String last = missing.call(); last != null; last = missing.call()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("not within " + CATCH_UP_SECONDS + " s: " + last);
      }
      Thread.sleep(20);
    }
  }

  /** Waits until the view is where the node is, and compares it with what was confirmed and is there. */
  private void holds(View view) throws Exception {
    eventually(() -> {
      if (view.broken() != null) {
        throw new AssertionError(view.broken());
      }
      var seqnos = view.client().getSeqnos().collectList().block(Duration.ofSeconds(30));
      if (seqnos.size() != View.VBUCKETS) {
        return seqnos.size() + " high seqnos";
      }
      for (var high : seqnos) {
        long reached = view.reached(high.partition());
        // The client keeps to itself the events that begin the scope of the system, with which every vBucket begins.
        boolean empty = reached == 0 && high.seqno() == SYSTEM_EVENTS;
        if (reached != high.seqno() && !empty) {
          return "vBucket " + high.partition() + " is at " + reached + " of " + high.seqno();
        }
      }
      return null;
    });
    Map<String, View.Change> documents = view.documents();
    for (Map.Entry<String, Written> one : expected.entrySet()) {
      View.Change seen = documents.get(one.getKey());
      Written last = one.getValue();
      if (seen == null || seen.seqno() != last.seqno() || seen.cas() != last.cas()
          || !java.util.Objects.equals(seen.value(), last.value())) {
        throw new AssertionError(one.getKey() + ": the node confirmed " + last + ", the stream said " + seen);
      }
    }
    for (View.Change seen : documents.values()) {
      if (!seen.deleted() && !expected.containsKey(seen.key())) {
        throw new AssertionError(seen.key() + " is in the stream and was never written");
      }
    }
    for (String key : expected.keySet()) {
      compare(documents.get(key));
    }
  }

  private void compare(View.Change seen) {
    String there = null;
    try {
      there = collection.get(seen.key(), GetOptions.getOptions().transcoder(RawStringTranscoder.INSTANCE))
          .contentAs(String.class);
    } catch (DocumentNotFoundException gone) {
      // As a deletion has it.
    }
    if (!java.util.Objects.equals(there, seen.value())) {
      throw new AssertionError(seen.key() + ": the node has " + there + ", the view " + seen.value());
    }
  }

  private void streamsUnderLoad() throws Exception {
    try (View view = new View(node.kv(), 1 << 20)) {
      Load load = new Load("load", 2_000, 8_000);
      view.start();
      load.finish(false);
      holds(view);
      if (view.opened() < View.VBUCKETS) {
        throw new AssertionError(view.opened() + " streams were opened");
      }
    }
  }

  private void resumesAfterCuts() throws Exception {
    try (Proxy proxy = new Proxy(node.kv(), seed); View view = new View(proxy.port(), 1 << 20)) {
      proxy.cut(5, 2_000);
      view.mayRepeat();
      Load load = new Load("cut", 2_000, 1L << 40);
      view.start();
      eventually(() -> proxy.cutsLeft() > 0 ? proxy.cutsLeft() + " cuts are left" : null);
      load.finish(true);
      holds(view);
      if (view.opened() <= View.VBUCKETS) {
        throw new AssertionError("no stream was taken up again");
      }
    }
  }

  private void resumesFromState() throws Exception {
    View first = new View(node.kv(), 1 << 20);
    byte[] state;
    try (first) {
      first.start();
      Load load = new Load("state", 1_000, 2_000);
      load.finish(false);
      holds(first);
      state = first.save();
    }
    node.stop();
    node.start();
    try (View second = new View(node.kv(), 1 << 20)) {
      Load load = new Load("state", 1_000, 2_000);
      second.start(first, state);
      load.finish(false);
      holds(second);
      if (!second.rollbacks().isEmpty()) {
        throw new AssertionError("rolled back after a clean restart: " + second.rollbacks());
      }
    }
  }

  private void waitsForTheListener() throws Exception {
    try (View view = new View(node.kv(), 16 * 1024)) {
      CountDownLatch gate = new CountDownLatch(1);
      view.blockAfter(50, gate);
      Load load = new Load("blocked", 1_000, 1L << 40);
      view.start();
      eventually(() -> view.blocked() ? null : "nothing is streamed");
      long before = operations.get();
      eventually(() -> operations.get() > before + 2_000 ? null : "only " + operations.get() + " writes");
      gate.countDown();
      load.finish(true);
      holds(view);
    }
  }

  private void rollsBack() throws Exception {
    View first = new View(node.kv(), 1 << 20);
    byte[] state;
    try (first) {
      first.start();
      holds(first);
      first.corrupt(7);
      state = first.save();
    }
    try (View second = new View(node.kv(), 1 << 20)) {
      second.start(first, state);
      holds(second);
      if (!second.rollbacks().equals(Map.of(7, 0L))) {
        throw new AssertionError("rolled back: " + second.rollbacks());
      }
    }
  }
}
