"""Copies with damaged rows: a cluster makes them anew where another copy is whole."""

import random

from cluster import Cluster, status
from failures import FAILOVER_SECONDS, KEYS, LEASE_SECONDS, fill, go_on
from harness import equal, eventually
from mcbp import GET, GET_REPLICA, SUCCESS, vbucket_of
from world import holds, suite

# Its value lies apart from its row.
LARGE = b"large"
VALUE = random.Random(7).randbytes(100_000)
RENEWAL_SECONDS = 30
CHECKSUM_MISMATCH = 0x27


class Damaged:
    """Three nodes with a bucket of so many replicas; in one copy the value of a document is damaged at rest."""

    def __init__(self, world, replicas, **more):
        # A node that starts again, also on a machine that does much else, is not failed over.
        self.cluster = Cluster(world.etcd, world.name(), lease=5 * LEASE_SECONDS)
        self.replicas, self.more = replicas, more

    def __enter__(self):
        self.cluster.__enter__()
        self.cluster.make_bucket(replicas=self.replicas, quota=256, **self.more)
        self.client = self.cluster.client()
        fill(self.client)
        self.client.set(LARGE, VALUE, durable=True)
        self.fill_logs()
        eventually("all copies are there", lambda: self.nodes_of_large() and self.lacks_nothing(), RENEWAL_SECONDS)
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()

    def fill_logs(self):
        """Has the value lie in a run on each node with a copy: a log that is replayed must be whole."""
        vbuckets = len(self.client.rows())
        names = (f"fill-{number}".encode() for number in range(40 * 2 * vbuckets))
        for key in [name for name in names if vbucket_of(name, vbuckets) == vbucket_of(LARGE, vbuckets)]:
            self.client.set(key, bytes(1 << 20))
        for node in self.cluster.nodes:
            if node.kv in self.nodes_of_large():
                eventually("a run", lambda node=node: list((node.data / "buckets").glob("*/run-*")), RENEWAL_SECONDS)

    def lacks_nothing(self):
        return all(bucket["lacking"] == 0 for bucket in self.cluster.status()["buckets"])

    def nodes_of_large(self):
        """KV ports of the nodes with a copy of the vBucket, the active one's first."""
        self.client.refresh()
        return [port for port in self.client.row(LARGE) if port is not None]

    def node_of(self, at):
        """The node of a copy."""
        port = self.nodes_of_large()[at]
        return next(node for node in self.cluster.nodes if node.kv == port)

    def start(self, node):
        node.start()
        self.client = self.cluster.client()
        eventually("a map is told", self.client.refresh, FAILOVER_SECONDS)

    def crash(self, node):
        node.kill()
        self.start(node)

    def damage(self, at):
        """Stops the node of a copy, damages the value in it, and starts the node, which finds that where it reads all values."""
        node = self.node_of(at)
        node.stop()
        spoil(node)
        self.start(node)
        if not self.more:
            eventually("it is found", lambda: "the vBucket is in quarantine" in node.tail(1000), FAILOVER_SECONDS)
        return node

    def read(self, node):
        """What a node answers that is asked for the large value."""
        opcode = GET if self.nodes_of_large()[0] == node.kv else GET_REPLICA
        vbucket = vbucket_of(LARGE, len(self.client.rows()))
        return self.client.connection(node.kv).call(opcode, b"\0" + LARGE, vbucket=vbucket)

    def is_renewed(self, node):
        state = status(node.address)
        quarantined = self.client.connection(node.kv).stats()["ep_vb_quarantined"]
        equal((state["damaged"], state["moves"], quarantined), ([], 0, "0"), "damaged copies")
        equal(len(self.nodes_of_large()), self.replicas + 1, "copies")
        return node.kv in self.nodes_of_large()

    def check(self, node):
        """The copy is made anew by itself, all values are right, and durable writes go on."""
        def has_value():
            reply = self.read(node)
            return (reply.status, reply.value) == (SUCCESS, VALUE)

        eventually("all is served", self.client.everywhere, FAILOVER_SECONDS)
        # Until then the node may not know of the damage.
        eventually("the new copy has the value", has_value, RENEWAL_SECONDS)
        eventually("the copy is made anew", lambda: self.is_renewed(node), RENEWAL_SECONDS)
        go_on(self.client, 2)
        equal(self.client.get(LARGE), VALUE, "value")


