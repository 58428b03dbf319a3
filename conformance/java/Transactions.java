import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.transactions.TransactionAttemptContext;
import com.couchbase.client.java.transactions.TransactionGetResult;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import com.couchbase.client.java.transactions.error.TransactionExpiredException;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/** Transactions of the Java SDK: they stage what they write in attributes of documents and tombstones. */
final class Transactions {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofSeconds(10);
  private static final int ATTEMPTS = 4;
  private static final int WORKERS = 4;
  private static final int ROUNDS = 10;
  private static final int ACCOUNTS = 6;

  /** Where to connect, then what to trust there, if anything. */
  private final List<String> place;
  private final Cluster cluster;
  private final Collection collection;
  private final AtomicInteger writes = new AtomicInteger();

  Transactions(List<String> place, Cluster cluster, Collection collection) {
    this.place = place;
    this.cluster = cluster;
    this.collection = collection;
  }

  private static JsonObject n(int n) {
    return JsonObject.create().put("n", n);
  }

  private static void equal(Object got, Object expected, String what) {
    if (!Objects.equals(got, expected)) {
      throw new AssertionError(what + ": expected " + expected + ", got " + got);
    }
  }

  private int number(String key) {
    return collection.get(key).contentAsObject().getInt("n");
  }

  private JsonArray attributes(String key) {
    return collection.lookupIn(key, List.of(LookupInSpec.get("$XTOC").xattr())).contentAsArray(0);
  }

  /** Nobody sees what is staged; afterwards all of it is there, and nothing of how it came. */
  void commits() {
    collection.upsert("txn-replaced", n(1));
    collection.upsert("txn-removed", n(2));
    collection.upsert("txn-again", n(3));
    collection.remove("txn-again");
    cluster.transactions().run(context -> {
      TransactionGetResult replaced = context.get(collection, "txn-replaced");
      TransactionGetResult removed = context.get(collection, "txn-removed");
      equal(removed.contentAsObject(), n(2), "what is to be removed");
      replaced = context.replace(replaced, n(10));
      context.replace(replaced, n(11));
      context.remove(removed);
      context.insert(collection, "txn-inserted", n(12));
      context.insert(collection, "txn-again", n(13));
      equal(context.get(collection, "txn-inserted").contentAsObject(), n(12), "its own insert");
      equal(number("txn-replaced"), 1, "seen from outside");
      equal(number("txn-removed"), 2, "seen from outside");
      equal(collection.exists("txn-inserted").exists(), false, "seen from outside");
    }, TransactionOptions.transactionOptions().timeout(LONG));
    equal(number("txn-replaced"), 11, "replaced");
    equal(number("txn-inserted"), 12, "inserted");
    equal(number("txn-again"), 13, "inserted again");
    equal(collection.exists("txn-removed").exists(), false, "removed");
    for (String key : List.of("txn-replaced", "txn-inserted", "txn-again")) {
      equal(attributes(key), JsonArray.create(), "attributes of " + key);
    }
  }

  /** A failing transaction leaves everything as it was. */
  void rollsBack() {
    collection.upsert("txn-kept", n(1));
    try {
      cluster.transactions().run(context -> {
        context.replace(context.get(collection, "txn-kept"), n(2));
        context.insert(collection, "txn-not-made", n(3));
        throw new IllegalStateException("no");
      });
      throw new AssertionError("it did not fail");
    } catch (TransactionFailedException error) {
      equal(error.getCause().getClass(), IllegalStateException.class, "the cause");
    }
    equal(number("txn-kept"), 1, "after the failure");
    equal(attributes("txn-kept"), JsonArray.create(), "attributes");
    equal(collection.exists("txn-not-made").exists(), false, "what was to be made");
    collection.insert("txn-not-made", n(4));
    failing(DocumentExistsException.class, context -> context.insert(collection, "txn-not-made", n(5)));
    failing(DocumentNotFoundException.class, context -> context.get(collection, "txn-nowhere"));
    equal(number("txn-not-made"), 4, "what was there");
  }

  private interface Body {
    void run(TransactionAttemptContext context);
  }

  private void failing(Class<? extends Throwable> kind, Body body) {
    try {
      cluster.transactions().run(body::run);
    } catch (TransactionFailedException error) {
      equal(kind.isInstance(error.getCause()), true, "caused by " + error.getCause());
      return;
    }
    throw new AssertionError("expected " + kind.getSimpleName());
  }

