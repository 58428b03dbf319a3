"""Nodes whose disks are full, or die."""

import json
import os
import struct
import subprocess
import time
from contextlib import closing
from pathlib import Path

from cluster import Client, Cluster, member_of
from failures import FAILOVER_SECONDS, fill, go_on, has_all, settled
from harness import equal, eventually
from manage import must
from mcbp import SASL_AUTH, SET, SUCCESS, Connection
from moves import share
from world import holds, suite

SHIM = Path(__file__).resolve().parent.parent / "faults" / "shim.c"
# Where the library looks whether operations are to fail.
SWITCH = 3 * 8
# For so long at least it is looked whether writes go on beside a full disk.
LITTLE_SECONDS = 3
SAFE_KEYS = [f"safe-{number}".encode() for number in range(200)]
PERSIST_TO_MAJORITY = bytes([0x11, 0x03])


def between(node, **plan):
    """Puts a library between a node and its files, which do not fail yet."""
    library, tally = node.home / "shim.so", node.home / "tally"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, SHIM, "-ldl", "-lpthread"], check=True)
    tally.touch()
    plan = {"PATH": node.data, "TALLY": tally, "EVERY": 1, **plan}
    node.environment = {f"FAULT_{word}": str(value) for word, value in plan.items()}
    node.environment["LD_PRELOAD"] = str(library)


def fail(node, fails=True):
    """Has every operation of the plan fail, or no more."""
    with (node.home / "tally").open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("=q", fails), SWITCH)


class Faulty:
    """Another node of a cluster, between which and its files a library is put; it is active for its share."""

    def __init__(self, world, name, **plan):
        self.cluster = settled(world)
        self.node = member_of(world.etcd, self.cluster.name, name)
        between(self.node, **plan)
        self.node.start()
        self.cluster.nodes.append(self.node)
        count = len(self.cluster.nodes)
        eventually("it is known", lambda: len(self.cluster.states()) == count, seconds=30)
        self.cluster.order("rebalance")
        share(self.cluster, self.node, lambda part: part > 0.8 / count)

    def fail(self, fails=True):
        """Has every operation of the plan fail, or no more."""
        fail(self.node, fails)


def goes_on_in_memory(world, name, kind):
    full = Faulty(world, name, OPS="write", KIND=kind)
    safe = full.cluster.client("safe")
    full.fail()
    fill(safe, b"full", keys=SAFE_KEYS, seconds=5)
    go_on(safe, 2)
    node = full.cluster.status()["nodes"][-1]
    equal((node["name"], node["state"], node["disk_full"]), (name, "active", True), "its status")
    full.fail(False)
    for key in SAFE_KEYS:
        safe.until(0, SET, key, bytes(8), key, framing=PERSIST_TO_MAJORITY)
    has_all(safe, keys=SAFE_KEYS)
    return full


@suite.test
def a_node_whose_disk_is_full_goes_on_in_memory_and_catches_up(world):
    goes_on_in_memory(world, "d", "full")


@suite.test
def a_node_whose_disk_is_read_only_goes_on_in_memory_and_catches_up(world):
    full = goes_on_in_memory(world, "h", "readonly")
    full.cluster.order("drain", "h")
    leave(full)


def leave(full):
    """Has all copies moved off a node, and takes it out of the cluster."""
    cluster, node = full.cluster, full.node
    share(cluster, node, lambda part: part == 0)
    name = f"node {node.kv}"
    names = {one["kv"]: one["name"] for one in cluster.status()["nodes"]}
    cluster.order("remove", names[node.kv])
    eventually(f"{name} is forgotten", lambda: len(cluster.states()) == len(cluster.nodes) - 1, seconds=30)
    cluster.nodes.remove(node)
    node.kill()


def rows_that_wait(cluster, name):
    """The rows of what is active on a node: its seals would wait for its disk."""
    number = next(int(key.rsplit("/", 1)[1]) for key, node in cluster.look("nodes/").items() if node["name"] == name)
    chunks = {key: chunk for key, chunk in cluster.look("buckets/").items() if isinstance(chunk, list)}
    rows = {(key, at): row for key, chunk in chunks.items() for at, row in enumerate(chunk)}
    return {at: (row["chain"], row["term"], row.get("intent")) for at, row in rows.items() if row["chain"][0] == number}


