"""What a cluster does when its etcd is restored from an old backup."""

import json
import shutil
import subprocess

from cluster import Client, member_of
from etcd import Etcd
from failures import FAILOVER_SECONDS, KEYS, LEASE_SECONDS, go_on, of, three_nodes
from harness import binary, clean_environment, equal, eventually
from joins import ends
from mcbp import Connection
from world import CONFIG, DATA, TEMP_FAIL, suite

IOCTL_SET = 0x24


def keep(etcd):
    """Keeps what an etcd of one member has; returns where."""
    backup = etcd.home / "backup"
    etcd.kill(0)
    shutil.copytree(etcd.home / "m0", backup)
    etcd.spawn(0)
    etcd.ready()
    return backup


def restore(etcd, backup):
    """The etcd has what was kept, and nothing else."""
    etcd.kill(0)
    shutil.rmtree(etcd.home / "m0")
    shutil.copytree(backup, etcd.home / "m0")
    etcd.spawn(0)
    etcd.ready()


def at(node):
    return f"couchbase://Administrator:password@127.0.0.1:{node.kv}"


def told_by(node):
    """What a node tells of the cluster."""
    command = [binary(), "cluster", "status", "--json", "--connect", at(node)]
    told = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    return json.loads(told.stdout)


def went_back(node):
    return told_by(node)["etcd_went_back"]


@suite.test
def f6_an_etcd_from_an_old_backup_is_not_followed_and_copies_are_adopted(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        for key in KEYS:
            client.set(key, key, durable=True)
        backup = keep(etcd)
        drained = cluster.nodes[2]
        eventually("there is a controller", lambda: of(cluster, "drain", "c")[0] == 0, seconds=30)

        def copies():
            client.refresh()
            return len(client.copies(drained.kv))

        eventually("it has no copies", lambda: copies() == 0, seconds=40)
        rows, newest = client.rows(), etcd.revision()
        restore(etcd, backup)
        for node in cluster.nodes:
            eventually("it sees that etcd went back", lambda at=node: went_back(at), seconds=30)
        # Replicas keep all of it served.
        written = {KEYS[number % len(KEYS)]: str(number).encode() for number in range(go_on(client, 2 * LEASE_SECONDS))}
        equal(client.rows(), rows, "map")
        # Revisions grow beyond those that nodes have seen.
        while etcd.revision() <= newest:
            for number in range(100):
                etcd.put("/other", str(number))
        for again in cluster.nodes[1:]:
            again.kill()
            again.start()
            eventually("it knows that after its start", lambda at=again: went_back(at), seconds=30)
        client = Client([cluster.nodes[0]], "default")
        client.refresh()
        equal(client.rows(), rows, "map")
        # All nodes must answer, also after the order was given.
        cluster.nodes[1].kill()
        code, _, error = of(cluster, "adopt")
        equal((code, "b do not answer" in error), (TEMP_FAIL, True), error)
        cluster.nodes[1].start()
        eventually("copies are adopted", lambda: of(cluster, "adopt")[:2] == (0, "copies are adopted\n"), seconds=60)
        eventually("there is nothing more to adopt", lambda: of(cluster, "adopt")[0] == DATA, seconds=30)
        eventually("all vBuckets are served", lambda: cluster.client().everywhere(), seconds=FAILOVER_SECONDS)
        client = cluster.client()
        equal([client.get(key) for key in KEYS], [written.get(key, key) for key in KEYS], "values")
        for key in KEYS:
            client.set(key, b"newer", durable=True)
        cluster.nodes[1].kill()
        eventually("it is failed over", lambda: of(cluster, "failover", "b")[0] == 0, seconds=60)
        eventually("all vBuckets are served", lambda: cluster.client().everywhere(), seconds=FAILOVER_SECONDS)
        # What was under way to it when it died waits for a second copy.
        cluster.nodes[1].start()
        cluster.order("recover", "b")
        client = cluster.client()
        equal([client.get(key) for key in KEYS], [b"newer"] * len(KEYS), "values of after it")


@suite.test
def f6_copies_are_adopted_once_although_it_is_ordered_at_each_node(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        backup = keep(etcd)
        eventually("there is a controller", lambda: of(cluster, "status")[0] == 0, seconds=30)
        # A bucket that the backup lacks.
        cluster.make_bucket("late", replicas=2)
        clients = [cluster.client(), cluster.client("late")]
        for client in clients:
            for key in KEYS:
                client.set(key, key, durable=True)
        restore(etcd, backup)
        for node in cluster.nodes:
            eventually("it sees that etcd went back", lambda at=node: went_back(at), seconds=30)
        epoch = told_by(cluster.nodes[0])["seen_epoch"]
        order = json.dumps({"adopt": {"epoch": epoch, "lost": []}}).encode()
        for node in cluster.nodes[1:]:
            given = Connection(node.kv).login(bucket=None).call(IOCTL_SET, b"cluster.order", b"", order)
            equal(given.status, 0, "order")
        equal(of(cluster, "adopt")[:2], (0, "copies are adopted\n"), "the command at the third one")
        equal([one["adopted"] for one in cluster.look("history").values()], [epoch + 1], "epoch")
        for node in cluster.nodes:
            eventually("it follows etcd", lambda at=node: not went_back(at), seconds=30)
        eventually("there is nothing more to adopt", lambda: of(cluster, "adopt")[0] == DATA, seconds=30)
        for client in (cluster.client(), cluster.client("late")):
            eventually("all vBuckets are served", client.everywhere, seconds=FAILOVER_SECONDS)
            equal([client.get(key) for key in KEYS], KEYS, "values")
            for key in KEYS:
                client.set(key, b"newer", durable=True)
        # No copy is at a term that is above its row, so none was elected once more by a leap.
        chunks = [chunk for key, chunk in cluster.look("buckets/").items() if "/map/" in key]
        terms = {row["term"] // 1000 for chunk in chunks for row in chunk}
        equal(len(terms), 1, f"thousands of terms ({terms})")


@suite.test
def f6_a_node_that_the_backup_lacks_is_not_taken_for_a_removed_one(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster, member_of(etcd, cluster.name, "d").watched() as late:
        cluster.make_bucket()
        backup = keep(etcd)
        late.start()
        eventually("it is known", lambda: cluster.states() == ["active"] * 3 + ["new"], seconds=30)
        eventually("there is a controller", lambda: of(cluster, "rebalance")[0] == 0, seconds=30)

        def copies():
            client = cluster.client()
            client.refresh()
            return len(client.copies(late.kv))

        eventually("it has copies", copies, seconds=30)
        late.stop()
        restore(etcd, backup)
        ends(late, CONFIG, "etcd was restored from a backup that lacks this node", "settee cluster adopt")


@suite.test
def f6_an_etcd_that_lost_everything_has_the_cluster_again_and_nodes_start(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        for key in KEYS:
            client.set(key, key, durable=True)
        etcd.kill(0)
        shutil.rmtree(etcd.home / "m0")
        etcd.spawn(0)
        etcd.ready()
        for node in cluster.nodes:
            eventually("it sees that etcd went back", lambda at=node: went_back(at), seconds=30)
        eventually("copies are adopted", lambda: of(cluster, "adopt")[:2] == (0, "copies are adopted\n"), seconds=60)
        for node in cluster.nodes:
            node.stop()
            node.start()
        eventually("all vBuckets are served", lambda: cluster.client().everywhere(), seconds=FAILOVER_SECONDS)
        client = cluster.client()
        equal([client.get(key) for key in KEYS], KEYS, "values")
