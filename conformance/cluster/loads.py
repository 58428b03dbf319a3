"""The load generator at a cluster."""

import json
import signal
import subprocess

from failures import three_nodes
from harness import begun, binary, equal, eventually
from moves import share
from world import USAGE, holds, suite


def bench(node, *flags):
    """`settee bench` of the bucket, given one node, in the background."""
    command = [binary(), "bench", "--connect", node.address, "--keys", "2000", "--connections", "4", "--depth", "4"]
    return begun([*command, "--ratio", "1:1", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@suite.test
def a_load_has_no_error_while_a_node_is_drained_and_leaves(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        drained = cluster.nodes[2]
        load = bench(drained, "--verify", "--json", "--threads", "2", "--duration", "120", "--slices", "240")
        try:
            loaded = lambda: cluster.client().get(b"settee:000001999", seconds=0.1)  # noqa: E731
            eventually("keys are loaded", loaded, seconds=30)
            cluster.order("drain", "c")
            share(cluster, drained, lambda part: part == 0)
            cluster.order("remove", "c")
            eventually("it is forgotten", lambda: len(cluster.states()) == 2, seconds=30)
            drained.kill()
            assert load.poll() is None, "the load ended before the node left"
            load.send_signal(signal.SIGINT)
            told, error = load.communicate(timeout=60)
        finally:
            load.kill()
        equal((load.returncode, error), (0, ""), "bench")
        server = json.loads(told)["servers"][0]
        equal((server["errors"], server["misses"], server["nodes"]), ({}, 0, 3), "figures")
        equal(set(server["violations"].values()), {0}, "violations")
        assert server["retries"] > 0, server


@suite.test
def measures_of_one_node_are_refused_at_a_cluster(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        for flag in ("--dcp=drain", "--watch-memory"):
            load = bench(cluster.nodes[0], flag)
            told, error = load.communicate(timeout=60)
            equal((load.returncode, told), (USAGE, ""), flag)
            holds(error, "active on 3 nodes")
