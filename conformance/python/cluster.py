"""The Couchbase Python SDK, unmodified, at a cluster of three nodes: nothing but seed nodes is configured."""

import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from cluster import Cluster as Nodes, member_of
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import DurabilitySyncWriteAmbiguousException
from couchbase.management.buckets import CreateBucketSettings
from couchbase.options import ClusterOptions, UpsertOptions
from etcd import Etcd
from harness import Suite, equal, eventually

suite = Suite("cluster-sdk")

# For so long a new controller fails nothing over.
SETTLE_SECONDS = 30
# How long an operation is tried: longer than a failover.
PATIENCE = timedelta(seconds=20)
KEYS = [f"doc-{number}" for number in range(200)]
DURABLE = UpsertOptions(durability=ServerDurability(Durability.MAJORITY), timeout=PATIENCE)


def connected(nodes):
    seeds = ",".join(f"127.0.0.1:{node.kv}" for node in nodes)
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


@suite.test
def an_sdk_goes_through_a_rebalance_and_a_failover():
    with Etcd() as etcd, Nodes(etcd, "sdk") as nodes:
        started = time.monotonic()
        cluster = connected(nodes.nodes)
        cluster.buckets().create_bucket(CreateBucketSettings(name="another", ram_quota_mb=100, num_replicas=1))
        cluster.buckets().drop_bucket("another")
        nodes.make_bucket(replicas=2)
        bucket = cluster.bucket("default")
        collections = bucket.collections()
        collections.create_scope("shop")
        collections.create_collection("shop", "chairs")
        chairs = bucket.scope("shop").collection("chairs")
        eventually("the collection is there", lambda: chairs.upsert("first", {}), seconds=30)
        write_all(chairs, {"round": 0})
        fourth = member_of(etcd, "sdk", "d")
        nodes.nodes.append(fourth)
        fourth.start()
        eventually("it is known", lambda: len(nodes.states()) == 4, seconds=30)
        nodes.order("rebalance")
        eventually("a move began", lambda: moving(nodes), seconds=30)
        rounds = 0
        while moving(nodes) or rounds == 0:
            rounds += 1
            write_all(chairs, {"round": rounds})
            equal(values(chairs), [{"round": rounds}] * len(KEYS), "values")
        while time.monotonic() < started + SETTLE_SECONDS:
            write_all(chairs, {"round": rounds})
        killed = nodes.nodes[1]
        killed.kill()
        # What is under way at the dead node may be told as canceled, or as ambiguous.
        for key in KEYS:
            eventually(f"{key} is written", lambda key=key: chairs.upsert(key, {"after": "kill"}, DURABLE), seconds=40)
        equal(values(chairs), [{"after": "kill"}] * len(KEYS), "values")
        killed.start()
        eventually("it came back", lambda: "failed" not in nodes.states(), seconds=30)
        write_all(chairs, {"after": "return"})
        equal(values(chairs), [{"after": "return"}] * len(KEYS), "values")
        cluster.close()


def moving(nodes):
    chunks = nodes.look("buckets/").values()
    rows = (row for chunk in chunks if isinstance(chunk, list) for row in chunk)
    orders = nodes.look("orders").values()
    return any("move" in row for row in rows) or any(one.get("rebalance") == "running" for one in orders)


if __name__ == "__main__":
    suite.main()
