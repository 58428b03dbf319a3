"""Buckets of a cluster that are emptied."""

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from cluster import Cluster
from failures import three_nodes
from harness import Node, binary, equal, eventually, finished
from links import LinkedCluster
from manage import call, must
from mcbp import (
    FEATURE_COLLECTIONS, FEATURE_SELECT_BUCKET, FEATURE_XERROR, GET, GET_COLLECTION_ID, NO_ACCESS, NOT_FOUND, SELECT_BUCKET, SUCCESS,
    Closed, Connection,
)  # fmt: skip
from wire import Wire
from world import holds, suite

GET_CLUSTER_CONFIG = 0xB5
ISASL_REFRESH = 0xF1
KEYS = [f"key-{number}".encode() for number in range(100)]
FLUSH = "/pools/default/buckets/default/controller/doFlush"
SCOPES = "/pools/default/buckets/default/scopes"


class Looping(threading.Thread):
    """Looks all the time, until it is stopped."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ends = False
        self.start()

    def run(self):
        while not self.ends:
            self.look()

    def stops(self):
        self.ends = True
        self.join(10)


def collections(node):
    told = json.loads(must(node, "GET", SCOPES))
    return told["uid"], sorted(one["name"] for scope in told["scopes"] for one in scope["collections"])


@suite.test
def a_flushed_bucket_is_empty_at_all_nodes_and_goes_on(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        made = finished([binary(), "collections", "create", "shop.chairs", "--connect", cluster.nodes[2].address])
        equal(made.returncode, 0, made.stderr)
        before = collections(cluster.nodes[0])
        client = cluster.client()
        for key in KEYS:
            client.set(key, b"old", durable=True)
        status, _, told = call(cluster.nodes[1], "POST", FLUSH)
        equal(status, 400, "flush that is disabled")
        holds(told, "Flush is disabled")
        must(cluster.nodes[1], "POST", "/pools/default/buckets/default", flushEnabled="1")
        # One that does not run when it is ordered obeys when it goes on.
        cluster.nodes[2].kill()
        eventually("the others serve all", cluster.client().everywhere, seconds=40)
        must(cluster.nodes[1], "POST", FLUSH)
        client = cluster.client()
        for key in KEYS:
            client.until(NOT_FOUND, GET, key)
        for key in KEYS[::2]:
            client.set(key, b"new", durable=True)
        cluster.nodes[2].start()
        for node in cluster.nodes:
            eventually("its collections are those", lambda node=node: equal(collections(node), before, "collections") or True)
        cluster.order("recover", "c")
        cluster.order("rebalance")
        client = cluster.client()

        def has_its_share():
            client.refresh()
            return sum(row[0] == cluster.nodes[2].kv for row in client.rows()) >= len(client.rows()) // 4

        eventually("it has its share", has_its_share, seconds=60)
        cluster.nodes[0].kill()
        client = cluster.client()
        for at, key in enumerate(KEYS):
            if at % 2:
                client.until(NOT_FOUND, GET, key, seconds=60)
            else:
                equal(client.get(key, seconds=60), b"new", "what was written since")


@suite.test
def a_scope_outlives_a_flush_by_a_node_that_has_not_seen_it(world):
    with LinkedCluster(world.etcd, world.name()) as cluster:
        cluster.make_bucket(flushEnabled="1")
        cluster.links.cut("etcd", "a")
        must(cluster.nodes[1], "POST", SCOPES, name="shop")
        status, _, why = call(cluster.nodes[0], "POST", FLUSH)
        equal(status, 503, f"a flush whose answer is cut off ({why})")
        cluster.links.heal()
        for node in cluster.nodes:
            eventually("the scope is there", lambda at=node: '"shop"' in must(at, "GET", SCOPES))


@suite.test
def each_map_of_a_bucket_that_is_made_or_flushed_names_nodes_for_all_vbuckets(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        # Some clients give a vBucket up that has no node.
        looks = [Look(node) for node in cluster.nodes]
        for _ in range(3):
            cluster.make_bucket(flushEnabled="1")
            must(cluster.nodes[0], "POST", FLUSH)
            must(cluster.nodes[0], "DELETE", "/pools/default/buckets/default")
        for look in looks:
            look.stops()
            equal(look.missing, 0, f"vBuckets without a node in one of {look.maps} maps")
        assert all(look.maps for look in looks), "maps are told"


@suite.test
def a_client_that_connects_during_flushes_always_finds_its_bucket(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket(flushEnabled="1")
        must(cluster.nodes[0], "POST", SCOPES, name="shop")
        must(cluster.nodes[0], "POST", f"{SCOPES}/shop/collections", name="chairs")
        # More than one for each node: flushes are to meet connections in each of their steps.
        comers = [Comer(node) for node in cluster.nodes * 3]
        for _ in range(10):
            must(cluster.nodes[0], "POST", FLUSH)
        for comer in comers:
            comer.stops()
        equal([comer.refused for comer in comers], [[]] * len(comers), "refusals")
        assert all(comer.came for comer in comers), "all of them connected"


class Comer(Looping):
    """Connects to a node all the time, as an SDK does: by KV, then over HTTP."""

    def __init__(self, node):
        self.node, self.came, self.refused = node, 0, []
        super().__init__()

    def look(self):
        try:
            connection = Connection(self.node.kv)
            connection.hello(FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS)
            connection.login(bucket=None)
            self.must(connection.call(SELECT_BUCKET, b"default"))
            self.must(connection.call(GET_COLLECTION_ID, b"", b"", b"shop.chairs"))
            servers = json.loads(self.must(connection.call(GET_CLUSTER_CONFIG)).value)["nodesExt"]
            equal(len(servers), 3, "nodes of the map")
            connection.close()
            for path in ("b", "buckets"):
                equal(call(self.node, "GET", f"/pools/default/{path}/default")[0], 200, path)
            self.came += 1
        except Closed:
            # A flush ended it: it comes back at once.
            return
        except (AssertionError, OSError) as error:
            self.refused.append(repr(error))

    def must(self, answer):
        equal(answer.status, SUCCESS, f"status of {answer!r}")
        return answer


@suite.test
def changes_at_all_nodes_at_once_are_all_kept(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()

        def change(number):
            node = cluster.nodes[number % 3]
            # The first users of the cluster are made at all nodes at once.
            user = f"/settings/rbac/users/local/user-{number}"
            eventually("a user is made", lambda: call(node, "PUT", user, password="secret1", roles="admin")[0] == 200, seconds=60)
            eventually("a scope is made", lambda: must(node, "POST", SCOPES, name=f"scope-{number}"), seconds=60)

        with ThreadPoolExecutor(9) as together:
            list(together.map(change, range(45)))
        scopes = json.loads(must(cluster.nodes[0], "GET", SCOPES))["scopes"]
        users = json.loads(must(cluster.nodes[0], "GET", "/settings/rbac/users/local"))
        for kind, names in (("scope", {one["name"] for one in scopes}), ("user", {one["id"] for one in users})):
            lost = [number for number in range(45) if f"{kind}-{number}" not in names]
            equal(lost, [], f"what was acknowledged of each {kind} and is not there")
        refused = [number for number in range(45) if not logs_in(cluster.nodes[number % 3], f"user-{number}", "secret1")]
        equal(refused, [], "users whose password is not taken")


def logs_in(node, user, password):
    connection = Connection(node.kv)
    try:
        connection.login(user, password, bucket=None)
    except AssertionError:
        return False
    finally:
        connection.close()
    return True


# Logins after the users have changed, and whether each is let in.
LOGINS = {("removed", "secret1"): False, ("changed", "secret1"): False, ("changed", "secret2"): True, ("made", "secret3"): True}
USERS = "/settings/rbac/users/local"


@contextmanager
def a_late_node(world):
    """A cluster, a node of it that has the users as they are at first, and its wire to etcd."""
    wire = Wire(world.etcd.clients[0])
    with Cluster(world.etcd, world.name(), nodes=1) as cluster:
        for name in ("removed", "changed"):
            must(cluster.nodes[0], "PUT", f"{USERS}/{name}", password="secret1", roles="admin")
        at = f"etcd://127.0.0.1:{wire.port}/{cluster.name}"
        with Node("--cluster", at, "--node-name", "late").watched() as late:
            late.start()
            eventually("it has the users", lambda: logs_in(late, "removed", "secret1"))
            yield cluster, late, wire
    wire.close()


def change_users(node):
    must(node, "DELETE", f"{USERS}/removed")
    must(node, "PUT", f"{USERS}/changed", password="secret2", roles="admin")
    must(node, "PUT", f"{USERS}/made", password="secret3", roles="admin")


@suite.test
def a_node_that_starts_again_lets_in_who_may_log_in_now(world):
    with a_late_node(world) as (cluster, late, wire):
        late.kill()
        change_users(cluster.nodes[0])
        # It serves long before etcd has told it all.
        wire.slow(0.2)
        late.start()
        equal({login: logs_in(late, *login) for login in LOGINS}, LOGINS, "logins")


@suite.test
def a_node_that_stood_still_lets_in_who_may_log_in_now(world):
    with a_late_node(world) as (cluster, late, wire):
        alive = lambda count: lambda: len(cluster.look("alive/")) == count  # noqa: E731
        eventually("it has a lease", alive(2), seconds=30)
        opened = Connection(late.kv)
        opened.hello(FEATURE_XERROR)
        opened.login("removed", "secret1", bucket=None)
        late.process.send_signal(signal.SIGSTOP)
        change_users(cluster.nodes[0])
        eventually("its lease is over", alive(1), seconds=30)
        wire.slow(0.2)
        late.process.send_signal(signal.SIGCONT)
        equal(opened.call(ISASL_REFRESH).status, NO_ACCESS, "a request of the removed user")
        with ThreadPoolExecutor(len(LOGINS)) as together:
            let_in = together.map(lambda login: logs_in(late, *login), LOGINS)
            equal(dict(zip(LOGINS, let_in, strict=True)), LOGINS, "logins")
        # What etcd cannot tell is not waited for.
        eventually("it has a lease again", alive(2), seconds=30)
        late.process.send_signal(signal.SIGSTOP)
        eventually("its lease is over", alive(1), seconds=30)
        wire.freeze()
        late.process.send_signal(signal.SIGCONT)
        equal(logs_in(late, "made", "secret3"), True, "a login without etcd")
        wire.flow()


@suite.test
def settings_changed_at_all_nodes_at_once_are_all_kept(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        bucket = "/pools/default/buckets/default"

        def change(number, **form):
            eventually(f"{form} is taken", lambda: call(cluster.nodes[number % 3], "POST", bucket, **form)[0] == 200, seconds=60)

        for turn in range(4):
            forms = [
                {"maxTTL": str(100 + turn)},
                {"flushEnabled": str((turn + 1) % 2)},
                {"ramQuotaMB": str(120 + turn)},
                {"compressionMode": ["off", "active"][turn % 2]},
                {"durabilityMinLevel": ["majority", "none"][turn % 2]},
            ]
            with ThreadPoolExecutor(len(forms)) as together:
                list(together.map(lambda number: change(number, **forms[number]), range(len(forms))))
            told = json.loads(must(cluster.nodes[turn % 3], "GET", bucket))
            is_now = {
                "maxTTL": str(told["maxTTL"]),
                "flushEnabled": str(int("flush" in told["controllers"])),
                "ramQuotaMB": str(told["quota"]["rawRAM"] >> 20),
                "compressionMode": told["compressionMode"],
                "durabilityMinLevel": told["durabilityMinLevel"],
            }
            equal(is_now, {name: value for form in forms for name, value in form.items()}, f"settings after turn {turn}")


class Look(Looping):
    """Looks at the maps of a node all the time."""

    def __init__(self, node):
        self.node, self.maps, self.missing = node, 0, 0
        super().__init__()

    def look(self):
        status, _, told = call(self.node, "GET", "/pools/default/b/default")
        if status == 200:
            rows = json.loads(told)["vBucketServerMap"]["vBucketMap"]
            self.maps += 1
            self.missing = max(self.missing, sum(row[0] < 0 for row in rows))


@suite.test
def a_request_for_a_bucket_that_cannot_be_made_now_outlives_neither_it_nor_the_node(world):
    # Its lease is long: nothing is elected without a node that stands still.
    with Cluster(world.etcd, world.name(), lease=30) as cluster:
        first, second, third = cluster.nodes
        third.process.send_signal(signal.SIGSTOP)
        dropped = make(cluster, first, "dropped")
        # It sees what is agreed a little later.
        gone = lambda: call(second, "DELETE", "/pools/default/buckets/dropped")[0] == 200
        eventually("another node drops it", gone)
        dropped.join(10)
        status, _, told = dropped.answer
        equal(status, 400, "one that is dropped before it is there")
        holds(told, "dropped")
        waits = make(cluster, first, "waits")
        began = time.monotonic()
        first.stop()
        if time.monotonic() - began > 10:
            raise AssertionError(f"the node took {time.monotonic() - began:.0f} s to stop")
        waits.join(10)
        third.process.send_signal(signal.SIGCONT)


def make(cluster, node, name):
    """Asks a node for a bucket, and waits until all nodes are asked for it."""
    asked = threading.Thread(target=lambda: setattr(asked, "answer", tried(node, name)))
    asked.start()
    named = lambda: name in [value.get("name") for value in cluster.look("buckets/").values() if isinstance(value, dict)]
    eventually("it is agreed on", named)
    return asked


def tried(node, name):
    try:
        return call(node, "POST", "/pools/default/buckets", name=name, ramQuotaMB="100", replicaNumber="2", numVBuckets="128")
    except (OSError, ConnectionError):
        return None
