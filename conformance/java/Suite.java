import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.core.error.ScopeNotFoundException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.IncrementOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.PersistTo;
import com.couchbase.client.java.kv.ReplaceOptions;
import com.couchbase.client.java.kv.ReplicateTo;
import com.couchbase.client.java.kv.UpsertOptions;
import com.couchbase.client.java.manager.collection.CollectionManager;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import reactor.core.publisher.Flux;

/** The Couchbase Java SDK and spymemcached, unmodified, against a node. */
public final class Suite {
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final int MANY = 5_000;
  private static final int MIB = 1 << 20;

  private final Node node;
  private final Cluster cluster;
  private final Bucket bucket;
  private final Collection collection;

  private Suite() throws Exception {
    node = new Node();
    cluster = Cluster.connect(node.address(),
        ClusterOptions.clusterOptions("Administrator", "password")
            .environment(env -> env
                .securityConfig(security -> node.authority().ifPresent(security::trustCertificate))
                .timeoutConfig(t -> t.kvTimeout(LONG))
                .transactionsConfig(config -> config
                    .cleanupConfig(cleanup -> cleanup.cleanupWindow(Duration.ofSeconds(2))))));
    bucket = cluster.bucket("default");
    bucket.waitUntilReady(LONG);
    collection = bucket.defaultCollection();
  }

