"""`settee replicate` into a cluster, while copies move, nodes die and the command is killed."""

import json
import os
import signal

from cluster import Client
from failures import FAILOVER_SECONDS, recovered, settled
from harness import Node, equal, eventually
from mcbp import DELETE, FEATURE_COLLECTIONS, FEATURE_XERROR, GET, SET, SUCCESS, Connection, collection_key, vbucket_of
from tails import Replication, Writer
from world import suite

GET_META = 0xA0
SAFE = "safe"


class Site:
    """The bucket of a node that is in no cluster, written through one connection."""

    def __init__(self, node):
        self.connection = Connection(node.kv).login()
        self.connection.hello(FEATURE_COLLECTIONS, FEATURE_XERROR)
        self.keys = []

    def call(self, opcode, key, extras=b"", value=b""):
        return self.connection.call(opcode, collection_key(0, key), extras, value, vbucket=vbucket_of(key))

    def write(self, prefix, count=100):
        """Documents that are new, changed and, some of them, deleted."""
        for number in range(count):
            key = b"%s-%d" % (prefix, number)
            self.keys.append(key)
            for value in (b"1", b"2"):
                equal(self.call(SET, key, bytes(8), value).status, SUCCESS, "stored")
            if number % 5 == 0:
                equal(self.call(DELETE, key).status, SUCCESS, "deleted")


def agreed(site, nodes, keys):
    """Waits until documents are the same on both sides, by value, revision and CAS."""
    eventually("both have the same", lambda: not differences(site, nodes, keys), seconds=30)


def differences(site, nodes, keys):
    client = Client([node for node in nodes if node.alive()], SAFE)
    client.refresh()

    def known(call, key):
        meta, got = call(GET_META, key, b"\x02"), call(GET, key)
        return meta.status, meta.extras, meta.cas, got.status, got.value

    pairs = [(key, known(site.call, key), known(client.call, key)) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]]


@suite.test
def a_bucket_of_a_node_goes_into_a_cluster_while_a_node_dies_and_copies_move(world):
    cluster = settled(world)
    killed = cluster.nodes[1]
    with Node().watched() as apart:
        site = Site(apart.start().ready())
        with Replication((apart, "default"), (cluster.nodes[0], SAFE), apart.home / "state") as copied:
            site.write(b"before")
            agreed(site, cluster.nodes, site.keys)
            at = cluster.client(SAFE)
            at.refresh()
            # What it is sent from now on it does not answer. The others have theirs all the same.
            os.kill(killed.process.pid, signal.SIGSTOP)
            site.write(b"stopped")
            theirs = [key for key in site.keys if at.row(key)[0] != killed.kv]
            agreed(site, [node for node in cluster.nodes if node != killed], theirs)
            killed.kill()
            site.write(b"dead")
            eventually("all is served", lambda: cluster.client(SAFE).everywhere(), seconds=FAILOVER_SECONDS)
            site.write(b"served")
            killed.start()
            agreed(site, cluster.nodes, site.keys)
            recovered(cluster, "b")
            cluster.order("rebalance")
            while json.loads(cluster.order("status", "--json"))["rebalance"] != "idle":
                site.write(b"moving", 20)
            site.write(b"after")
            agreed(site, cluster.nodes, site.keys)
            copied.interrupt()


@suite.test
def a_cluster_and_a_node_agree_both_ways_whatever_is_killed(world):
    cluster = settled(world)
    killed = cluster.nodes[2]
    with Node().watched() as apart:
        sides = [(cluster.nodes[0], SAFE), (apart, "default")]
        site = Site(apart.start().ready())
        state = apart.home / "state"
        with Writer(cluster.nodes[:2], b"both") as writer:
            with Replication(*sides, state, "--both"):
                writer.more()
                site.write(b"first")
                agreed(site, cluster.nodes, site.keys)
                site.write(b"cut")
            # It was killed by the end of that.
            with Replication(*sides, state, "--both") as copied:
                agreed(site, cluster.nodes, site.keys)
                os.kill(killed.process.pid, signal.SIGSTOP)
                site.write(b"stopped")
                killed.kill()
                site.write(b"dead")
                writer.more()
                eventually("all is served", lambda: cluster.client(SAFE).everywhere(), seconds=FAILOVER_SECONDS)
                apart.kill()
                writer.more()
                site_keys = site.keys
                site = Site(apart.start().ready())
                site.write(b"late")
                agreed(site, cluster.nodes, [*site_keys, *site.keys, *writer.written])
                copied.interrupt()
    killed.start()
    recovered(cluster, "c")
