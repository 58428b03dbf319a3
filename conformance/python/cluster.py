"""Unmodified SDKs and readers of change streams at a cluster of three nodes: nothing but seed nodes is configured.

The Python SDK works here; those of other languages, and readers of change streams, are programs that go on all the time
(`lib/followers.py`). Bucket `default` has two replicas, `pair` has one.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import json

from cluster import member_of
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import DocumentNotFoundException, DurabilitySyncWriteAmbiguousException
from couchbase.management.buckets import CreateBucketSettings
from couchbase.options import ClusterOptions, UpsertOptions
from etcd import Etcd
from followers import Follower
from harness import Suite, equal, eventually, raises
from links import LinkedCluster

suite = Suite("cluster-sdk")

# How long an operation is tried: longer than a failover.
PATIENCE = timedelta(seconds=20)
# Moves, and rounds of all clients, on a machine that does much else.
MOVES_SECONDS = 60
KEYS = [f"doc-{number}" for number in range(100)]
DURABLE = UpsertOptions(durability=ServerDurability(Durability.MAJORITY), timeout=PATIENCE)
BUCKETS = {"default": 2, "pair": 1}
WRITERS, READERS = ("go", "node", "java"), ("dcp-go", "dcp-java")


def connected(ports):
    seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
    cluster = Cluster(f"couchbase://{seeds}", ClusterOptions(PasswordAuthenticator("Administrator", "password")))
    cluster.wait_until_ready(timedelta(seconds=30))
    return cluster


def write_all(collection, value):
    for key in KEYS:
        try:
            collection.upsert(key, value, DURABLE)
        except DurabilitySyncWriteAmbiguousException:
            # It was under way when its vBucket moved. Once more: the new active copy has decided it by then.
            collection.upsert(key, value, DURABLE)


def values(collection):
    return [collection.get(key).content_as[dict] for key in KEYS]


class World:
    """The cluster, and the clients that follow it through all stories."""

    def __init__(self):
        self.etcd = Etcd().start()
        self.nodes = LinkedCluster(self.etcd, "sdk").__enter__()
        self.cluster = connected(self.nodes.ports)
        self.writers, self.readers, self.chairs = [], [], None
        self.round = 0

    def follow(self):
        """Starts all clients."""
        for bucket, replicas in BUCKETS.items():
            self.nodes.make_bucket(bucket, replicas)
        seeds = ",".join(f"127.0.0.1:{port}" for port in self.nodes.ports)
        self.readers = [Follower(program, seeds, program, BUCKETS) for program in READERS]
        self.writers = [Follower(program, seeds, program, BUCKETS) for program in WRITERS]
        bucket = self.cluster.bucket("default")
        bucket.collections().create_scope("shop")
        bucket.collections().create_collection("shop", "chairs")
        self.chairs = bucket.scope("shop").collection("chairs")
        eventually("the collection is there", lambda: self.chairs.upsert("first", {}), seconds=30)
        for follower in self.writers + self.readers:
            follower.begins(MOVES_SECONDS)

    def work(self):
        """A round of the Python SDK."""
        self.round += 1
        write_all(self.chairs, {"round": self.round})
        equal(values(self.chairs), [{"round": self.round}] * len(KEYS), "values")

    def work_while_moving(self):
        eventually("a move began", self.moving, seconds=30)
        end = time.monotonic() + MOVES_SECONDS
        while self.moving():
            self.work()
            if time.monotonic() > end:
                raise AssertionError("copies still move")
        for follower in self.writers:
            follower.goes_on(1, MOVES_SECONDS)

    def moving(self):
        chunks = self.nodes.look("buckets/").values()
        rows = (row for chunk in chunks if isinstance(chunk, list) for row in chunk)
        orders = self.nodes.look("orders").values()
        return any("move" in row for row in rows) or any(one.get("rebalance") == "running" for one in orders)

    def whole(self):
        """Whether each vBucket has all of its copies."""
        for bucket in BUCKETS:
            client = self.nodes.client(bucket)
            client.refresh()
            if any(None in row for row in client.rows()):
                return False
        return True

    def pair(self):
        return self.cluster.bucket("pair").default_collection()

    def write_what_is_lost(self):
        """Writes at the second node that no other node gets and every reader does; returns the keys."""
        client = self.nodes.client("pair")
        client.refresh()
        named = (f"lost-{number}" for number in range(1000))
        keys = {key for key in named if client.row(key.encode())[0] == self.nodes.ports[1]}
        for other in "acd":
            self.nodes.links.cut("b", other)
        for key in keys:
            self.pair().upsert(key, {})
        for reader in self.readers:
            eventually(f"{reader.name} has them", lambda reader=reader: keys <= set(self.shown(reader, "pair")["documents"]))
        return keys

    def shown(self, reader, bucket):
        """What a reader came to; it must be well."""
        shown = reader.show()[bucket]
        reader.well()
        return shown

    def written(self, bucket):
        """All documents of the writers, as the Python SDK reads them."""
        collection = self.cluster.bucket(bucket).default_collection()
        keys = [f"{name}-{number}" for name in WRITERS for number in range(25)]
        return {key: collection.get(key).content_as[dict] for key in keys}

    def close(self):
        for follower in self.writers + self.readers:
            follower.process.kill()
        self.nodes.__exit__()
        self.etcd.close()


@suite.test
def buckets_and_collections_are_made_and_all_clients_work(world):
    world.cluster.buckets().create_bucket(CreateBucketSettings(name="another", ram_quota_mb=100, num_replicas=1))
    world.cluster.buckets().drop_bucket("another")
    world.follow()
    world.work()


@suite.test
def no_client_sees_copies_move_to_a_node_that_comes(world):
    fourth = member_of(world.etcd, "sdk", "d")
    world.nodes.nodes.append(fourth)
    world.nodes.links.nodes["d"] = fourth
    fourth.start()
    eventually("it is known", lambda: len(world.nodes.states()) == 4, seconds=30)
    world.nodes.order("rebalance")
    world.work_while_moving()
    for reader in world.readers:
        for bucket in BUCKETS:
            shown = world.shown(reader, bucket)
            # A stream ends where its vBucket leaves, and goes on elsewhere from where it was.
            equal({reason.lower().replace("_", " ") for reason in shown["ends"]}, {"state changed"}, "ends")
            equal(shown["rollbacks"], 0, "rollbacks")


@suite.test
def all_clients_go_on_when_a_node_dies(world):
    for writer in world.writers:
        writer.tell("storm")
    lost = world.write_what_is_lost()
    world.nodes.nodes[1].kill()
    # What is under way at the dead node may be told as canceled, or as ambiguous.
    for key in KEYS:
        eventually(f"{key} is written", lambda key=key: world.chairs.upsert(key, {"after": "kill"}, DURABLE), seconds=40)
    equal(values(world.chairs), [{"after": "kill"}] * len(KEYS), "values")
    for writer in world.writers:
        writer.goes_on(1, MOVES_SECONDS)
    world.nodes.links.heal()
    for key in lost:
        raises(DocumentNotFoundException, lambda key=key: world.pair().get(key))
    for reader in world.readers:
        # What the dead node alone had is taken back.
        eventually("it rolled back", lambda reader=reader: world.shown(reader, "pair")["rollbacks"] > 0, seconds=30)
        equal(lost & set(world.shown(reader, "pair")["documents"]), set(), "what was lost")


@suite.test
def all_clients_go_on_when_it_comes_back(world):
    world.nodes.nodes[1].start()
    eventually("it came back", lambda: world.nodes.states()[1] == "new", seconds=30)
    world.nodes.order("recover", "b")
    eventually("all copies are there", world.whole, seconds=MOVES_SECONDS)
    for writer in world.writers:
        writer.tell("calm")
        writer.goes_on(1, MOVES_SECONDS)
    world.work()


@suite.test
def no_client_sees_a_node_drained(world):
    world.nodes.order("drain", "d")
    world.work_while_moving()


@suite.test
def readers_of_changes_have_every_document_as_it_is(world):
    for writer in world.writers:
        writer.stop()
        print(f"     {writer.name}: {writer.rounds} rounds, {len(writer.ambiguous)} writes told as ambiguous")
    for bucket in BUCKETS:
        written = world.written(bucket)
        for reader in world.readers:

            def same():
                documents = world.shown(reader, bucket)["documents"]
                told = {key: json.loads(value) for key, value in documents.items() if key in written}
                differ = {key: (told.get(key), value) for key, value in written.items() if told.get(key) != value}
                if differ:
                    raise AssertionError(f"{len(differ)} documents differ, such as {next(iter(differ.items()))}")
                return True

            eventually(f"{reader.name} has all of {bucket}", same, seconds=30, pause=0.2)
            shown = world.shown(reader, bucket)
            print(f"     {reader.name} of {bucket}: {shown['ends']}, {shown['rollbacks']} rollbacks")


if __name__ == "__main__":
    suite.main(World())
