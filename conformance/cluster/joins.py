"""Nodes that come to a cluster, and nodes that it does not take."""

import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from cluster import OUTSIDE, Client, Cluster, member_of, status
from etcd import Etcd
from harness import Node, equal, eventually, finished, port_of, reserved_port
from manage import call, must
from wire import Wire
from world import CONFIG, DATA, NO_PERM, PROTOCOL, UNAVAILABLE, USAGE, holds, init, must_init, suite


@contextmanager
def serving(node):
    """A node that is started, and killed at the end."""
    with node.watched():
        yield node.start()


def refused(node, code, *words, etcd_is_told=()):
    """The node ends before it serves; its last line says why."""
    with node.watched():
        ends(node, code, *words)


def ends(node, code, *words):
    """The same of a node that is needed afterwards."""
    ran = finished(node.command(), **node.environment)
    why = ran.stderr.strip().splitlines()[-1]
    equal(ran.returncode, code, f"exit code ({why})")
    holds(why, "settee: ", *words)


@suite.test
def a_cluster_of_another_name_is_not_joined(world):
    must_init(world.etcd.addresses, "here")
    refused(member_of(world.etcd, "there", "a"), UNAVAILABLE, "no cluster named there", "here")


@suite.test
def the_name_of_a_node_is_its_own(world):
    must_init(world.etcd.addresses, "names")
    with serving(member_of(world.etcd, "names", "a")) as first:
        refused(member_of(world.etcd, "names", "a"), CONFIG, "a", "another data directory")
        # The one that has it comes back under it, and under no other.
        first.kill()
        first.flags[-1] = "b"
        ends(first, CONFIG, "--node-name a")
        first.flags[-1] = "a"
        first.start()