  /**
   * Several at once move amounts between few accounts: the sum stays, and each count is right.
   *
   * <p>Each write differs from all others ("write"), for the SDK (3.11.1) loses one otherwise. Told that the CAS of what it
   * read is no longer the document's, it compares checksums: the body's when it read, the body's now. But what it read is
   * not the body, where a transaction had committed without having written it there: from a body of 93 with 100 on its way
   * to one of 100 to one of 93, it takes 93 for unchanged and writes what it made of 100.
   */
  void conflict() throws Exception {
    for (int account = 0; account < ACCOUNTS; account++) {
      collection.upsert("account-" + account, n(100));
    }
    collection.upsert("transfers", n(0));
    ExecutorService pool = Executors.newFixedThreadPool(WORKERS);
    List<Future<?>> workers = new ArrayList<>();
    for (int worker = 0; worker < WORKERS; worker++) {
      Random random = new Random(worker);
      workers.add(pool.submit(() -> {
        for (int round = 0; round < ROUNDS; round++) {
          int from = random.nextInt(ACCOUNTS);
          int to = (from + 1 + random.nextInt(ACCOUNTS - 1)) % ACCOUNTS;
          transfer(from, to);
        }
      }));
    }
    for (Future<?> worker : workers) {
      worker.get();
    }
    pool.shutdown();
    int sum = 0;
    for (int account = 0; account < ACCOUNTS; account++) {
      String key = "account-" + account;
      // The client cleans up after those that expired.
      eventually(() -> attributes(key).isEmpty(), "no attributes are left");
      sum += number(key);
    }
    equal(sum, 100 * ACCOUNTS, "the sum");
    equal(number("transfers"), WORKERS * ROUNDS, "transfers");
  }

  /**
   * A transaction that expired is run again: it is not committed, and others take what it had staged.
   *
   * <p>The SDK (3.11.1) can wait until then for an operation of its own that has ended: its log says "waiting for 1 KV ops in
   * auto-rollback" right after the end of that operation.
   */
  private void transfer(int from, int to) {
    for (int attempt = 1;; attempt++) {
      try {
        cluster.transactions().run(context -> {
          add(context, "account-" + from, -7);
          add(context, "account-" + to, 7);
          add(context, "transfers", 1);
        }, TransactionOptions.transactionOptions().timeout(SHORT));
        return;
      } catch (TransactionFailedException error) {
        if (attempt == ATTEMPTS || !(error instanceof TransactionExpiredException)) {
          error.logs().forEach(event -> System.err.println("       " + event));
          throw error;
        }
      }
    }
  }

  private void add(TransactionAttemptContext context, String key, int amount) {
    TransactionGetResult found = context.get(collection, key);
    JsonObject changed = n(found.contentAsObject().getInt("n") + amount);
    context.replace(found, changed.put("write", writes.incrementAndGet()));
  }

  /** A client that ends in the middle of a transaction, as if it was killed. */
  public static void main(String[] arguments) {
    Cluster cluster = connect(List.of(arguments));
    cluster.bucket("default").waitUntilReady(LONG);
    Collection collection = cluster.bucket("default").defaultCollection();
    cluster.transactions().run(context -> {
      context.replace(context.get(collection, "txn-left"), n(2));
      context.insert(collection, "txn-left-over", n(3));
      Runtime.getRuntime().halt(0);
    }, TransactionOptions.transactionOptions().timeout(Duration.ofSeconds(4)));
  }

  /** A client goes away in the middle of a transaction: once its time is over others take its documents. */
  void cleansUp() throws Exception {
    collection.upsert("txn-left", n(1));
    List<String> command = new ArrayList<>(List.of(
        ProcessHandle.current().info().command().orElse("java"),
        "-cp", System.getProperty("java.class.path"), "Transactions"));
    command.addAll(place);
    Process lost = new ProcessBuilder(command)
        .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    equal(lost.waitFor(), 0, "the end of the lost client");
    equal(attributes("txn-left").size(), 1, "attributes that are left");
    equal(number("txn-left"), 1, "seen from outside");
    equal(collection.exists("txn-left-over").exists(), false, "seen from outside");
    try (Cluster helper = connect(place)) {
      helper.bucket("default").waitUntilReady(LONG);
      Collection its = helper.bucket("default").defaultCollection();
      // It looks after the collection once it has changed something there.
      helper.transactions().run(context -> context.insert(its, "txn-of-helper", n(1)));
      helper.transactions().run(context -> {
        context.replace(context.get(its, "txn-left"), n(4));
        context.insert(its, "txn-left-over", n(5));
      }, TransactionOptions.transactionOptions().timeout(LONG));
      eventually(() -> collection.exists("_txn:client-record").exists(), "clients are listed");
    }
    for (String key : List.of("txn-left", "txn-left-over")) {
      equal(attributes(key), JsonArray.create(), "attributes of " + key);
    }
    equal(number("txn-left") + number("txn-left-over"), 9, "the new ones");
  }

  private static Cluster connect(List<String> place) {
    return Cluster.connect(place.get(0),
        ClusterOptions.clusterOptions("Administrator", "password").environment(env -> env
            .securityConfig(security -> place.stream().skip(1).map(Path::of).forEach(security::trustCertificate))
            .transactionsConfig(config -> config
                .cleanupConfig(cleanup -> cleanup.cleanupWindow(Duration.ofSeconds(2))))));
  }

  private static void eventually(Supplier<Boolean> probe, String what) throws InterruptedException {
    long end = System.nanoTime() + LONG.toNanos();
    while (!probe.get()) {
      if (System.nanoTime() > end) {
        throw new AssertionError("not in time: " + what);
      }
      Thread.sleep(50);
    }
  }
}
