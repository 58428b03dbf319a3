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
from cluster import Client, Cluster
from etcd import Etcd
from harness import Suite, equal, eventually

suite = Suite("cluster-histories")

LEASE_SECONDS = 2
# For so long a new controller fails nothing over.
SETTLE_SECONDS = 30
# From a kill to writes at every vBucket, on a machine that does much else.
FAILOVER_SECONDS = 20


class World:
    """The cluster."""

    def __init__(self):
        self.etcd = Etcd(3).start()
        self.cluster = Cluster(self.etcd, "histories", lease=LEASE_SECONDS).__enter__()
        self.started = time.monotonic()
        self.cluster.make_bucket(replicas=2)

    def crowd(self, name):
        return Crowd(name, [node.kv for node in self.cluster.nodes])

    def settled(self):
        """Waits until nodes are failed over; returns one that is not the controller's, and its place."""
        time.sleep(max(0, self.started + SETTLE_SECONDS - time.monotonic()))
        controller = json.loads(self.cluster.order("status", "--json"))["controller"]
        return next((at, node) for at, node in enumerate(self.cluster.nodes) if chr(ord("a") + at) != controller)

    def failed_over(self, at):
        def failed():
            states = self.cluster.states()
            if states[at] != "failed":
                raise AssertionError(f"{states}; {self.cluster.order('status')}")
            return True

        eventually("it is failed over", failed, seconds=FAILOVER_SECONDS, pause=0.5)
        others = [node for place, node in enumerate(self.cluster.nodes) if place != at]
        eventually("all is served", Client(others, "default").everywhere, seconds=FAILOVER_SECONDS)

    def recover(self, at):
        """A node that came back is counted on again, with active copies."""
        eventually("it came back", lambda: self.cluster.states()[at] == "new", seconds=30)
        self.cluster.order("recover", chr(ord("a") + at))
        self.cluster.order("rebalance")
        eventually("it has its share", lambda: self.share(self.cluster.nodes[at]) > 0.2, seconds=60)

    def share(self, node):
        """The share of vBuckets for which a node is active; each has all of its copies."""
        client = self.cluster.client()
        client.refresh()
        rows = client.rows()
        return sum(row[0] == node.kv for row in rows) / len(rows) if not any(None in row for row in rows) else 0

    def close(self):
        self.cluster.__exit__()
        self.etcd.close()


@suite.test
def sdks_agree_through_a_kill(world):
    at, killed = world.settled()
    crowd = world.crowd("kill")
    crowd.work(500)
    killed.kill()
    world.failed_over(at)
    crowd.work(500)
    killed.start()
    world.recover(at)
    crowd.work(500)
    crowd.judge()


@suite.test
def sdks_agree_through_a_node_that_stands_still(world):
    at, stopped = world.settled()
    crowd = world.crowd("stop")
    crowd.work(500)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        world.failed_over(at)
        crowd.work(500)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    crowd.work(500)
    world.recover(at)
    crowd.judge()


if __name__ == "__main__":
    suite.main(World())
