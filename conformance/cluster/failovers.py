"""Nodes that an operator fails over while they run, and recovers."""

import json
import shutil
import struct
import time

from cluster import MAJORITY, Client, Cluster, member_of
from dcp import ACTIVE_ONLY, DCP_STREAM_REQ, NO_END, Consumer
from failures import FAILOVER_SECONDS, KEYS, LEASE_SECONDS, fill, go_on, has_all, is_served, state_of, three_nodes
from harness import equal, eventually
from joins import ends
from links import LinkedCluster
from manage import call, must
from mcbp import DELETE, GET, GET_REPLICA, NOT_FOUND, NOT_MY_VBUCKET, SET, SUCCESS, Closed, Connection, frame, vbucket_of
from moves import Load, share
from world import CONFIG, holds, suite

COMPACT_DB = 0xB3


class Acknowledged(Load):
    """Durable writes of its own keys. Some may be refused; none that was acknowledged is lost."""

    def run(self):
        number = 0
        while not self.ends:
            key = self.keys[number % len(self.keys)]
            try:
                self.client.refresh()
                answer = self.client.call(SET, key, bytes(8), f"{number}".encode(), framing=MAJORITY)
                if answer.status == SUCCESS:
                    self.written[key] = number
            except (OSError, Closed):
                pass
            number += 1

    def check(self, cluster):
        client = cluster.client()
        lost = [key for key, number in self.written.items() if int(client.get(key)) < number]
        equal(lost, [], "keys that lost a write")


def membership(cluster, name):
    nodes = json.loads(must(cluster.nodes[0], "GET", "/pools/default"))["nodes"]
    return next(node["clusterMembership"] for node in nodes if node["otpNode"].startswith(f"{name}@"))


def stays_failed_over(cluster, node, name, its):
    """For longer than a lease the node comes back by no means, and serves nothing."""
    client, end = cluster.client(), time.monotonic() + 2 * LEASE_SECONDS
    while time.monotonic() < end:
        for key in its:
            client.set(key, b"elsewhere", seconds=FAILOVER_SECONDS)
    client.refresh()
    assert all(row[0] != node.kv for row in client.rows()), client.rows()
    equal((state_of(cluster, name), membership(cluster, name)), ("failed_over", "inactiveFailed"), "state")
    connection = client.connection(node.kv)
    # gocbcore would wait for itself if the answer to a stream request had a map without its node.
    stream = struct.pack(">II5Q", ACTIVE_ONLY, 0, 0, NO_END, 0, 0, 0)
    refused = Consumer(node).call(DCP_STREAM_REQ, extras=stream, vbucket=vbucket_of(its[0], len(client.rows())))
    equal((refused.status, refused.value), (NOT_MY_VBUCKET, b""), "a stream")
    for key in its:
        for opcode, rest in ((GET, ()), (SET, (bytes(8), b"zombie"))):
            answer = connection.call(opcode, b"\0" + key, *rest, vbucket=vbucket_of(key, len(client.rows())))
            assert answer.status != SUCCESS, answer


