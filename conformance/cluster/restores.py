"""What a cluster does when its etcd is restored from an old backup."""

import json
import shutil
import signal
from contextlib import contextmanager

from buckets import collections
from cluster import Client, member_of, status
from etcd import Etcd
from failures import KEYS, LEASE_SECONDS, fill, go_on, has_all, is_served, three_nodes
from harness import binary, equal, eventually, finished
from joins import ends
from manage import must
from mcbp import Connection
from world import CONFIG, DATA, TEMP_FAIL, suite

IOCTL_SET = 0x24


@contextmanager
def stopped(etcd):
    """The files of an etcd of one member, while it does not run."""
    etcd.kill(0)
    yield etcd.home / "m0"
    etcd.spawn(0)
    etcd.ready()


def keep(etcd):
    """Keeps what an etcd of one member has; returns where."""
    backup = etcd.home / "backup"
    with stopped(etcd) as files:
        shutil.copytree(files, backup)
    return backup


def restore(etcd, backup=None):
    """The etcd has what was kept, and nothing else."""
    with stopped(etcd) as files:
        shutil.rmtree(files)
        if backup:
            shutil.copytree(backup, files)


def see_the_backup(nodes):
    """Waits until each of the nodes knows that etcd went back."""
    for node in nodes:
        went_back = lambda at=node.address: status(at)["etcd_went_back"]  # noqa: E731
        eventually("it sees that etcd went back", went_back, seconds=30)


def is_adopted(cluster):
    """Orders an adoption; one that was not answered in time may have been obeyed."""
    code, told, _ = cluster.tried("adopt")
    return code == DATA or (code, told) == (0, "copies are adopted\n")