def spoil(node):
    """Damages the value on the disk of a node that is stopped."""
    paths = [path for path in (node.data / "buckets").glob("*/*-*") if VALUE in path.read_bytes()]
    assert paths, "the value is on no disk"
    for path in paths:
        path.write_bytes(path.read_bytes().replace(VALUE[:50_000], bytes(50_000)))


@suite.test
def a_damaged_replica_is_made_anew(world):
    with Damaged(world, replicas=2) as damaged:
        node = damaged.damage(1)
        damaged.check(node)


@suite.test
def a_damaged_active_copy_is_replaced_and_made_anew(world):
    with Damaged(world, replicas=1) as damaged:
        node = damaged.damage(0)
        equal(damaged.client.get(LARGE, FAILOVER_SECONDS), VALUE, "value")
        assert damaged.nodes_of_large()[0] != node.kv, "the damaged copy is active"
        damaged.check(node)


@suite.test
def all_nodes_start_again_and_one_has_a_damaged_replica(world):
    with Damaged(world, replicas=2) as damaged:
        node = damaged.node_of(1)
        for one in damaged.cluster.nodes:
            one.stop()
        spoil(node)
        for one in damaged.cluster.nodes:
            damaged.start(one)
        damaged.check(node)


@suite.test
def a_copy_in_which_a_read_meets_damage_is_made_anew(world):
    with Damaged(world, replicas=1, evictionPolicy="fullEviction") as damaged:
        for becomes_active in (False, True):
            node = damaged.damage(1)
            eventually("all is served", damaged.client.everywhere, FAILOVER_SECONDS)
            for _ in range(10 if becomes_active else 0):
                # An active copy whose node crashed is elected only if no other one has as much.
                if damaged.node_of(0) is not node:
                    damaged.crash(damaged.node_of(0))
                    eventually("all is served", damaged.client.everywhere, FAILOVER_SECONDS)
            equal(damaged.node_of(0) is node, becomes_active, "whether it is active")
            reply = damaged.read(node)
            assert reply.status != SUCCESS, reply
            damaged.check(node)


@suite.test
def a_damaged_only_copy_stays_and_is_told(world):
    with Damaged(world, replicas=0) as damaged:
        node = damaged.damage(0)
        vbuckets = len(damaged.client.rows())
        vbucket = vbucket_of(LARGE, vbuckets)
        expected = {"bucket": "default", "vbuckets": 1, "ranges": str(vbucket), "unreadable": str(vbucket)}

        def is_told():
            equal([{**one, "node": ""} for one in damaged.cluster.status()["damaged"]], [{**expected, "node": ""}], "damaged")
            return True

        def others_are_served():
            code, text, error = damaged.cluster.tried("status")
            equal(code, 75, "exit code of status")
            holds(text, f"damaged copies on {damaged.cluster.status()['damaged'][0]['node']}: {vbucket}; not readable at all")
            holds(error, "settee: 1 vBuckets of bucket default are not served")
            return True

        eventually("it is told", is_told, FAILOVER_SECONDS)
        eventually("the node serves its other copies", others_are_served, FAILOVER_SECONDS)
        others = [key for key in KEYS if vbucket_of(key, vbuckets) != vbucket]
        equal([damaged.client.get(key) for key in others], others, "other values")
        reply = damaged.client.connection(node.kv).call(GET, b"\0" + LARGE, vbucket=vbucket)
        equal(reply.status, CHECKSUM_MISMATCH, "status of what is damaged")
