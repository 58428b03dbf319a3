import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.GroupNotFoundException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.UserNotFoundException;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.Scope;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.manager.collection.CollectionManager;
import com.couchbase.client.java.manager.user.AuthDomain;
import com.couchbase.client.java.manager.user.Group;
import com.couchbase.client.java.manager.user.Role;
import com.couchbase.client.java.manager.user.User;
import com.couchbase.client.java.manager.user.UserManager;
import java.time.Duration;
import java.util.Set;

/** Users and groups of a node, and what they may do. */
final class Users {
  private static final GetOptions SHORT = GetOptions.getOptions().timeout(Duration.ofMillis(500));

  private final Node node;
  private final Cluster cluster;

  Users(Node node, Cluster cluster) {
    this.node = node;
    this.cluster = cluster;
  }

  /** Roles of a user and of a group, down to a collection; what changes holds for open connections. */
  void roles() throws Exception {
    CollectionManager collections = cluster.bucket("default").collections();
    collections.createScope("office");
    for (String name : new String[] {"open", "closed"}) {
      collections.createCollection("office", name);
      cluster.bucket("default").scope("office").collection(name).upsert("k", name);
    }
    UserManager users = cluster.users();
    Role reader = new Role("data_reader", "default", "office", "open");
    users.upsertGroup(new Group("readers").roles(reader));
    Suite.equal(users.getGroup("readers").roles().contains(reader), true, "role of the group");
    Suite.equal(users.getRoles().stream().anyMatch(role -> role.role().name().equals("data_reader")), true, "roles");
    User ana = new User("ana").displayName("Ana").password("secret").groups("readers");
    users.upsertUser(ana);
    Suite.equal(users.getUser(AuthDomain.LOCAL, "ana").effectiveRoles(), Set.of(reader), "role by the group");

    Cluster other = Cluster.connect(node.address(), ClusterOptions.clusterOptions("ana", "secret")
        .environment(env -> env.securityConfig(security -> node.authority().ifPresent(security::trustCertificate))));
    // A busy machine may take longer for the handshakes of a new client than an operation may take.
    other.bucket("default").waitUntilReady(Duration.ofSeconds(30));
    Scope office = other.bucket("default").scope("office");
    Collection open = office.collection("open");
    Suite.equal(open.get("k").contentAs(String.class), "open", "value");
    Throwable refused = Suite.throwing(CouchbaseException.class, () -> open.upsert("k", 1));
    Suite.equal(refused.getMessage().contains("NO_ACCESS"), true, "a write is refused for want of access");
    // The SDK asks for a collection that there is not until time is out.
    Suite.throwing(TimeoutException.class, () -> office.collection("closed").get("k", SHORT));

    users.upsertUser(ana.roles(new Role("data_writer", "default", "office", "open"),
        new Role("data_reader", "default", "office", "*")));
    open.upsert("k", JsonObject.create());
    Suite.equal(office.collection("closed").get("k").contentAs(String.class), "closed", "value");
    other.users().changePassword("sesame");
    users.dropGroup("readers");
    Suite.throwing(GroupNotFoundException.class, () -> users.getGroup("readers"));
    users.dropUser("ana");
    Suite.throwing(UserNotFoundException.class, () -> users.dropUser("ana"));
    Suite.throwing(Exception.class, () -> open.get("k", SHORT));
    other.disconnect();
    collections.dropScope("office");
  }
}