@suite.test
def copies_leave_a_full_disk_when_it_has_space_and_no_client_waits(world):
    full = Faulty(world, "f", OPS="write", KIND="full")
    cluster = full.cluster
    safe = cluster.client("safe")
    full.fail()

    def tells(**what):
        go_on(safe, 0.2)
        status = cluster.status()
        node = next(node for node in status["nodes"] if node["kv"] == full.node.kv)
        for word, value in what.items():
            equal({**status, **node}[word], value, f"{word} of {node}")
        return True

    eventually("it tells that its disk is full", lambda: tells(disk_full=True), seconds=30)
    cluster.order("drain", "f")
    eventually("moves wait", lambda: tells(disk_full=True) and cluster.status()["moves_without_space"], seconds=30)
    holds(cluster.tried("status")[1], "moves wait for space on the disk of f", "disk full")
    waiting = rows_that_wait(cluster, "f")
    assert waiting, cluster.status()
    go_on(safe, 5)
    equal(rows_that_wait(cluster, "f"), waiting, "rows of the full disk")
    full.fail(False)
    eventually("it tells that it has space", lambda: tells(disk_full=False), seconds=30)
    leave(full)


@suite.test
def a_node_without_space_for_a_bucket_says_so_until_it_has_made_it(world):
    with Cluster(world.etcd, world.name(), nodes=2) as cluster:
        cluster.make_bucket()
        must(cluster.nodes[0], "POST", "/pools/default/buckets/default/scopes", name="shop")
        node = member_of(world.etcd, cluster.name, "c")
        cluster.nodes.append(node)
        between(node, PATH=node.data / "buckets", OPS="write", KIND="full")
        fail(node)
        node.start()

        def tells(full):
            equal([one["disk_full"] for one in cluster.status()["nodes"]], [False, False, full], "full disks")
            return True

        eventually("it tells that its disk is full", lambda: tells(True), seconds=30)
        holds(cluster.tried("status")[1], "disk full")
        fail(node, False)
        eventually("it tells that it has space", lambda: tells(False), seconds=30)
        cluster.order("rebalance")
        share(cluster, node, lambda part: part > 0.2)


@suite.test
def a_member_without_space_for_a_bucket_waits_without_work(world):
    with Cluster(world.etcd, world.name(), nodes=2) as cluster:
        cluster.make_bucket()
        node = member_of(world.etcd, cluster.name, "c")
        cluster.nodes.append(node)
        between(node, PATH=node.data / "buckets", OPS="write", KIND="full")
        node.start()
        eventually("it is known", lambda: len(cluster.states()) == 3, seconds=30)
        cluster.order("rebalance")
        share(cluster, node, lambda part: part > 0.2)
        fail(node)
        must(cluster.nodes[0], "POST", "/pools/default/buckets", name="other", ramQuotaMB="100", numVBuckets="128")
        refusal = "a bucket of the cluster cannot be made"
        eventually("it cannot make it", lambda: refusal in node.log.read_text(), seconds=30)
        used = node.processor_ns()
        time.sleep(LITTLE_SECONDS)
        used = (node.processor_ns() - used) / 1e9
        assert used < LITTLE_SECONDS / 4, f"{used:.1f} s of processor time in {LITTLE_SECONDS} s"
        eventually("the others serve it", cluster.client("other").everywhere, seconds=30)
        equal(cluster.states(), ["active"] * 3, "states")
        before = cluster.client()
        before.everywhere()
        assert any(row[0] == node.kv for row in before.rows()), "it keeps its part of the bucket before"
        fail(node, False)
        eventually("all is served", cluster.client("other").everywhere, seconds=30)


def lacks_a_bucket(world, kind):
    with Cluster(world.etcd, world.name(), nodes=2) as cluster:
        cluster.make_bucket()
        node = member_of(world.etcd, cluster.name, "c")
        cluster.nodes.append(node)
        between(node, PATH=node.data / "buckets", FILES="other", OPS="write", KIND=kind)
        node.start()
        eventually("it is known", lambda: len(cluster.states()) == 3, seconds=30)
        cluster.order("rebalance")
        share(cluster, node, lambda part: part > 0.2)
        fail(node)
        must(cluster.nodes[0], "POST", "/pools/default/buckets", name="other", ramQuotaMB="100", numVBuckets="128")
        other, before = Client(cluster.nodes[:2], "other"), cluster.client()

        def tells(unmade):
            equal(cluster.status()["nodes"][-1]["unmade"], unmade, "unmade buckets")
            return True

        eventually("it tells of it", lambda: tells(["other"]), seconds=30)
        holds(cluster.tried("status")[1], "c cannot make other")

        def is_left():
            other.refresh()
            return not other.copies(node.kv)

        eventually("the others have all copies", is_left, seconds=60)
        for key in SAFE_KEYS:
            other.set(key, key, durable=True)
        equal(cluster.states(), ["active"] * 3, "states")
        before.everywhere()
        assert any(row[0] == node.kv for row in before.rows()), "it keeps its part of the bucket before"
        fail(node, False)
        eventually("it makes it", lambda: tells([]), seconds=30)
        cluster.order("rebalance")
        share(cluster, node, lambda part: part > 0.2, bucket="other")
        has_all(cluster.client("other"), keys=SAFE_KEYS)


@suite.test
def replicas_of_a_bucket_that_a_member_has_no_space_for_are_made_elsewhere(world):
    lacks_a_bucket(world, "full")