@suite.test
def a_node_serves_nothing_once_a_copy_of_its_directory_has_started(world):
    """What it acknowledged would pass for an acknowledgement of the copy, which may then be elected without it."""
    with Cluster(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        first, node, last = cluster.nodes
        copy = member_of(world.etcd, cluster.name, "b")
        with copy.watched():
            node.process.send_signal(signal.SIGSTOP)
            shutil.copytree(node.data, copy.data)
            node.process.send_signal(signal.SIGCONT)
            eventually("all is served", lambda: cluster.client().everywhere(), seconds=30)
            copy.start()
            eventually("it says so", lambda: "another process runs under this node's number" in node.log.read_text())
            code, _, said = call(node, "PUT", "/settings/rbac/users/local/ana", password="secret1", roles="admin")
            equal((code, "another process runs" in said), (503, True), "a change at the former process")
            client = Client([first, last, copy], "default")
            keys = [f"key-{number}".encode() for number in range(300)]
            for key in keys:
                client.set(key, b'"value"', durable=True)
            # Only the copy and the last node have the documents now.
            node.kill()
            first.kill()
            client = Client([last, copy], "default")
            for key in keys:
                equal(client.get(key), b'"value"', "an acknowledged document")
            ends(node, CONFIG, "node b", "is a copy, or was restored")


@suite.test
def a_directory_that_is_older_than_the_last_start_is_refused(world):
    """It lacks what the node acknowledged since, which an election could lose."""
    with Cluster(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        node = cluster.nodes[1]
        old = member_of(world.etcd, cluster.name, "b")
        for stop in (node.stop, node.kill):
            stop()
            shutil.rmtree(old.data, ignore_errors=True)
            shutil.copytree(node.data, old.data)
            node.start()
            eventually("all is served", lambda: cluster.client().everywhere(), seconds=30)
            refused(old, CONFIG, "node b", "is a copy, or was restored")
        cluster.client().set(b"key", b'"value"', durable=True)


@suite.test
def a_directory_of_a_cluster_is_started_in_it_only(world):
    must_init(world.etcd.addresses, "another")
    with Cluster(world.etcd, "its", nodes=1) as cluster:
        cluster.make_bucket(replicas=0)
        node = cluster.nodes[0]
        node.stop()
        joins = node.flags
        node.flags = []
        ends(node, CONFIG, "cluster its", "--cluster", "without a cluster")
        node.flags = ["--cluster", world.etcd.cluster("another"), *joins[2:]]
        ends(node, CONFIG, "cluster its", "join cluster another")
        node.flags = joins
        node.start()
        eventually("the bucket is served", lambda: cluster.client().everywhere(), seconds=30)


@suite.test
def a_cluster_of_a_later_version_is_not_joined(world):
    uuid = must_init(world.etcd.addresses, "later")["uuid"]
    key = f"/settee/{uuid}/meta"
    meta = json.loads(world.etcd.get(key)[key])
    world.etcd.put(key, json.dumps({**meta, "feature_level": 999}))
    refused(member_of(world.etcd, "later", "a"), CONFIG, "feature level 999")
    # What this version does not know of is passed over.
    world.etcd.put(key, json.dumps({**meta, "colour": "green"}))
    with serving(member_of(world.etcd, "later", "a")):
        pass


@suite.test
def a_node_without_a_login_of_etcd_ends_as_the_command_that_makes_a_cluster(_):
    with Etcd() as etcd:
        must_init(etcd.addresses, "x")
        etcd.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/enable", {})
        equal(init(etcd.addresses, "y")[0], NO_PERM, "exit code of init")
        refused(member_of(etcd, "x", "a"), NO_PERM, "user and a password")
        wrong = member_of(etcd, "x", "a")
        wrong.environment = {"SETTEE_ETCD_USERNAME": "root", "SETTEE_ETCD_PASSWORD": "wrong"}
        refused(wrong, NO_PERM, "authentication failed")


@suite.test
def a_node_needs_etcd_to_join(world):
    with reserved_port() as unused:
        address = f"etcd://127.0.0.1:{port_of(unused)}/x"
        refused(Node("--cluster", address, "--node-name", "a"), UNAVAILABLE, address[7:-2])
    with Node().watched() as other:
        other.start()
        address = f"etcd://127.0.0.1:{other.ports['http']}/x"
        refused(Node("--cluster", address, "--node-name", "a"), PROTOCOL, address[7:-2], "etcd")
    for flags in (["etcd://a/b/c"], ["http://a/b"], ["etcd://a"], [world.etcd.cluster("x")]):
        refused(Node("--cluster", *flags), USAGE, "cluster")


@suite.test
def what_a_node_is_asked_before_it_has_joined_is_done_by_the_cluster(world):
    wire = Wire(world.etcd.clients[0])
    with Cluster(world.etcd, world.name(), nodes=1) as cluster:
        first = cluster.nodes[0]
        cluster.make_bucket("memory", replicas=0, bucketType="ephemeral")
        equal(cluster.tried("drain", "a")[::2], (DATA, "settee: no other node runs that could take the copies of a\n"), "drain")
        at = f"etcd://127.0.0.1:{wire.port}/{cluster.name}"
        with Node("--cluster", at, "--node-name", "late").watched() as late:
            late.start()
            eventually("it has the bucket", lambda: must(late, "GET", "/pools/default/b/memory"), seconds=30)
            late.kill()
            wire.slow(0.2)
            with ThreadPoolExecutor(1) as beside:
                user = ("PUT", "/settings/rbac/users/local/ana")
                made = lambda: call(late, *user, password="secret1", roles="admin")[0] == 200  # noqa: E731
                # The port is there long before etcd has answered all that a join asks for.
                asked = beside.submit(eventually, "it does what it is asked", made, seconds=30)
                late.start()
                asked.result()
            known = [json.loads(must(node, "GET", "/settings/rbac/users")) for node in (first, late)]
            equal([[one["id"] for one in users] for users in known], [["ana"]] * 2, "users")
            problems = ("could not be made", "authentication failed")
            equal([line for line in late.log.read_text().splitlines() if any(one in line for one in problems)], [], "log")
    wire.close()


@suite.test
def two_clusters_on_one_etcd_do_not_know_each_other(world):
    with Cluster(world.etcd, "left", nodes=1) as left, Cluster(world.etcd, "right", nodes=1) as right:
        for cluster, other in ((left, right), (right, left)):
            nodes = cluster.look("nodes/")
            equal([node["inside"]["kv"] for node in nodes.values()], [cluster.nodes[0].kv], "nodes")
            assert all(other.uuid not in key for key in nodes), nodes
        left.make_bucket(replicas=0)
        right.make_bucket(replicas=0)
        left.client().set(b"key", b'"left"')
        right.client().set(b"key", b'"right"')
        equal([one.client().get(b"key") for one in (left, right)], [b'"left"', b'"right"'], "values")


@suite.test
def nodes_join_while_a_member_of_etcd_is_away(_):
    with Etcd(3) as etcd:
        etcd.kill(0)
        etcd.ready()
        with Cluster(etcd, "joined", nodes=3) as cluster:
            etcd.kill(1)
            with member_of(etcd, "joined", "d").watched() as late:
                etcd.spawn(0)
                etcd.ready()
                late.start()
                eventually("four nodes", lambda: cluster.states() == ["active"] * 4, seconds=30)


@suite.test
def nodes_and_clients_reach_each_other_through_proxies(world):
    with Cluster(world.etcd, "proxies", wires=True) as cluster:
        cluster.make_bucket()
        told = [json.loads(must(cluster.nodes[0], "GET", "/pools/default/b/default"))]
        servers = sorted(told[0]["vBucketServerMap"]["serverList"])
        equal(servers, sorted(f"127.0.0.1:{wire.port}" for wire in cluster.inside), "servers")
        others = [node["alternateAddresses"]["external"] for node in told[0]["nodesExt"]]
        others = sorted((other["hostname"], other["ports"]["kv"]) for other in others)
        equal(others, sorted((OUTSIDE, wire.port) for wire in cluster.outside), "addresses of another network")
        client = cluster.client()
        client.set(b"key", b'"value"', durable=True)
        assert all(wire.seen for wire in cluster.inside), "a node is reached past its proxy"
        # An operator of another network is led to the controller through its proxies.
        for wire in cluster.outside:
            at = f"couchbase://Administrator:password@{OUTSIDE}:{wire.port}"
            assert status(at).get("moves_left") is not None, at