@suite.test
def f6_an_etcd_from_an_old_backup_is_not_followed_and_copies_are_adopted(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        fill(client)
        backup = keep(etcd)
        drained = cluster.nodes[2]
        eventually("there is a controller", lambda: cluster.tried("drain", "c")[0] == 0, seconds=30)

        def copies():
            client.refresh()
            return len(client.copies(drained.kv))

        eventually("it has no copies", lambda: copies() == 0, seconds=40)
        rows, newest = client.rows(), etcd.revision()
        restore(etcd, backup)
        see_the_backup(cluster.nodes)
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
            see_the_backup([again])
        client = Client([cluster.nodes[0]], "default")
        client.refresh()
        equal(client.rows(), rows, "map")
        # All nodes must answer, also after the order was given.
        cluster.nodes[1].kill()
        code, _, error = cluster.tried("adopt")
        equal((code, "b do not answer" in error), (TEMP_FAIL, True), error)
        cluster.nodes[1].start()
        eventually("copies are adopted", lambda: is_adopted(cluster), seconds=60)
        eventually("there is nothing more to adopt", lambda: cluster.tried("adopt")[0] == DATA, seconds=30)
        is_served(cluster.client())
        client = cluster.client()
        equal([client.get(key) for key in KEYS], [written.get(key, key) for key in KEYS], "values")
        fill(client, b"newer")
        cluster.nodes[1].kill()
        eventually("it is failed over", lambda: cluster.tried("failover", "b")[0] == 0, seconds=60)
        is_served(cluster.client())
        # What was under way to it when it died waits for a second copy.
        cluster.nodes[1].start()
        cluster.order("recover", "b")
        client = cluster.client()
        has_all(client, b"newer")


@suite.test
def f6_copies_are_adopted_once_although_it_is_ordered_at_each_node(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        backup = keep(etcd)
        eventually("there is a controller", lambda: cluster.tried("status")[0] == 0, seconds=30)
        # A bucket that the backup lacks.
        cluster.make_bucket("late", replicas=2)
        clients = [cluster.client(), cluster.client("late")]
        for client in clients:
            fill(client)
        restore(etcd, backup)
        see_the_backup(cluster.nodes)
        epoch = cluster.status()["seen_epoch"]
        order = json.dumps({"adopt": {"epoch": epoch, "lost": []}}).encode()
        for node in cluster.nodes[1:]:
            given = Connection(node.kv).login(bucket=None).call(IOCTL_SET, b"cluster.order", b"", order)
            equal(given.status, 0, "order")
        equal(cluster.tried("adopt")[:2], (0, "copies are adopted\n"), "the command at the third one")
        equal([one["adopted"] for one in cluster.look("history").values()], [epoch + 1], "epoch")
        for node in cluster.nodes:
            eventually("it follows etcd", lambda at=node.address: not status(at)["etcd_went_back"], seconds=30)
        eventually("there is nothing more to adopt", lambda: cluster.tried("adopt")[0] == DATA, seconds=30)
        for client in (cluster.client(), cluster.client("late")):
            is_served(client)
            has_all(client)
            fill(client, b"newer")
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
        eventually("there is a controller", lambda: cluster.tried("rebalance")[0] == 0, seconds=30)

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
        fill(client)
        restore(etcd)
        see_the_backup(cluster.nodes)
        eventually("copies are adopted", lambda: is_adopted(cluster), seconds=60)
        for node in cluster.nodes:
            node.stop()
            node.start()
        is_served(cluster.client())
        client = cluster.client()
        has_all(client)


@suite.test
def f6_collections_that_the_backup_lacks_stay_although_all_nodes_start_again(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()

        def settee(*words):
            done = finished([binary(), *words, "--connect", cluster.nodes[0].address])
            equal(done.returncode, 0, f"{' '.join(words)} ({done.stderr.strip()})")
            return done.stdout

        settee("collections", "create", "shop.chairs")
        backup = keep(etcd)
        eventually("there is a controller", lambda: cluster.tried("status")[0] == 0, seconds=30)
        cluster.make_bucket("late")
        for name in ("tables", "lamps"):
            settee("collections", "create", f"shop.{name}")
        for key in KEYS[:20]:
            settee("set", key.decode(), "stays", "--collection", "shop.tables")
        for node in cluster.nodes:
            node.stop()
        restore(etcd, backup)
        for node in cluster.nodes:
            node.start()
        see_the_backup(cluster.nodes)
        eventually("copies are adopted", lambda: is_adopted(cluster), seconds=60)
        is_served(cluster.client())
        # Changes that follow drop nothing, and are taken everywhere.
        for name in ("desks", "sofas", "beds"):
            settee("collections", "create", f"shop.{name}")
        names = ["_default", "_mobile", "_query", "beds", "chairs", "desks", "lamps", "sofas", "tables"]
        for node in cluster.nodes:
            eventually("its collections are those", lambda at=node: equal(collections(at)[1], names, "names") or True, seconds=20)
        for key in KEYS[:20]:
            equal(settee("get", key.decode(), "--collection", "shop.tables"), "stays", "value")


@suite.test
def f6_collections_stay_and_users_are_as_in_the_backup_where_a_restore_is_not_seen(_):
    with Etcd() as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        ana = "/settings/rbac/users/local/ana"
        must(cluster.nodes[0], "PUT", ana, password="of-backup", roles="admin")
        backup = keep(etcd)
        eventually("there is a controller", lambda: cluster.tried("status")[0] == 0, seconds=30)
        must(cluster.nodes[0], "PUT", ana, password="too-new", roles="admin")
        must(cluster.nodes[1], "POST", "/pools/default/buckets/default/scopes", name="shop")
        must(cluster.nodes[1], "POST", "/pools/default/buckets/default/scopes/shop/collections", name="tables")
        before, newest = collections(cluster.nodes[2]), etcd.revision()
        # No controller has written anything since the backup. Nodes see no older revision, and must read everything again,
        # as after `etcdutl snapshot restore --bump-revision N --mark-compacted`.
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGSTOP)
        restore(etcd, backup)
        while etcd.revision() <= newest:
            etcd.put("/other", "")
        etcd.put("/other", "")
        etcd.call("/v3/kv/compaction", {"revision": etcd.revision()})
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGCONT)

        def logs_in(node, password):
            try:
                return bool(Connection(node.kv).login("ana", password, bucket=None))
            except AssertionError:
                return False

        for node in cluster.nodes:
            eventually("its users are of the backup", lambda at=node: logs_in(at, "of-backup"), seconds=30)
            equal(logs_in(node, "too-new"), False, "password")
        must(cluster.nodes[0], "POST", "/pools/default/buckets/default/scopes/shop/collections", name="lamps")
        for node in cluster.nodes:
            is_there = lambda at=node: set(collections(at)[1]) == {*before[1], "lamps"}  # noqa: E731
            eventually("it has all collections", is_there, seconds=20)
        is_served(cluster.client())
        equal([status(node.address)["etcd_went_back"] for node in cluster.nodes], [False] * 3, "restores that are seen")
