import com.couchbase.client.core.error.DurabilityAmbiguousException;
import com.couchbase.client.core.error.DurabilityImpossibleException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInOptions;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import java.util.List;
import java.util.Scanner;
import java.util.function.Supplier;

/**
 * The Java SDK at a cluster that changes: writes and reads in rounds, until it is told to stop. It is told on its input
 * what may go wrong: in the calm nothing but writes whose outcome is not known, in the storm what is tried again later.
 */
final class Follower {
  /** Documents in each bucket. */
  private static final int KEYS = 25;
  private static final long PAUSE_MS = 2;
  /** How long an operation is tried, and how long what failed is tried again: longer than a failover. */
  private static final Duration TIMEOUT = Duration.ofSeconds(20);
  private static final Duration PATIENCE = Duration.ofSeconds(80);

  private final String name;
  private final List<Collection> collections;
  private volatile String word = "calm";

  /** What is done to each document. */
  private interface Step {
    void run(Collection collection, String key) throws InterruptedException;
  }

  Follower(String seeds, String name, List<String> buckets) {
    this.name = name;
    Cluster cluster = Cluster.connect("couchbase://" + seeds, "Administrator", "password");
    collections = buckets.stream().map(bucket -> cluster.bucket(bucket).defaultCollection()).toList();
    Thread listener = new Thread(() -> {
      Scanner input = new Scanner(System.in);
      while (input.hasNextLine()) {
        word = input.nextLine().trim();
        System.out.println("told " + word);
      }
    });
    listener.setDaemon(true);
    listener.start();
  }

  void run() throws InterruptedException {
    int number = 0;
    while (!word.equals("stop")) {
      int round = ++number;
      each((collection, key) -> {
        step(collection, key, round);
        Thread.sleep(PAUSE_MS);
      });
      System.out.println("round " + round);
    }
    int last = number;
    each((collection, key) -> reads(collection, key, last));
    System.out.println("done " + last);
  }

  private void each(Step step) throws InterruptedException {
    for (Collection collection : collections) {
      for (int key = 0; key < KEYS; key++) {
        step.run(collection, name + "-" + key);
      }
    }
  }

  private boolean storm() {
    return word.equals("storm");
  }

  /** Writes a document durably, reads it, and changes a part of it. */
  private void step(Collection collection, String key, int number) throws InterruptedException {
    JsonObject value = JsonObject.create().put("round", number);
    UpsertOptions plain = UpsertOptions.upsertOptions().timeout(TIMEOUT);
    UpsertOptions durable = UpsertOptions.upsertOptions().timeout(TIMEOUT).durability(DurabilityLevel.MAJORITY);
    attempt("upsert " + key, () -> {
      try {
        return collection.upsert(key, value, durable);
      } catch (DurabilityImpossibleException error) {
        if (!storm()) {
          throw error;
        }
        // One of two copies is gone.
        return collection.upsert(key, value, plain);
      }
    });
    reads(collection, key, number);
    attempt("mutate " + key, () -> collection.mutateIn(key, List.of(MutateInSpec.upsert("part", number)),
        MutateInOptions.mutateInOptions().timeout(TIMEOUT)));
    Integer part = attempt("look up " + key, () -> collection.lookupIn(key, List.of(LookupInSpec.get("part")),
        LookupInOptions.lookupInOptions().timeout(TIMEOUT)).contentAs(0, Integer.class));
    if (!storm() && !Integer.valueOf(number).equals(part)) {
      System.out.println("trouble " + key + " has part " + part + ", not " + number);
    }
  }

  /** Expects what the last durable write left. */
  private void reads(Collection collection, String key, int number) throws InterruptedException {
    Integer round = attempt("get " + key, () -> collection.get(key, GetOptions.getOptions().timeout(TIMEOUT))
        .contentAsObject().getInt("round"));
    if (!Integer.valueOf(number).equals(round)) {
      System.out.println("trouble " + key + " is of round " + round + ", not " + number);
    }
  }

  private <T> T attempt(String what, Supplier<T> operation) throws InterruptedException {
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (true) {
      try {
        return operation.get();
      } catch (DurabilityAmbiguousException error) {
        System.out.println("ambiguous " + what);
      } catch (RuntimeException error) {
        if (!storm() || System.nanoTime() > deadline) {
          System.out.println("trouble " + what + ": " + error.toString().replace('\n', ' '));
          return null;
        }
      }
      Thread.sleep(20);
    }
  }

  /** Seeds, the name of the follower, buckets. */
  static void follow(List<String> all) throws InterruptedException {
    new Follower(all.get(0), all.get(1), all.subList(2, all.size())).run();
  }
}
