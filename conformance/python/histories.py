"""Histories of several Python SDKs at a cluster of three nodes, through whatever happens to nodes and links.

One cluster for all stories; durable writes, so that nothing that was answered may be lost.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from agreement import Crowd
from cluster import Client
from etcd import Etcd
from harness import Suite, equal, eventually
from links import LinkedCluster

suite = Suite("cluster-histories")

LEASE_SECONDS = 2
# From a kill to writes at every vBucket, on a machine that does much else.
FAILOVER_SECONDS = 20


def name_of(at):
    return chr(ord("a") + at)


class World:
    """The cluster."""

    def __init__(self):
        self.etcd = Etcd(3).start()
        self.cluster = LinkedCluster(self.etcd, "histories", lease=LEASE_SECONDS).__enter__()
        self.links = self.cluster.links
        self.cluster.make_bucket(replicas=2)

    def crowd(self, name):
        return Crowd(name, self.cluster.ports)

    def worked(self, crowd):
        """Works for a while; returns a node that is not the controller's, and its place."""
        crowd.work(500)
        controller = json.loads(self.cluster.order("status", "--json"))["controller"]
        return next((at, node) for at, node in enumerate(self.cluster.nodes) if name_of(at) != controller)

    def failed_over(self, at):
        def failed():
            states = self.cluster.states()
            if states[at] != "failed":
                raise AssertionError(f"{states}; {self.cluster.order('status')}")
            return True

        eventually("it is failed over", failed, seconds=FAILOVER_SECONDS, pause=0.5)
        others = [node for place, node in enumerate(self.cluster.nodes) if place != at]
        client = Client(others, "default")

        def served():
            if not client.everywhere():
                raise AssertionError(f"ports {self.cluster.ports}, rows {client.rows()}")
            return True

        eventually("all is served", served, seconds=2 * FAILOVER_SECONDS)

    def recover(self, at):
        """A node that came back is counted on again, with active copies."""
        eventually("it came back", lambda: self.cluster.states()[at] == "new", seconds=30)
        self.cluster.order("recover", name_of(at))
        self.cluster.order("rebalance")

        def has_share():
            if self.share(self.cluster.ports[at]) > 0.2:
                return True
            chunks = [chunk for chunk in self.cluster.look("buckets/").values() if isinstance(chunk, list)]
            moving = [row for chunk in chunks for row in chunk if row.keys() - {"chain", "term"}]
            raise AssertionError(f"{moving}; {self.cluster.order('status')}")

        try:
            eventually("it has its share", has_share, seconds=30, pause=0.2)
        except AssertionError as error:
            logs = "\n".join(f"{name_of(at)} wrote:\n{node.tail()}" for at, node in enumerate(self.cluster.nodes))
            raise AssertionError(f"{error}\n{logs}") from None

    def share(self, port):
        """The share of vBuckets for which a node is active; each has all of its copies."""
        client = self.cluster.client()
        client.refresh()
        rows = client.rows()
        return sum(row[0] == port for row in rows) / len(rows) if not any(None in row for row in rows) else 0

    def close(self):
        self.cluster.__exit__()
        self.etcd.close()


@suite.test
def sdks_agree_through_a_kill(world):
    crowd = world.crowd("kill")
    at, killed = world.worked(crowd)
    killed.kill()
    world.failed_over(at)
    crowd.work(500)
    killed.start()
    world.recover(at)
    crowd.work(500)
    crowd.judge()


@suite.test
def sdks_agree_through_a_node_that_stands_still(world):
    crowd = world.crowd("stop")
    at, stopped = world.worked(crowd)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        world.failed_over(at)
        crowd.work(500)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    crowd.work(500)
    world.recover(at)
    crowd.judge()


@suite.test
def f2_sdks_agree_while_a_node_is_cut_off_from_all_but_them(world):
    crowd = world.crowd("cut")
    at, _ = world.worked(crowd)
    others = [name_of(other) for other in range(3) if other != at]
    world.links.part(name_of(at), *others, "etcd")
    try:
        world.failed_over(at)
        crowd.work(500)
    finally:
        world.links.heal()
    crowd.work(500)
    world.recover(at)
    crowd.judge()


@suite.test
def f3_sdks_agree_while_a_node_is_cut_off_from_etcd_alone(world):
    crowd = world.crowd("etcd")
    at, _ = world.worked(crowd)
    world.links.part(name_of(at), "etcd")
    end = time.monotonic() + 3 * LEASE_SECONDS
    while time.monotonic() < end:
        crowd.work(50)
    equal(world.cluster.states(), ["active"] * 3, "states")
    assert world.share(world.cluster.ports[at]) > 0.2, "its vBuckets are elsewhere"
    world.links.heal()
    crowd.work(500)
    equal(crowd.failures, {}, "failures")
    crowd.judge()


@suite.test
def sdks_agree_while_a_node_hears_others_and_is_not_heard(world):
    crowd = world.crowd("deaf")
    at, _ = world.worked(crowd)
    for other in range(3):
        world.links.cut(name_of(at), name_of(other))
    eventually("a durable write cannot be acknowledged", lambda: crowd.failures, seconds=30)
    world.links.heal()
    crowd.work(500)
    eventually("all is served", world.cluster.client().everywhere, seconds=FAILOVER_SECONDS)
    crowd.judge()


if __name__ == "__main__":
    suite.main(World())