@suite.test
def a_member_that_may_not_write_one_bucket_keeps_the_others(world):
    lacks_a_bucket(world, "readonly")


@suite.test
def a_disk_gets_full_while_copies_leave_it(world):
    full = Faulty(world, "g", OPS="write", KIND="full")
    cluster = full.cluster
    safe = cluster.client("safe")
    fill(safe, keys=SAFE_KEYS)
    cluster.order("drain", "g")

    def taken_over():
        return any(intent for _, _, intent in rows_that_wait(cluster, "g").values())

    eventually("some are taken over", taken_over, seconds=30, pause=0.005)
    full.fail()
    begun, longest = time.monotonic(), 0
    while (took := time.monotonic() - begun) < LITTLE_SECONDS or taken_over():
        assert took < FAILOVER_SECONDS, rows_that_wait(cluster, "g")
        for key in SAFE_KEYS[::10]:
            tried = time.monotonic()
            safe.set(key, key, durable=True, seconds=FAILOVER_SECONDS)
            longest = max(longest, time.monotonic() - tried)
    print(f"     longest wait of a durable write: {longest:.1f} s")
    full.fail(False)
    eventually("it is a member", lambda: cluster.states()[-1] != "failed", seconds=30)
    has_all(safe, keys=SAFE_KEYS)
    cluster.order("recover", "g")
    cluster.order("drain", "g")
    leave(full)


@suite.test
def f13_a_node_whose_syncs_fail_is_replaced_and_loses_nothing(world):
    dying = Faulty(world, "e", OPS="sync", KIND="error")
    cluster, node = dying.cluster, dying.node
    safe = cluster.client("safe")
    fill(safe, keys=SAFE_KEYS)
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
        has_all(others, keys=SAFE_KEYS)


@suite.test
def changes_reach_a_node_whose_disk_is_full(world):
    with Cluster(world.etcd, world.name(), nodes=2) as cluster:
        cluster.make_bucket()
        cluster.make_bucket("other")
        node = member_of(world.etcd, cluster.name, "c")
        cluster.nodes.append(node)
        between(node, OPS="write", KIND="full")
        node.start()

        def serves(seconds, bucket="default"):
            with closing(Connection(node.kv).login(bucket=bucket)) as connection:
                equal(connection.stats()["ep_max_ttl"], str(seconds), "maxTTL")
            return True

        def lets_in():
            with closing(Connection(node.kv)) as connection:
                return connection.call(SASL_AUTH, b"PLAIN", b"", b"\0ada\0secret1").status == SUCCESS

        for bucket in ("default", "other"):
            eventually(f"it serves {bucket}", lambda bucket=bucket: serves(0, bucket), seconds=30)
        ada = "/settings/rbac/users/local/ada"
        must(cluster.nodes[0], "PUT", ada, password="secret1", roles="admin")
        eventually("it knows the user", lets_in, seconds=30)
        fail(node)
        must(cluster.nodes[0], "DELETE", ada)
        eventually("the user is gone", lambda: not lets_in(), seconds=30)
        must(cluster.nodes[0], "POST", "/pools/default/buckets/default", maxTTL="77")
        must(cluster.nodes[0], "DELETE", "/pools/default/buckets/other")
        for line in ("settings of the cluster are not obeyed", "a bucket that the cluster dropped is not gone"):
            eventually(line, lambda line=line: line in node.log.read_text(), seconds=30)
        serves(0)
        fail(node, False)
        eventually("it obeys", lambda: serves(77), seconds=30)
        other = node.data / "buckets" / "other"
        eventually("it dropped the bucket", lambda: not other.exists(), seconds=30)


@suite.test
def what_a_member_saw_is_written_once_its_disk_has_space(world):
    with Cluster(world.etcd, world.name(), nodes=2) as cluster:
        cluster.make_bucket()
        node = member_of(world.etcd, cluster.name, "c")
        cluster.nodes.append(node)
        between(node, FILES="cluster.json", OPS="write", KIND="full")
        node.start()
        eventually("it is known", lambda: len(cluster.states()) == 3, seconds=30)
        fail(node)
        cluster.order("rebalance")
        share(cluster, node, lambda part: part > 0.2)
        eventually("it is rebalanced", lambda: cluster.status()["rebalance"] == "idle", seconds=30)

        def has_newest():
            files = [one.data / "cluster.json" for one in cluster.nodes]
            lines = [file.read_text().splitlines()[-1] if file.exists() else "{}" for file in files]
            return len({str(json.loads(line).get("mark")) for line in lines}) == 1

        assert not has_newest(), "it wrote what it saw"
        fail(node, False)
        eventually("it writes what it saw", has_newest, seconds=30)
        equal(node.log.read_text().count("ERROR"), 1, "lines of errors")
