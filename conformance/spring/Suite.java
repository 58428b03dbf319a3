import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.health.actuate.endpoint.HealthEndpoint;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.dao.OptimisticLockingFailureException;
import shop.Chair;
import shop.Chairs;
import shop.Shop;

/** An application of Spring Boot with its health, its cache and its repositories, unmodified, against a node. */
public final class Suite {
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final Duration SHORT = Duration.ofSeconds(2);

  private final Node node = new Node();
  private final ConfigurableApplicationContext context;

  private Suite() throws Exception {
    context = new SpringApplicationBuilder(Shop.class)
        .web(WebApplicationType.NONE)
        .properties(Map.of(
            "spring.couchbase.connection-string", node.address(),
            "spring.couchbase.username", "Administrator",
            "spring.couchbase.password", "password",
            "spring.couchbase.env.timeouts.key-value", LONG.toMillis() + "ms",
            "spring.data.couchbase.bucket-name", "default",
            "spring.cache.type", "couchbase",
            "spring.cache.couchbase.expiration", SHORT.toMillis() + "ms",
            "management.endpoint.health.show-details", "always",
            "spring.main.banner-mode", "off",
            "logging.level.root", "error"))
        .run();
    // Core 3.9.2 can drop a first request that it sends again while it takes over the first configuration.
    context.getBean(Cluster.class).bucket("default").waitUntilReady(LONG);
  }

  public static void main(String[] arguments) {
    Tests.main("spring", arguments, () -> new Suite().tests());
  }

  private Tests tests() {
    Tests tests = new Tests(node::close);
    tests.put("keeps_documents_in_repositories", this::repositories);
    tests.put("locks_by_version", this::versions);
    tests.put("computes_once_and_caches", this::caches);
    tests.put("forgets_what_expires", this::expires);
    tests.put("keeps_nulls_and_absent_apart", this::absent);
    tests.put("clears_nothing_without_a_query_service", this::clears);
    tests.put("is_healthy_while_the_node_is_there", this::health);
    return tests;
  }

  private void repositories() {
    Chairs chairs = context.getBean(Chairs.class);
    chairs.save(Chair.of("sofa", 3));
    equal(chairs.findById("sofa").orElseThrow().seats, 3);
    equal(chairs.existsById("sofa"), true);
    chairs.saveAll(List.of(Chair.of("stool", 1), Chair.of("bench", 4)));
    equal(collection().get("bench").contentAsObject().getInt("seats"), 4);
    chairs.deleteById("sofa");
    equal(chairs.findById("sofa").isPresent(), false);
  }

  private void versions() {
    Chairs chairs = context.getBean(Chairs.class);
    Chair mine = chairs.save(Chair.of("throne", 1));
    refused(DataIntegrityViolationException.class, () -> chairs.save(Chair.of("throne", 2)));
    Chair theirs = chairs.findById("throne").orElseThrow();
    theirs.seats = 2;
    chairs.save(theirs);
    refused(OptimisticLockingFailureException.class, () -> chairs.save(mine));
    equal(chairs.findById("throne").orElseThrow().seats, 2);
  }

  private void caches() {
    Shop shop = context.getBean(Shop.class);
    Integer first = shop.price("sofa");
    equal(shop.price("sofa"), first);
    equal(collection().exists("prices::sofa").exists(), true);
    shop.raise("sofa");
    equal(shop.price("sofa").equals(first), false);
  }

  private void expires() throws Exception {
    Shop shop = context.getBean(Shop.class);
    Integer first = shop.price("bench");
    eventually("the price is forgotten", () -> !shop.price("bench").equals(first));
  }

  private void absent() {
    Cache prices = context.getBean(CacheManager.class).getCache("prices");
    equal(prices.get("table"), null);
    equal(prices.putIfAbsent("table", 7), null);
    equal(prices.putIfAbsent("table", 8).get(), 7);
    prices.put("gift", null);
    equal(prices.get("gift").get(), null);
    equal(prices.evictIfPresent("table"), true);
    equal(prices.evictIfPresent("table"), false);
  }

  private void clears() {
    Cache prices = context.getBean(CacheManager.class).getCache("prices");
    prices.put("lamp", 9);
    refused(RuntimeException.class, prices::clear);
    equal(prices.get("lamp").get(), 9);
  }

  private void health() throws Exception {
    eventually("it is healthy", () -> status().equals("UP"));
    node.stop();
    eventually("it is not", () -> status().equals("DOWN"));
    node.start();
    eventually("it is healthy again", () -> status().equals("UP"));
  }

  private String status() {
    return context.getBean(HealthEndpoint.class).healthForPath("couchbase").getStatus().getCode();
  }

  private Collection collection() {
    return context.getBean(Cluster.class).bucket("default").defaultCollection();
  }

  /** Something to wait for. */
  interface Probe {
    boolean holds() throws Exception;
  }

  private static void eventually(String what, Probe probe) throws Exception {
    long deadline = System.nanoTime() + LONG.toNanos();
    while (!probe.holds()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError(what + ": not within " + LONG);
      }
      Thread.sleep(20);
    }
  }

  private static void refused(Class<? extends Exception> kind, Runnable call) {
    try {
      call.run();
    } catch (Exception error) {
      if (kind.isInstance(error)) {
        return;
      }
      throw error;
    }
    throw new AssertionError("expected " + kind.getSimpleName());
  }

  private static void equal(Object got, Object expected) {
    if (!Objects.equals(got, expected)) {
      throw new AssertionError("expected " + expected + ", got " + got);
    }
  }
}
