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
from couchbase.exceptions import (
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    CollectionAlreadyExistsException,
    ScopeNotFoundException,
    UserNotFoundException,
)
from couchbase.management.buckets import BucketSettings, CreateBucketSettings
from couchbase.management.users import Role, User
from couchbase.options import ClusterOptions, MutateInOptions, UpsertOptions
from harness import Suite, equal, eventually, raises
from mcbp import VBUCKETS
from pair import Pair, caught_up, promote, stats

suite = Suite("replica-sdk")


@suite.test
def an_sdk_reads_replicas_writes_durably_and_finds_the_promoted_node():
    with Pair() as pair:
        eventually("they met", lambda: stats(pair.active, "replication")["role"] == "active")
        eventually("all streams are open", lambda: stats(pair.replica, "replication")["streams"] == str(VBUCKETS), 60)
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


@suite.test
def management_at_either_node_is_the_active_nodes():
    """The SDK's managers send to any node of the map; a client that knows the replica alone to begin with."""
    with Pair() as pair:
        pair.streams()
        options = ClusterOptions(PasswordAuthenticator("Administrator", "password"))
        clusters = [Cluster(node.connection_string, options) for node in (pair.replica, pair.active)]
        for cluster in clusters:
            cluster.wait_until_ready(timedelta(seconds=30))
        # Each call several times: the SDK takes the nodes in turn.
        for number in range(4):
            cluster = clusters[number % 2]
            buckets, users = cluster.buckets(), cluster.users()
            name = f"toys{number}"
            settings = CreateBucketSettings(name=name, ram_quota_mb=100, num_replicas=0)
            buckets.create_bucket(settings)
            raises(BucketAlreadyExistsException, lambda b=buckets, s=settings: b.create_bucket(s))
            buckets.update_bucket(BucketSettings(name=name, max_expiry=timedelta(seconds=60 + number)))
            for one in clusters:
                equal(one.buckets().get_bucket(name).max_expiry, timedelta(seconds=60 + number))
                assert name in [bucket.name for bucket in one.buckets().get_all_buckets()]
            collections = cluster.bucket("default").collections()
            scope = f"scope{number}"
            collections.create_scope(scope)
            collections.create_collection(scope, "c")
            taken = lambda c=collections, s=scope: c.create_collection(s, "c")
            raises(CollectionAlreadyExistsException, taken)
            raises(ScopeNotFoundException, lambda c=collections: c.create_collection("nope", "c"))
            user = f"ana{number}"
            users.upsert_user(User(user, password="secret", roles=[Role("data_reader", bucket="default")]))
            for one in clusters:
                equal(one.users().get_user(user).user.username, user)
            users.drop_user(user)
            raises(UserNotFoundException, lambda u=users, n=user: u.get_user(n))
            collections.drop_scope(scope)
            buckets.drop_bucket(name)
            raises(BucketDoesNotExistException, lambda b=buckets, n=name: b.drop_bucket(n))
        for cluster in clusters:
            cluster.close()


def log_in(node, user, password):
    """A connected cluster of a user, who reads; raises if it may not come in."""
    cluster = Cluster(node.connection_string, ClusterOptions(PasswordAuthenticator(user, password)))
    try:
        cluster.wait_until_ready(timedelta(seconds=2))
        cluster.bucket("default").default_collection().exists("none")
        return cluster
    except BaseException:
        cluster.close()
        raise


@suite.test
def users_of_the_active_node_log_in_at_its_replica():
    """With SCRAM, as the SDK does; also after a kill of the active node and a promotion."""
    with Pair() as pair:
        pair.streams()
        admin = Cluster(pair.active.connection_string, ClusterOptions(PasswordAuthenticator("Administrator", "password")))
        admin.wait_until_ready(timedelta(seconds=30))
        users = admin.users()
        for name in ("ana", "ben"):
            users.upsert_user(User(name, password="secret", roles=[Role("data_reader", bucket="default")]))
        for name in ("ana", "ben"):
            eventually(f"{name} logs in at the replica", lambda n=name: log_in(pair.replica, n, "secret").close() is None)
        users.drop_user("ben")
        users.upsert_user(User("ana", password="sesame", roles=[Role("data_writer", bucket="default"), Role("data_reader", bucket="default")]))
        eventually("ana has another password", lambda: log_in(pair.replica, "ana", "sesame").close() is None)
        admin.close()
        pair.active.kill()
        promote(pair.replica)
        cluster = log_in(pair.replica, "ana", "sesame")
        cluster.bucket("default").default_collection().upsert("written", {})
        cluster.close()
        for name, password in (("ana", "secret"), ("ben", "secret")):
            raises(Exception, lambda n=name, p=password: log_in(pair.replica, n, p))


if __name__ == "__main__":
    suite.main()
