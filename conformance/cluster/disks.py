"""Nodes whose disks are full, or die."""

import os
import struct
import subprocess
from pathlib import Path

from cluster import Client, member_of
from failures import FAILOVER_SECONDS, go_on, settled
from harness import equal, eventually
from mcbp import SET
from moves import share
from world import suite

SHIM = Path(__file__).resolve().parent.parent / "faults" / "shim.c"
# Where the library looks whether operations are to fail.
SWITCH = 3 * 8
KEYS = [f"safe-{number}".encode() for number in range(200)]
PERSIST_TO_MAJORITY = bytes([0x11, 0x03])


class Faulty:
    """Another node of a cluster, between which and its files a library is put; it is active for its share."""

    def __init__(self, world, name, **plan):
        self.cluster = settled(world)
        self.node = member_of(world.etcd, self.cluster.name, name)
        library, self.tally = self.node.home / "shim.so", self.node.home / "tally"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, SHIM, "-ldl", "-lpthread"], check=True)
        plan = {"PATH": self.node.data, "TALLY": self.tally, "EVERY": 1, **plan}
        self.node.environment = {f"FAULT_{word}": str(value) for word, value in plan.items()}
        self.node.environment["LD_PRELOAD"] = str(library)
        self.node.start()
        self.cluster.nodes.append(self.node)
        count = len(self.cluster.nodes)
        eventually("it is known", lambda: len(self.cluster.states()) == count, seconds=30)
        self.cluster.order("rebalance")
        share(self.cluster, self.node, lambda part: part > 0.8 / count)

    def fail(self, fails=True):
        """Has every operation of the plan fail, or no more."""
        with self.tally.open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack("=q", fails), SWITCH)

@suite.test
def a_node_whose_disk_is_full_goes_on_in_memory_and_catches_up(world):
    full = Faulty(world, "d", OPS="write", KIND="full")
    safe = full.cluster.client("safe")
    full.fail()
    for key in KEYS:
        safe.set(key, b"full", durable=True, seconds=5)
    go_on(safe, 2)
    equal(full.cluster.states()[3], "active", "state")
    full.fail(False)
    for key in KEYS:
        safe.until(0, SET, key, bytes(8), key, framing=PERSIST_TO_MAJORITY)
    equal([safe.get(key) for key in KEYS], KEYS, "values")


@suite.test
def f13_a_node_whose_syncs_fail_is_replaced_and_loses_nothing(world):
    dying = Faulty(world, "e", OPS="sync", KIND="error")
    cluster, node = dying.cluster, dying.node
    safe = cluster.client("safe")
    for key in KEYS:
        safe.set(key, key, durable=True)
    dying.fail()
    cluster.nodes.remove(node)
    with node.watched():
        others = Client(cluster.nodes, "safe")

        def replaced():
            # What is written has it meet its disk.
            go_on(others, 0.2)
            return cluster.states()[-1] == "failed" and all(row[0] != node.kv for row in others.rows())

        eventually("it is replaced", replaced, seconds=FAILOVER_SECONDS)
        assert node.alive(), "it ended"
        equal([others.get(key) for key in KEYS], KEYS, "values")
