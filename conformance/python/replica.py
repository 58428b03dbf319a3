"""The Couchbase Python SDK, unmodified, against a pair of nodes: reads of the replica, durable
writes, and the replica taking the place of the active node.
"""

import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import couchbase.subdocument as SD
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.options import ClusterOptions, MutateInOptions, UpsertOptions
from harness import Suite, equal, eventually
from pair import Pair, caught_up, promote, stats

suite = Suite("replica-sdk")


@suite.test
def an_sdk_reads_replicas_writes_durably_and_finds_the_promoted_node():
    with Pair() as pair:
        eventually("they met", lambda: stats(pair.active, "replication")["role"] == "active")
        eventually("all streams are open", lambda: stats(pair.replica, "replication")["streams"] == "1024", 60)
        options = ClusterOptions(PasswordAuthenticator("Administrator", "password"))
        cluster = Cluster(pair.active.connection_string, options)
        cluster.wait_until_ready(timedelta(seconds=30))
        collection = cluster.bucket("default").default_collection()
        keys = [f"doc-{number}" for number in range(50)]
        for key in keys:
            collection.upsert(key, {"key": key})
        caught_up(pair.active, pair.replica)
        for key in keys[:5]:
            both = [(got.is_replica, got.content_as[dict]) for got in collection.get_all_replicas(key)]
            equal(sorted(both, key=str), [(False, {"key": key}), (True, {"key": key})], "both copies")
            equal(collection.get_any_replica(key).content_as[dict], {"key": key}, "any copy")
        durable = UpsertOptions(durability=ServerDurability(Durability.PERSIST_TO_MAJORITY))
        for key in keys:
            collection.upsert(key, {"key": key, "durable": True}, durable)
        level = MutateInOptions(durability=ServerDurability(Durability.PERSIST_TO_MAJORITY))
        beside = (SD.upsert("beside", [1], xattr=True), SD.upsert("_hidden", {}, xattr=True))
        for key in keys[:5]:
            collection.mutate_in(key, beside, level)
        caught_up(pair.active, pair.replica)
        paths = (SD.get("beside", xattr=True), SD.get("durable"))
        found = list(collection.lookup_in_all_replicas(keys[0], paths))
        copies = [(one.is_replica, one.content_as[list](0), one.content_as[bool](1)) for one in found]
        equal(sorted(copies), [(False, [1], True), (True, [1], True)], "both copies of an attribute")
        pair.active.kill()
        promote(pair.replica)
        eventually("the SDK writes to the promoted node", lambda: collection.upsert("after", {}), 60)
        for key in keys:
            equal(collection.get(key).content_as[dict], {"key": key, "durable": True}, "a durable write")
        for key in keys[:5]:
            found = collection.lookup_in(key, (SD.get("$XTOC", xattr=True),))
            equal(found.content_as[list](0), ["beside", "_hidden"], "attributes after the promotion")
        cluster.close()


if __name__ == "__main__":
    suite.main()