  public static void main(String[] arguments) {
    Tests.main("java", arguments, () -> {
      if (arguments.length > 3 && arguments[0].equals("follow")) {
        Follower.follow(List.of(arguments).subList(1, arguments.length));
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
    tests.put("writes_and_reads", this::writesAndReads);
    tests.put("refuses_what_cannot_be", this::refuses);
    tests.put("touches_and_expires", this::expires);
    tests.put("locks", this::locks);
    tests.put("counts_and_appends", this::counts);
    tests.put("waits_for_durability", this::durability);
    tests.put("keeps_large_documents", this::large);
    tests.put("reads_parts_of_documents", this::looksUp);
    tests.put("changes_parts_of_documents", this::mutates);
    Transactions transactions = new Transactions(node.place(), cluster, collection);
    tests.put("commits_transactions", transactions::commits);
    tests.put("rolls_transactions_back", transactions::rollsBack);
    tests.put("runs_transactions_in_conflict", transactions::conflict);
    tests.put("cleans_up_after_lost_transactions", transactions::cleansUp);
    tests.put("manages_scopes_and_collections", this::collections);
    tests.put("users_may_do_what_their_roles_say", new Users(node, cluster)::roles);
    tests.put("tells_about_buckets", this::buckets);
    tests.put("writes_many_at_once", this::many);
    tests.put("finds_all_after_a_restart", this::restart);
    tests.put("serves_spymemcached", this::spymemcached);
    return tests;
  }

  static void equal(Object got, Object expected, String what) {
    if (!Objects.equals(got, expected)) {
      throw new AssertionError(what + ": expected " + expected + ", got " + got);
    }
  }

  static Throwable throwing(Class<? extends Throwable> kind, Tests.Test test) {
    try {
      test.run();
    } catch (Throwable error) {
      if (kind.isInstance(error)) {
        return error;
      }
      throw new AssertionError("expected " + kind.getSimpleName() + ", got " + error, error);
    }
    throw new AssertionError("expected " + kind.getSimpleName());
  }

  private void writesAndReads() {
    JsonObject document = JsonObject.create().put("name", "Ana").put("n", 1);
    long cas = collection.upsert("k", document).cas();
    equal(collection.get("k").contentAsObject(), document, "what was written");
    equal(collection.get("k").cas(), cas, "CAS");
    document.put("n", 2);
    collection.replace("k", document, ReplaceOptions.replaceOptions().cas(cas));
    equal(collection.get("k").contentAsObject(), document, "what replaced it");
    equal(collection.exists("k").exists(), true, "exists");
    equal(collection.exists("nothing").exists(), false, "exists");
    equal(collection.getAnyReplica("k").contentAsObject(), document, "from any replica");
    equal(collection.getAllReplicas("k").count(), 1L, "replicas");
    collection.remove("k");
    throwing(DocumentNotFoundException.class, () -> collection.get("k"));
    String text = "abc".repeat(100_000);
    collection.upsert("compressible", text);
    equal(collection.get("compressible").contentAs(String.class).equals(text), true, "compressed on the way");
  }

  private void refuses() {
    collection.upsert("there", 1);
    throwing(DocumentExistsException.class, () -> collection.insert("there", 1));
    throwing(DocumentNotFoundException.class, () -> collection.replace("nothing", 1));
    throwing(DocumentNotFoundException.class, () -> collection.remove("nothing"));
    throwing(CasMismatchException.class,
        () -> collection.replace("there", 2, ReplaceOptions.replaceOptions().cas(12345)));
    equal(collection.get("there").contentAs(Integer.class), 1, "value");
  }

  private void expires() throws Exception {
    collection.upsert("soon", 1, UpsertOptions.upsertOptions().expiry(Duration.ofHours(1)));
    GetOptions withExpiry = GetOptions.getOptions().withExpiry(true);
    equal(collection.get("soon", withExpiry).expiryTime().isPresent(), true, "expiry");
    collection.upsert("soon", 2, UpsertOptions.upsertOptions().preserveExpiry(true));
    equal(collection.get("soon", withExpiry).expiryTime().isPresent(), true, "preserved expiry");
    collection.getAndTouch("soon", Duration.ofSeconds(1));
    long deadline = System.nanoTime() + LONG.toNanos();
    while (collection.exists("soon").exists()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("it does not expire");
      }
      Thread.sleep(20);
    }
  }

  private void locks() {
    collection.upsert("locked", 1);
    GetResult held = collection.getAndLock("locked", Duration.ofSeconds(20));
    throwing(Exception.class, () -> collection.upsert("locked", 2,
        UpsertOptions.upsertOptions().timeout(Duration.ofMillis(300))));
    collection.unlock("locked", held.cas());
    collection.upsert("locked", 3);
    equal(collection.get("locked").contentAs(Integer.class), 3, "value");
  }

  private void counts() {
    IncrementOptions initial = IncrementOptions.incrementOptions().initial(5);
    equal(collection.binary().increment("counter", initial).content(), 5L, "initial");
    equal(collection.binary().increment("counter").content(), 6L, "incremented");
    equal(collection.binary().decrement("counter").content(), 5L, "decremented");
    UpsertOptions raw = UpsertOptions.upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    collection.upsert("raw", "b".getBytes(StandardCharsets.UTF_8), raw);
    collection.binary().append("raw", "c".getBytes(StandardCharsets.UTF_8));
    collection.binary().prepend("raw", "a".getBytes(StandardCharsets.UTF_8));
    GetOptions read = GetOptions.getOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    equal(new String(collection.get("raw", read).contentAsBytes(), StandardCharsets.UTF_8), "abc", "value");
  }

  private void durability() {
    for (DurabilityLevel level : List.of(DurabilityLevel.MAJORITY,
        DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE, DurabilityLevel.PERSIST_TO_MAJORITY)) {
      collection.upsert("durable", level.name(), UpsertOptions.upsertOptions().durability(level));
      equal(collection.get("durable").contentAs(String.class), level.name(), "value");
    }
    collection.upsert("observed", 1, UpsertOptions.upsertOptions().durability(PersistTo.ACTIVE, ReplicateTo.NONE));
  }

  private void large() {
    byte[] value = new byte[19 * MIB];
    new Random(1).nextBytes(value);
    UpsertOptions raw = UpsertOptions.upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    collection.upsert("large", value, raw);
    GetOptions read = GetOptions.getOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    equal(Arrays.equals(collection.get("large", read).contentAsBytes(), value), true, "19 MiB");
    throwing(ValueTooLargeException.class, () -> collection.upsert("large", new byte[21 * MIB], raw));
    collection.remove("large");
  }

  private void looksUp() {
    collection.upsert("parts", JsonObject.create().put("a", JsonObject.create().put("b", 1))
        .put("list", JsonArray.from(1, 2, 3)));
    var found = collection.lookupIn("parts", List.of(LookupInSpec.get("a.b"), LookupInSpec.get("list[-1]"),
        LookupInSpec.count("list"), LookupInSpec.exists("nope"), LookupInSpec.get("nope")));
    equal(found.contentAs(0, Integer.class), 1, "a.b");
    equal(found.contentAs(1, Integer.class), 3, "list[-1]");
    equal(found.contentAs(2, Integer.class), 3, "elements");
    equal(found.exists(3), false, "nope");
    throwing(PathNotFoundException.class, () -> found.contentAs(4, Integer.class));
    GetOptions projection = GetOptions.getOptions().project("a.b");
    equal(collection.get("parts", projection).contentAsObject(),
        JsonObject.create().put("a", JsonObject.create().put("b", 1)), "projection");
  }

  private void mutates() {
    collection.upsert("parts", JsonObject.create().put("n", 1));
    MutateInResult changed = collection.mutateIn("parts", List.of(
        MutateInSpec.upsert("a.b", true).createPath(), MutateInSpec.increment("n", 41),
        MutateInSpec.arrayAppend("list", List.of(1, 2)).createPath(), MutateInSpec.arrayInsert("list[1]", List.of(9))));
    equal(changed.contentAs(1, Integer.class), 42, "counter");
    JsonObject expected = JsonObject.create().put("n", 42).put("a", JsonObject.create().put("b", true))
        .put("list", JsonArray.from(1, 9, 2));
    equal(collection.get("parts").contentAsObject(), expected, "document");
    throwing(PathExistsException.class, () -> collection.mutateIn("parts",
        List.of(MutateInSpec.remove("a"), MutateInSpec.insert("n", 0))));
    equal(collection.get("parts").contentAsObject(), expected, "all or nothing");
  }

  private void collections() throws Exception {
    CollectionManager manager = bucket.collections();
    manager.createScope("s");
    throwing(ScopeExistsException.class, () -> manager.createScope("s"));
    manager.createCollection("s", "c");
    throwing(CollectionExistsException.class, () -> manager.createCollection("s", "c"));
    throwing(ScopeNotFoundException.class, () -> manager.createCollection("none", "c"));
    Collection named = bucket.scope("s").collection("c");
    named.upsert("k", 1);
    equal(named.get("k").contentAs(Integer.class), 1, "value");
    throwing(DocumentNotFoundException.class, () -> collection.get("k"));
    equal(manager.getAllScopes().stream().filter(scope -> scope.name().equals("s")).count(), 1L, "scopes");
    manager.dropCollection("s", "c");
    throwing(Exception.class, () -> named.get("k", GetOptions.getOptions().timeout(Duration.ofMillis(300))));
    manager.dropScope("s");
  }

  private void buckets() {
    equal(cluster.buckets().getAllBuckets().keySet(), java.util.Set.of("default"), "buckets");
    equal(cluster.buckets().getBucket("default").ramQuotaMB(), 256L, "quota");
    equal(bucket.ping().endpoints().containsKey(ServiceType.KV), true, "ping");
  }

  private void many() {
    equal(Flux.range(0, MANY).flatMap(i -> collection.reactive().upsert("m" + i, i), 256).count().block(),
        (long) MANY, "written");
    equal(Flux.range(0, MANY).flatMap(i -> collection.reactive().get("m" + i)
        .filter(got -> got.contentAs(Integer.class).equals(i)), 256).count().block(), (long) MANY, "read");
  }

  private void restart() throws Exception {
    collection.upsert("kept", "v", UpsertOptions.upsertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY));
    node.stop();
    node.start();
    equal(collection.get("kept").contentAs(String.class), "v", "value after a restart");
    node.kill();
    node.start();
    equal(collection.get("kept").contentAs(String.class), "v", "value after a kill");
  }

  private void spymemcached() throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
    AuthDescriptor login = new AuthDescriptor(new String[] {"PLAIN"},
        new PlainCallbackHandler("Administrator", "password"));
    MemcachedClient client = new MemcachedClient(new ConnectionFactoryBuilder()
        .setProtocol(ConnectionFactoryBuilder.Protocol.BINARY).setAuthDescriptor(login).setDaemon(true)
        .setOpTimeout(LONG.toMillis()).build(), List.of(new InetSocketAddress("127.0.0.1", node.kv())));
    equal(client.set("spy", 0, "v").get(), true, "set");
    equal(client.add("spy", 0, "w").get(), false, "add");
    equal(client.get("spy"), "v", "get");
    equal(client.incr("spies", 1, 5), 5L, "incr");
    equal(client.incr("spies", 1), 6L, "incr");
    client.cas("spy", client.gets("spy").getCas(), "z");
    equal(client.getBulk("spy", "nothing"), Map.of("spy", "z"), "bulk");
    equal(client.touch("spy", 100).get(), true, "touch");
    equal(client.delete("spy").get(), true, "delete");
    equal(client.getStats().isEmpty(), false, "stats");
    client.shutdown();
  }
}