@suite.test
def a_node_that_runs_is_failed_over_and_takes_its_share_once_it_is_recovered(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        node, client = cluster.nodes[1], cluster.client()
        fill(client)
        its = [key for key in KEYS if client.row(key)[0] == node.kv]
        assert its, client.rows()
        with Acknowledged(cluster) as load:
            eventually("writes are acknowledged", lambda: len(load.written) == len(load.keys), seconds=30)
            equal(cluster.tried("failover", "b"), (0, "b is failed over\n", ""), "failover")
            is_served(cluster.client())
            client = cluster.client()
            has_all(client)
            stays_failed_over(cluster, node, "b", its)
        load.check(cluster)
        node.kill()
        node.start()
        stays_failed_over(cluster, node, "b", its)
        with Acknowledged(cluster) as load:
            cluster.order("recover", "b")
            equal(state_of(cluster, "b"), "active", "state")
            cluster.order("rebalance", "--watch")
            share(cluster, node, lambda part: part >= 0.2)
        load.check(cluster)
        client = cluster.client()
        values = [b"elsewhere" if key in its else key for key in KEYS]
        equal([client.get(key) for key in KEYS], values, "values at the end")


@suite.test
def a_write_that_was_under_way_is_decided_by_the_only_copy_that_is_left(world):
    with LinkedCluster(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        node, port, client = cluster.nodes[1], cluster.ports[1], cluster.client()
        fill(client, b"before")
        its = [key for key in KEYS if client.row(key)[0] == port][:4]
        assert its, client.rows()
        for other in "ac":
            # Acknowledgements do not come.
            cluster.links.cut(other, "b")
        writers = [cluster.client().connection(port) for _ in its]
        for key, writer in zip(its, writers):
            vbucket = vbucket_of(key, len(client.rows()))
            writer.send(frame(SET, b"\0" + key, bytes(8), b"under way", vbucket=vbucket, framing=MAJORITY))
        copies = [cluster.nodes[0], cluster.nodes[2]]
        eventually("the other copies have them", lambda: sum(map(undecided, copies)) == len(its), seconds=10)
        node.kill()
        cluster.links.heal()
        client = cluster.client()
        equal({client.get(key, seconds=FAILOVER_SECONDS) for key in its}, {b"under way"}, "values")
        for key in its:
            client.set(key, b"afterwards", seconds=FAILOVER_SECONDS)


@suite.test
def a_copy_that_lacks_purged_tombstones_keeps_what_it_acknowledged_until_it_is_made_anew(world):
    with LinkedCluster(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        active, replica, client = *cluster.ports[:2], cluster.client()
        fill(client)
        gone = next(key for key in KEYS if client.row(key) == [active, replica])
        vbucket = vbucket_of(gone, len(client.rows()))
        names = (f"newest-{number}".encode() for number in range(10_000))
        newest = next(name for name in names if vbucket_of(name, len(client.rows())) == vbucket)
        cluster.links.cut("a", "b")
        client.until(SUCCESS, DELETE, gone)
        client.set(newest, newest)

        def purged():
            connection = client.connection(active)
            equal(connection.call(COMPACT_DB, b"", struct.pack(">QQB7x", 0, 0, 1), vbucket=vbucket).status, SUCCESS)
            return int(connection.stats(f"vbucket-details {vbucket}")[f"vb_{vbucket}:purge_seqno"])

        eventually("the tombstone is purged", purged)
        # The stream breaks with what waits in it: the replica asks anew, from before the tombstone.
        cluster.links.lose("a", "b")
        eventually("it stays as it is", lambda: logged(cluster.nodes[1], "a copy cannot go back"))

        def read(key):
            return client.connection(replica).call(GET_REPLICA, b"\0" + key, vbucket=vbucket)

        eventually("the replica is whole", lambda: read(newest).value == newest and read(gone).status == NOT_FOUND, 30)
        eventually("the chain is whole", lambda: client.refresh() and client.row(gone) == [active, replica], 30)


def undecided(node):
    """Durable writes that wait in all vBuckets of a node."""
    connection = Connection(node.kv).login(bucket="default")
    rows = connection.stats("durability-monitor")
    connection.close()
    return sum(int(value) for key, value in rows.items() if key.endswith(":num_tracked"))


def logged(node, *words):
    """Lines of a node's log that have all of these words."""
    return [line for line in node.log.read_text().splitlines() if all(word in line for word in words)]


@suite.test
def tools_fail_a_node_over_and_add_it_again_over_http(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        first, node = cluster.nodes[0], cluster.nodes[2]
        must(first, "POST", "/controller/failOver", otpNode="c@127.0.0.1")
        equal(membership(cluster, "c"), "inactiveFailed", "membership")
        client = cluster.client()
        is_served(client)
        assert all(row[0] != node.kv for row in client.rows()), client.rows()
        must(first, "POST", "/controller/setRecoveryType", otpNode="c@127.0.0.1", recoveryType="delta")
        must(first, "POST", "/controller/reAddNode", otpNode="c@127.0.0.1")
        known = ",".join(f"{name}@127.0.0.1" for name in "abc")
        must(first, "POST", "/controller/rebalance", knownNodes=known, ejectedNodes="")
        share(cluster, node, lambda part: part >= 0.2)
        controllers = [other for other in cluster.nodes if logged(other, "INFO", "runs the controller of the cluster")]
        equal(len(controllers), 1, "nodes that log that they run the controller")
        for words in (("WARN", 'node="c"', 'to="failed_over"'), ("INFO", 'node="c"', 'from="failed_over"')):
            counts = [len(logged(other, *words)) for other in cluster.nodes]
            equal(counts, [int(other in (*controllers, node)) for other in cluster.nodes], f"lines with {words}")


@suite.test
def a_graceful_failover_loses_nothing_under_load(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        cluster.make_bucket("plain", vbuckets=128)
        node, client = cluster.nodes[1], cluster.client("plain")
        with Acknowledged(cluster) as load:
            # Plain writes: nothing but a takeover keeps the newest of them.
            fill(client, durable=False)
            equal(cluster.tried("failover", "b", "--graceful"), (0, "b is failed over\n", ""), "failover")
            client.refresh()
            assert all(row[0] != node.kv for row in client.rows()), client.rows()
            has_all(client)
            equal((state_of(cluster, "b"), membership(cluster, "b")), ("failed_over", "inactiveFailed"), "state")
            code, _, error = cluster.tried("failover", "b", "--graceful")
            equal((code, "no member that runs" in error), (65, True), f"once more ({error})")
            cluster.order("recover", "b")
            cluster.order("rebalance", "--watch")
            share(cluster, node, lambda part: part >= 0.2)
        load.check(cluster)


@suite.test
def a_removed_node_that_runs_on_changes_nothing(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        removed = cluster.nodes[2]
        cluster.order("drain", "c", "--watch")
        cluster.order("remove", "c")
        eventually("it knows that it is removed", lambda: holds(changes(removed), "removed from the cluster") or True)
        for path, form in (
            ("/pools/default/buckets", {"name": "another", "ramQuotaMB": "100"}),
            ("/pools/default/buckets/default/scopes", {"name": "shop"}),
        ):
            began = time.monotonic()
            status, _, why = call(removed, "POST", path, **form)
            equal(status, 503, path)
            holds(why, "removed from the cluster: ask another one")
            assert time.monotonic() - began < 2, "it is told at once"
        must(cluster.nodes[0], "POST", "/pools/default/buckets/default/scopes", name="shop")


@suite.test
def a_removed_node_that_runs_on_does_not_disturb_a_node_that_comes(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        cluster.order("drain", "c", "--watch")
        cluster.order("remove", "c")
        eventually("c knows that it is removed", lambda: "removed from the cluster" in changes(cluster.nodes[2]))
        with member_of(world.etcd, cluster.name, "d").watched() as late:
            late.start()
            eventually("d is known", lambda: state_of(cluster, "d") == "new", seconds=FAILOVER_SECONDS)
            cluster.order("rebalance", "--watch")
            before = cluster.look("buckets/")
            go_on(Client([*cluster.nodes[:2], late], "default"), 2 * LEASE_SECONDS)
            equal(cluster.look("buckets/"), before, "copies and their terms")


def changes(node):
    """What a node answers to a change of users."""
    return call(node, "PUT", "/settings/rbac/users/local/ana", password="secret1", roles="admin")[2]


@suite.test
def a_node_that_was_removed_with_its_copies_comes_back_as_a_new_one(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        node, client = cluster.nodes[2], cluster.client()
        fill(client, b"old")
        node.kill()
        cluster.order("failover", "c")
        cluster.order("rebalance", "--watch")
        cluster.order("remove", "c")
        client = cluster.client()
        fill(client, b"new")
        node.start()
        eventually("it is known again", lambda: state_of(cluster, "c") == "new", seconds=FAILOVER_SECONDS)
        cluster.order("rebalance", "--watch")
        share(cluster, node, lambda part: part >= 0.2)
        client = cluster.client()
        has_all(client, b"new")
        cluster.nodes[1].kill()
        client = cluster.client()
        has_all(client, b"new", seconds=FAILOVER_SECONDS)


@suite.test
def a_member_that_restarts_is_served_before_its_former_lease_ends(world):
    with Cluster(world.etcd, world.name(), lease=60) as cluster:
        cluster.make_bucket()
        controllers = lambda: [found["node"] for found in cluster.look("controller").values()]  # noqa: E731
        (its,) = controllers()
        node = cluster.nodes[its - 1]
        node.stop()
        node.start()
        eventually("all is served", lambda: cluster.client().everywhere(), seconds=30)
        equal(controllers(), [its], "the controller")


def active_of(client, node):
    """The vBuckets of which the node has the active copy."""
    client.refresh()
    return [vbucket for vbucket, row in enumerate(client.rows()) if row[0] == node.kv]


@suite.test
def a_node_that_stops_beside_a_dead_one_serves_again_after_its_start(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket(replicas=1)
        client = cluster.client()
        fill(client)
        dead, other = cluster.nodes[2], cluster.nodes[1]
        dead.kill()
        is_served(client)
        # Half of the vBuckets of the other one have their only replica on the dead one.
        for value in (b"first", b"second"):
            fill(client, value, durable=False)
            before = active_of(client, other)
            assert before, "no active copies"
            other.stop()
            copied = shutil.copytree(other.data, other.home / value.decode())
            other.start()
            client = cluster.client()
            is_served(client)
            equal(active_of(client, other), before, "active copies")
            has_all(client, value)
        # A directory that is restored from a backup may lack what was acknowledged since.
        other.stop()
        shutil.rmtree(other.data)
        shutil.move(copied, other.data)
        ends(other, CONFIG, "node b", "was restored")
        dead.start()
        is_served(cluster.client())
