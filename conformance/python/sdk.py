"""The Couchbase Python SDK, unmodified, against a node: documents, errors, and a restart underneath."""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import couchbase.subdocument as SD
from couchbase.auth import CertificateAuthenticator, PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.diagnostics import ClusterState, PingState, ServiceType
from couchbase.durability import (
    ClientDurability,
    DurabilityLevel,
    PersistToExtended,
    ReplicateTo,
    ServerDurability,
)
from couchbase.exceptions import (
    AmbiguousTimeoutException,
    AuthenticationException,
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    BucketNotFlushableException,
    BucketNotFoundException,
    CasMismatchException,
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    CouchbaseException,
    DeltaInvalidException,
    DocumentExistsException,
    DocumentLockedException,
    DocumentNotFoundException,
    DurabilityImpossibleException,
    GroupNotFoundException,
    InvalidArgumentException,
    PathExistsException,
    PathMismatchException,
    PathNotFoundException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
    TimeoutException,
    UnAmbiguousTimeoutException,
    UserNotFoundException,
)
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.management.buckets import (
    BucketSettings,
    CompressionMode,
    CreateBucketSettings,
    EvictionPolicyType,
)
from couchbase.management.collections import CreateCollectionSettings, UpdateCollectionSettings
from couchbase.management.users import Group, Role, User
from couchbase.mutation_state import MutationState
from couchbase.options import (
    ClusterOptions,
    ClusterTimeoutOptions,
    DecrementOptions,
    GetOptions,
    IncrementOptions,
    MutateInOptions,
    PingOptions,
    RemoveOptions,
    ReplaceOptions,
    ScanOptions,
    SignedInt64,
    UpsertOptions,
    WaitUntilReadyOptions,
)
from couchbase.subdocument import StoreSemantics
from couchbase.transcoder import RawBinaryTranscoder, RawStringTranscoder
from certificates import Authority, client_certificate
from harness import OVER_TLS, Node, Suite, equal, eventually, raises
from manage import must
from mcbp import (
    FEATURE_JSON, FEATURE_SELECT_BUCKET, FEATURE_XERROR, NO_ACCESS, SEQNO_PERSISTENCE, SET_VBUCKET, SUCCESS, Connection,
    vbucket_of,
)  # fmt: skip

suite = Suite("python")
MIB = 1024 * 1024
AUDIT_PUT = 0x27
VALUE_TOO_LARGE = 104
BINARY = RawBinaryTranscoder()
# Characters of one, two, three and four bytes each in UTF-8.
UNICODE_KEY = "k\u00fcche-\u6f22\u5b57-\U0001f6cb"


class World:
    """A node and a client that is connected to it."""

    def __init__(self):
        self.node = Node().start()
        self.cluster = connect(self.node)
        self.collection = self.cluster.bucket("default").default_collection()

    def close(self):
        self.cluster.close()
        self.node.close()


def connect(node, password="password", user="Administrator"):
    return connect_as(node, PasswordAuthenticator(user, password, cert_path=node.authority))


def connect_as(node, login):
    timeouts = ClusterTimeoutOptions(
        kv_timeout=timedelta(seconds=10), bootstrap_timeout=timedelta(seconds=4)
    )
    options = ClusterOptions(login, timeout_options=timeouts)
    return Cluster.connect(node.connection_string, options)


def content(result):
    return result.content_as[dict]


@suite.test
def waits_until_ready(world):
    options = WaitUntilReadyOptions(service_types=[ServiceType.KeyValue])
    world.cluster.wait_until_ready(timedelta(seconds=10), options)


@suite.test
def writes_and_reads(world):
    written = world.collection.upsert("crud", {"a": 1})
    read = world.collection.get("crud")
    equal(content(read), {"a": 1})
    equal(read.cas, written.cas, "CAS")
    token = written.mutation_token()
    equal(token.bucket_name, "default", "bucket of the mutation token")
    replaced = world.collection.replace("crud", {"a": 2})
    assert replaced.cas > written.cas, "the CAS grows"
    assert replaced.mutation_token().sequence_number > token.sequence_number, "the seqno grows"
    world.collection.remove("crud")
    raises(DocumentNotFoundException, lambda: world.collection.get("crud"))


@suite.test
def inserts_once(world):
    world.collection.insert("insert", {"n": 1})
    raises(DocumentExistsException, lambda: world.collection.insert("insert", {"n": 2}))
    equal(content(world.collection.get("insert")), {"n": 1})
    world.collection.remove("insert")
    world.collection.insert("insert", {"n": 3})


@suite.test
def refuses_what_is_missing(world):
    c = world.collection
    for call in (
        lambda: c.get("missing"),
        lambda: c.replace("missing", {}),
        lambda: c.remove("missing"),
        lambda: c.touch("missing", timedelta(seconds=5)),
        lambda: c.get_and_lock("missing", timedelta(seconds=5)),
        lambda: c.binary().append("missing", b"x"),
    ):
        raises(DocumentNotFoundException, call)


@suite.test
def tells_a_cas_conflict(world):
    old = world.collection.upsert("cas", {"n": 1}).cas
    new = world.collection.upsert("cas", {"n": 2}).cas
    stale = ReplaceOptions(cas=old)
    raises(CasMismatchException, lambda: world.collection.replace("cas", {"n": 3}, stale))
    raises(CasMismatchException, lambda: world.collection.remove("cas", RemoveOptions(cas=old)))
    world.collection.replace("cas", {"n": 3}, ReplaceOptions(cas=new))
    equal(content(world.collection.get("cas")), {"n": 3})


@suite.test
def expires_documents(world):
    c = world.collection

    def gone(key):
        try:
            c.get(key)
        except DocumentNotFoundException:
            return True
        return False

    written = time.monotonic()
    c.upsert("expiry", {"n": 1}, UpsertOptions(expiry=timedelta(seconds=1)))
    c.upsert("touched", {"n": 1})
    c.touch("touched", timedelta(seconds=1))
    c.upsert("got-and-touched", {"n": 1})
    equal(content(c.get_and_touch("got-and-touched", timedelta(seconds=1))), {"n": 1})
    c.upsert("saved", {"n": 1}, UpsertOptions(expiry=timedelta(seconds=1)))
    c.touch("saved", timedelta(0))
    for key in ("expiry", "touched", "got-and-touched"):
        eventually(f"{key} expires", lambda key=key: gone(key), seconds=6)
        equal(c.exists(key).exists, False, f"exists {key}")
        lived = time.monotonic() - written
        assert lived >= 1, f"{key} lived for {lived} s"
    equal(content(c.get("saved")), {"n": 1})
    c.insert("expiry", {"n": 2})


@suite.test
def preserves_the_expiry(world):
    c = world.collection
    c.upsert("preserve", {"n": 1}, UpsertOptions(expiry=timedelta(seconds=2)))
    c.upsert("preserve", {"n": 2}, UpsertOptions(preserve_expiry=True))
    equal(content(c.get("preserve")), {"n": 2})
    c.upsert("cleared", {"n": 1}, UpsertOptions(expiry=timedelta(seconds=2)))
    c.upsert("cleared", {"n": 2})
    eventually("the kept expiry comes", lambda: not c.exists("preserve").exists, seconds=7)
    equal(content(c.get("cleared")), {"n": 2})


@suite.test
def locks_documents(world):
    c = world.collection
    c.upsert("lock", {"n": 1})
    locked = c.get_and_lock("lock", timedelta(seconds=10))
    equal(content(locked), {"n": 1})
    short = timedelta(milliseconds=300)
    blocked = (DocumentLockedException, TimeoutException)
    raises(blocked, lambda: c.upsert("lock", {"n": 2}, UpsertOptions(timeout=short)))
    raises(blocked, lambda: c.get_and_lock("lock", timedelta(seconds=1), timeout=short))
    equal(content(c.get("lock")), {"n": 1})
    c.unlock("lock", locked.cas)
    c.upsert("lock", {"n": 2})
    again = c.get_and_lock("lock", timedelta(seconds=10))
    c.replace("lock", {"n": 3}, ReplaceOptions(cas=again.cas))
    c.upsert("lock", {"n": 4})


@suite.test
def counts(world):
    binary = world.collection.binary()
    raises(
        DocumentNotFoundException,
        lambda: binary.increment("counter", IncrementOptions(initial=SignedInt64(-1))),
    )
    equal(binary.increment("counter", IncrementOptions(initial=SignedInt64(10))).content, 10)
    equal(binary.increment("counter").content, 11)
    equal(binary.decrement("counter", DecrementOptions()).content, 10)
    for _ in range(12):
        last = binary.decrement("counter").content
    equal(last, 0, "a counter does not fall below zero")
    equal(world.collection.get("counter").content_as[int], 0)
    world.collection.upsert("no-counter", {"n": 1})
    raises(DeltaInvalidException, lambda: binary.increment("no-counter"))


@suite.test
def appends_and_prepends(world):
    c = world.collection
    raw = UpsertOptions(transcoder=RawStringTranscoder())
    c.upsert("append", "middle", raw)
    c.binary().append("append", b" end")
    c.binary().prepend("append", b"start ")
    got = c.get("append", GetOptions(transcoder=RawStringTranscoder()))
    equal(got.content_as[str], "start middle end")


@suite.test
def tells_existence(world):
    c = world.collection
    equal(c.exists("existence").exists, False)
    cas = c.upsert("existence", {}).cas
    found = c.exists("existence")
    equal((found.exists, found.cas), (True, cas))
    c.remove("existence")
    equal(c.exists("existence").exists, False, "a tombstone does not exist")


@suite.test
def waits_for_persistence(world):
    active = ClientDurability(ReplicateTo.NONE, PersistToExtended.ACTIVE)
    world.collection.upsert("durable", {"n": 1}, UpsertOptions(durability=active))
    world.collection.remove("durable", RemoveOptions(durability=active))


LEVELS = (
    DurabilityLevel.MAJORITY,
    DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
    DurabilityLevel.PERSIST_TO_MAJORITY,
)


@suite.test
def reads_parts_of_documents(world):
    c = world.collection
    tags = ["new", "x,]}"]
    document = {"name": "Ana", "address": {"city": "Lyon", "zip": 69001}, "tags": tags}
    c.upsert("parts", document, UpsertOptions(expiry=timedelta(hours=1)))
    found = c.lookup_in(
        "parts",
        (SD.get("address.city"), SD.get("tags[-1]"), SD.exists("name"), SD.exists("nope"),
         SD.count("tags"), SD.get_full()),
    )  # fmt: skip
    equal(found.content_as[str](0), "Lyon")
    equal(found.content_as[str](1), "x,]}")
    equal([found.exists(2), found.exists(3)], [True, False])
    equal(c.lookup_in("parts", (SD.get("tags.[1]"),)).content_as[str](0), "x,]}")
    equal(found.content_as[int](4), 2)
    equal(found.content_as[dict](5), document)
    raises(PathNotFoundException, lambda: c.lookup_in("parts", (SD.get("a.b"),)).content_as[str](0))
    raises(
        PathMismatchException, lambda: c.lookup_in("parts", (SD.get("name.x"),)).content_as[str](0)
    )
    raises(DocumentNotFoundException, lambda: c.lookup_in("no-parts", (SD.get("a"),)))
    # What the SDK makes of lookups: a projection, and the expiry of a document.
    equal(content(c.get("parts", GetOptions(project=["address.city", "tags"]))),
          {"address": {"city": "Lyon"}, "tags": tags})  # fmt: skip
    left = c.get("parts", GetOptions(with_expiry=True)).expiryTime.timestamp() - time.time()
    assert 3500 < left < 3700, left
    attribute = c.lookup_in("parts", (SD.get("$document", xattr=True),)).content_as[dict](0)
    equal(attribute["datatype"], ["json"])
    equal(attribute["deleted"], False)


@suite.test
def attributes_lie_beside_documents(world):
    c = world.collection
    name, hidden = "tags", "_hidden"
    c.upsert("attributed", {"n": 1})
    changed = c.mutate_in(
        "attributed",
        (SD.upsert(name + ".a", [1], xattr=True, create_parents=True),
         SD.insert(hidden, {"b": "c"}, xattr=True), SD.increment("n", 1)),
    )  # fmt: skip
    equal(changed.content_as[int](2), 2)
    stamp = SD.upsert("tags.cas", SD.MutationMacro("${Mutation.CAS}"), xattr=True)
    stamped = c.mutate_in("attributed", (stamp,))
    found = c.get("attributed")
    equal((content(found), found.cas), ({"n": 2}, stamped.cas))
    in_reverse = stamped.cas.to_bytes(8, "little").hex()

    def attributes():
        paths = (SD.get("tags.cas", xattr=True), SD.get(hidden, xattr=True),
                 SD.get("$XTOC", xattr=True), SD.get("$document", xattr=True))  # fmt: skip
        found = c.lookup_in("attributed", paths)
        equal(found.content_as[str](0), "0x" + in_reverse)
        equal(found.content_as[dict](1), {"b": "c"})
        equal(found.content_as[list](2), [name, hidden])
        return found.content_as[dict](3)

    equal(attributes()["value_bytes"], len(b'{"n": 2}'))
    dotted = c.lookup_in("attributed", (SD.get("tags.a.[0]", xattr=True),))
    equal(dotted.content_as[int](0), 1)
    # Whatever happens to the body, they stay.
    c.upsert("attributed", 41)
    c.binary().increment("attributed")
    c.binary().append("attributed", " ")
    c.touch("attributed", timedelta(hours=1))
    equal(c.get("attributed").content_as[int], 42)
    equal(attributes()["datatype"], ["json", "xattr"])
    # Of a deleted document those of users go.
    c.remove("attributed")
    raises(DocumentNotFoundException, lambda: c.lookup_in("attributed", (SD.get("n"),)))
    c.upsert("attributed", {})
    raises(PathNotFoundException,
           lambda: c.lookup_in("attributed", (SD.get(name, xattr=True),)).content_as[dict](0))  # fmt: skip


@suite.test
def changes_parts_of_documents(world):
    c = world.collection
    c.upsert("parts", {"n": 1, "tags": ["a"]})
    before = c.get("parts").cas
    changed = c.mutate_in(
        "parts",
        (SD.upsert("address.city", "Lyon", create_parents=True), SD.increment("n", 41),
         SD.array_append("tags", "b", "c"), SD.array_prepend("tags", 0),
         SD.array_insert("tags[1]", None), SD.array_addunique("tags", "d"),
         SD.insert("new", [1]), SD.replace("new", {}), SD.remove("new")),
    )  # fmt: skip
    equal(changed.content_as[int](1), 42)
    expected = {"n": 42, "tags": [0, None, "a", "b", "c", "d"], "address": {"city": "Lyon"}}
    equal(content(c.get("parts")), expected)
    # All of it or nothing.
    raises(
        PathExistsException,
        lambda: c.mutate_in("parts", (SD.upsert("n", 0), SD.insert("tags", 1))),
    )
    raises(PathNotFoundException, lambda: c.mutate_in("parts", (SD.replace("nope", 1),)))
    raises(PathMismatchException, lambda: c.mutate_in("parts", (SD.array_append("n", 1),)))
    raises(CasMismatchException,
           lambda: c.mutate_in("parts", (SD.upsert("n", 0),), MutateInOptions(cas=before)))  # fmt: skip
    equal(content(c.get("parts")), expected)
    # Documents that are not there.
    raises(DocumentNotFoundException, lambda: c.mutate_in("made", (SD.upsert("a", 1),)))
    made = MutateInOptions(store_semantics=StoreSemantics.UPSERT)
    c.mutate_in("made", (SD.upsert("a.b", 1),), made)
    equal(content(c.get("made")), {"a": {"b": 1}})
    added = MutateInOptions(store_semantics=StoreSemantics.INSERT)
    raises(DocumentExistsException, lambda: c.mutate_in("made", (SD.upsert("a", 1),), added))
    # An expiry that is not said is taken away, unless it is to be kept.
    c.upsert("made", {}, UpsertOptions(expiry=timedelta(hours=1)))
    c.mutate_in("made", (SD.upsert("a", 1),), MutateInOptions(preserve_expiry=True))
    assert c.get("made", GetOptions(with_expiry=True)).expiryTime
    c.mutate_in("made", (SD.upsert("a", 1),))
    assert not c.get("made", GetOptions(with_expiry=True)).expiryTime
    durable = MutateInOptions(durability=ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY))
    equal(c.mutate_in("made", (SD.increment("n", 2),), durable).content_as[int](0), 2)


@suite.test
def changes_parts_beside_others(world):
    """Eight threads count in one document; nothing is lost."""
    c = world.collection
    c.upsert("crowd", {"n": 0})

    def count(worker):
        for _ in range(25):
            by = SD.array_append("by", worker, create_parents=True)
            c.mutate_in("crowd", (SD.increment("n", 1), by))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    crowd = content(c.get("crowd"))
    equal(crowd["n"], 200)
    equal(sorted(crowd["by"]), sorted(list(range(8)) * 25))


@suite.test
def writes_durably_at_each_level(world):
    c = world.collection
    for level in LEVELS:
        durability = ServerDurability(level)
        key = f"sync-{level.name}"
        first = c.upsert(key, {"n": 1}, UpsertOptions(durability=durability))
        equal(c.get(key).cas, first.cas, "the CAS of the answer is that of the document")
        second = c.replace(key, {"n": 2}, ReplaceOptions(cas=first.cas, durability=durability))
        assert second.mutation_token().sequence_number > first.mutation_token().sequence_number
        raises(
            CasMismatchException,
            lambda: c.replace(key, {"n": 3}, ReplaceOptions(cas=first.cas, durability=durability)),
        )
        equal(content(c.get(key)), {"n": 2}, level.name)
        c.remove(key, RemoveOptions(durability=durability))
        raises(DocumentNotFoundException, lambda: c.get(key))


def chain_of(node, key, chain):
    """Tells the vBucket of a key which nodes it has, as a cluster manager does; `null` is one that is missing."""
    connection = Connection(node.kv)
    connection.hello(FEATURE_JSON, FEATURE_XERROR, FEATURE_SELECT_BUCKET)
    connection.login()
    topology = json.dumps({"topology": [chain]}).encode()
    told = connection.call(SET_VBUCKET, b"", b"\1", topology, vbucket=vbucket_of(key), datatype=1)
    equal(told.status, SUCCESS, "SET_VBUCKET")
    connection.close()


@suite.test
def falls_back_to_the_active_node_where_the_bucket_says_so(world):
    """Where a replica is missing a durable write is impossible, unless the bucket falls back."""
    c, key, bucket = world.collection, "alone", "/pools/default/buckets/default"
    durable = UpsertOptions(durability=ServerDurability(DurabilityLevel.MAJORITY))
    chain_of(world.node, key.encode(), ["here", None])
    try:
        raises(DurabilityImpossibleException, lambda: c.upsert(key, {"n": 1}, durable))
        raises(DocumentNotFoundException, lambda: c.get(key))
        must(world.node, "POST", bucket, durabilityImpossibleFallback="fallbackToActiveAck")
        c.upsert(key, {"n": 2}, durable)
        equal(content(c.get(key)), {"n": 2})
        must(world.node, "POST", bucket, durabilityImpossibleFallback="disabled")
        raises(DurabilityImpossibleException, lambda: c.upsert(key, {"n": 3}, durable))
        equal(content(c.get(key)), {"n": 2}, "what was refused is not there")
    finally:
        must(world.node, "POST", bucket, durabilityImpossibleFallback="disabled")
        chain_of(world.node, key.encode(), ["here"])
    c.upsert(key, {"n": 4}, durable)


@suite.test
def keeps_large_documents(world):
    c = world.collection
    for size, fill in ((MIB, os.urandom), (19 * MIB, os.urandom), (19 * MIB, bytes)):
        value = fill(size)
        c.upsert("large", value, UpsertOptions(transcoder=BINARY))
        got = c.get("large", GetOptions(transcoder=BINARY)).content_as[bytes]
        assert got == value, f"{size} bytes came back changed ({len(got)} bytes)"
    c.remove("large")


@suite.test
def refuses_what_is_too_large(world):
    for value in (os.urandom(21 * MIB), bytes(21 * MIB)):
        options = UpsertOptions(transcoder=BINARY)
        error = raises(CouchbaseException, lambda v=value: world.collection.upsert("huge", v, options))
        equal(error.error_code, VALUE_TOO_LARGE, "code of the SDK's error")
    equal(content(world.collection.get("saved")), {"n": 1}, "the connection goes on")


@suite.test
def takes_long_and_unicode_keys(world):
    for key in ("k" * 250, UNICODE_KEY, "with space/and:sign\x7f"):
        world.collection.upsert(key, {"key": key})
        equal(content(world.collection.get(key)), {"key": key})
    raises(CouchbaseException, lambda: world.collection.upsert("k" * 251, {}))


@suite.test
def keeps_json_and_binary_apart(world):
    c = world.collection
    for key, value in (("text", "caf\u00e9"), ("list", [1, None, "x"]), ("number", 1.5), ("null", None)):
        c.upsert(key, value)
        equal(c.get(key).value, value, key)
    every_byte = bytes(range(256))
    c.upsert("bytes", every_byte, UpsertOptions(transcoder=BINARY))
    equal(c.get("bytes", GetOptions(transcoder=BINARY)).content_as[bytes], every_byte)
    c.upsert("empty", b"", UpsertOptions(transcoder=BINARY))
    equal(c.get("empty", GetOptions(transcoder=BINARY)).content_as[bytes], b"")


@suite.test
def writes_many_at_once(world):
    documents = {f"many-{n}": {"n": n} for n in range(500)}
    written = world.collection.upsert_multi(documents)
    assert written.all_ok, written.exceptions
    read = world.collection.get_multi(list(documents))
    assert read.all_ok, read.exceptions
    equal({key: content(result) for key, result in read.results.items()}, documents)


@suite.test
def refuses_a_wrong_password(world):
    raises(AuthenticationException, lambda: connect(world.node, "wrong"))


@suite.test
def refuses_a_wrong_bucket(world):
    other = connect(world.node)
    try:
        refused = (BucketNotFoundException, UnAmbiguousTimeoutException)
        raises(refused, lambda: other.bucket("no-such-bucket").default_collection().get("x"))
    finally:
        other.close()


@suite.test
def pings_and_diagnoses(world):
    pinged = world.cluster.ping(PingOptions(service_types=[ServiceType.KeyValue]))
    endpoints = pinged.endpoints[ServiceType.KeyValue]
    assert endpoints, "no endpoint answered"
    for endpoint in endpoints:
        equal(endpoint.state, PingState.OK)
    equal(world.cluster.diagnostics().state, ClusterState.Online)


@suite.test
def tells_about_buckets_over_http(world):
    equal([bucket.name for bucket in world.cluster.buckets().get_all_buckets()], ["default"])
    assert world.cluster.cluster_info().nodes, "cluster information names no node"


def await_persistence(node, results):
    """Waits until the node says that these writes are on disk.

    Not with the SDK's `PersistToExtended.ACTIVE`: it asks once and takes any answer.
    """
    connection = Connection(node.kv).login()
    for result in results:
        token = result.mutation_token()
        seqno = token.sequence_number.to_bytes(8, "big")
        reply = connection.call(SEQNO_PERSISTENCE, b"", seqno, vbucket=token.partition_id)
        equal(reply.status, SUCCESS, "SEQNO_PERSISTENCE")
    connection.close()


def back_after(world, end):
    """Ends the node while the client stays, and reads everything through the same client."""
    c = world.collection
    name = end.__name__
    documents = {f"{name}-{n}": {"n": n, "text": "x" * n} for n in range(50)}
    written = [c.upsert(key, value) for key, value in documents.items()]
    written.append(c.remove(f"{name}-0"))
    del documents[f"{name}-0"]
    written.append(c.mutate_in(f"{name}-1", (SD.insert("beside", {"a": 1}, xattr=True),)))
    cas = {key: c.get(key).cas for key in documents}
    await_persistence(world.node, written)
    end()
    world.node.start()
    first = next(iter(documents))
    eventually("the client is back", lambda: content(c.get(first)) == documents[first], seconds=30)
    for key, value in documents.items():
        got = c.get(key)
        equal((content(got), got.cas), (value, cas[key]), key)
    raises(DocumentNotFoundException, lambda: c.get(f"{name}-0"))
    beside = c.lookup_in(f"{name}-1", (SD.get("beside.a", xattr=True),))
    equal(beside.content_as[int](0), 1)
    newer = c.upsert(first, {"n": "after"})
    assert newer.cas > max(cas.values()), "a CAS is not used twice"
    equal(content(c.get(UNICODE_KEY)), {"key": UNICODE_KEY}, "a document of an earlier test")


def in_scope(world, scope, collection):
    return world.cluster.bucket("default").scope(scope).collection(collection)


@suite.test
def users_are_made_and_removed(world):
    """With the management calls of the SDK, which hand the reason of a refusal on."""
    manager = world.cluster.users()
    equal(manager.get_all_users(), [])
    reader = Role("data_reader", bucket="default")
    clerk = User(username="clerk", password="secret", roles=[reader])
    manager.upsert_user(clerk)
    found = manager.get_user("clerk")
    equal([role.name for role in found.user.roles], ["data_reader"])
    nobody = User(username="clerk", password="secret", roles=[Role("boss")])
    error = raises(InvalidArgumentException, lambda: manager.upsert_user(nobody))
    assert "unknown, malformed" in str(error), error
    manager.drop_user("clerk")
    raises(UserNotFoundException, lambda: manager.drop_user("clerk"))


@suite.test
def users_may_do_what_their_roles_say(world):
    """Roles of a user and of a group, down to a collection; what changes holds for open connections."""
    manager = world.cluster.users()
    make_collections(world, "office", "open", "closed")
    place = {"bucket": "default", "scope": "office"}
    reader = Role("data_reader", collection="open", **place)
    manager.upsert_group(Group(name="readers", description="They read.", roles=[reader]))
    equal(manager.get_group("readers").roles, {reader}, "roles of the group")
    equal([group.name for group in manager.get_all_groups()], ["readers"])
    assert {"admin", "data_reader"} <= {role.role.name for role in manager.get_roles()}

    ana = User(username="ana", password="secret", display_name="Ana", groups={"readers"}, roles=[])
    manager.upsert_user(ana)
    found = manager.get_user("ana")
    equal((found.user.display_name, found.user.groups), ("Ana", {"readers"}))
    equal([(one.role, one.origins[0].type) for one in found.effective_roles], [(reader, "group")])
    cluster = connect(world.node, "secret", "ana")
    office = cluster.bucket("default").scope("office")
    c = office.collection("open")
    equal(content(c.get("k")), {"in": "open"})
    raises(AuthenticationException, lambda: c.upsert("k", {}))
    short = GetOptions(timeout=timedelta(milliseconds=500))
    # The SDK asks for a collection that there is not until time is out.
    unknown = (UnAmbiguousTimeoutException, CollectionNotFoundException)
    raises(unknown, lambda: office.collection("closed").get("k", short))
    error = raises(CouchbaseException, lambda: cluster.users().get_all_users())
    assert "403" in str(error), error

    ana.roles = [Role("data_writer", collection="open", **place), Role("data_reader", **place)]
    manager.upsert_user(ana)
    c.upsert("k", {"by": "ana"})
    equal(content(office.collection("closed").get("k")), {"in": "closed"})
    cluster.users().change_password("sesame")
    raises(AuthenticationException, lambda: connect(world.node, "secret", "ana"))
    connect(world.node, "sesame", "ana").close()

    manager.drop_group("readers")
    raises(GroupNotFoundException, lambda: manager.get_group("readers"))
    manager.drop_user("ana")
    raises(UserNotFoundException, lambda: manager.get_user("ana"))
    raises((AuthenticationException, *unknown), lambda: c.get("k", short))
    cluster.close()
    world.cluster.bucket("default").collections().drop_scope("office")


@suite.test
def a_certificate_is_a_login(world):
    """Over TLS alone; the node asks for it for as long as the test lasts."""
    if not OVER_TLS:
        return
    whole_name = [{"path": "subject.cn", "prefix": "", "delimiter": ""}]

    def ask(state):
        settings = json.dumps({"state": state, "prefixes": whole_name})
        must(world.node, "POST", "/settings/clientCertAuth", body=settings.encode())

    cert, key = client_certificate(world.node, "carol")
    login = CertificateAuthenticator(cert, key, trust_store_path=world.node.authority)
    manager = world.cluster.users()
    carol = User(username="carol", password="secret", roles=[Role("data_reader", bucket="default")])
    manager.upsert_user(carol)
    world.collection.upsert("certified", {"a": 1})
    try:
        raises(CouchbaseException, lambda: connect_as(world.node, login))
        ask("enable")
        cluster = connect_as(world.node, login)
        c = cluster.bucket("default").default_collection()
        equal(content(c.get("certified")), {"a": 1})
        raises(AuthenticationException, lambda: c.upsert("certified", {}))
        error = raises(CouchbaseException, lambda: cluster.users().get_all_users())
        assert "403" in str(error), error
        carol.roles = [Role("admin")]
        manager.upsert_user(carol)
        c.upsert("certified", {"a": 2})
        equal([one.user.username for one in cluster.users().get_all_users()], ["carol"])
        cluster.close()
        ask("mandatory")
        raises(CouchbaseException, lambda: connect(world.node))
        connect_as(world.node, login).close()
    finally:
        ask("disable")
        manager.drop_user("carol")


@suite.test
def a_certificate_that_was_revoked_is_no_login(_):
    """The list lies with the authority; the node reads both again while connections last."""
    if not OVER_TLS:
        return
    node = Node("--client-cert", "mandatory")
    authority = Authority.made(node.home)
    trusted = node.home / "clients.pem"

    def trust(revoked):
        trusted.write_text(authority.certificate.read_text() + revoked)

    first, second = (authority.sign(name, serial) for serial, name in enumerate(("Administrator", "another"), 7))
    trust(authority.revoke(second[0]))
    node.flags += ["--client-ca", str(trusted)]
    with node.start().ready().watched():
        logins = [CertificateAuthenticator(*files, trust_store_path=node.authority) for files in (first, second)]
        cluster = connect_as(node, logins[0])
        collection = cluster.bucket("default").default_collection()
        collection.upsert("k", "v")
        raises(CouchbaseException, lambda: connect_as(node, logins[1]))
        trust(authority.revoke(first[0]))
        node.process.send_signal(signal.SIGHUP)

        def refused():
            try:
                connect_as(node, logins[0]).close()
            except CouchbaseException:
                return True
            return False

        eventually("the certificate is refused", refused)
        collection.upsert("k", "still connected")
        cluster.close()


def make_collections(world, scope, *names):
    """Makes a scope with collections, each with a document that tells where it is."""
    manager = world.cluster.bucket("default").collections()
    manager.create_scope(scope)
    for name in names:
        manager.create_collection(scope, name)
        in_scope(world, scope, name).upsert("k", {"in": name})


@suite.test
def makes_flushes_and_drops_buckets(world):
    """With the management calls of the SDK, and documents in between."""
    manager = world.cluster.buckets()
    settings = {"ram_quota_mb": 100, "num_replicas": 0, "flush_enabled": True}
    manager.create_bucket(CreateBucketSettings(name="toys", **settings))
    raises(
        BucketAlreadyExistsException,
        lambda: manager.create_bucket(CreateBucketSettings(name="toys", **settings)),
    )
    equal(manager.get_bucket("toys").flush_enabled, True)
    toys = world.cluster.bucket("toys").default_collection()
    toys.upsert("top", {"n": 1})
    manager.flush_bucket("toys")
    raises(DocumentNotFoundException, lambda: toys.get("top"))
    toys.upsert("top", {"n": 2})
    equal(content(toys.get("top")), {"n": 2})
    raises(BucketNotFlushableException, lambda: manager.flush_bucket("default"))
    manager.drop_bucket("toys")
    raises(BucketDoesNotExistException, lambda: manager.get_bucket("toys"))
    raises(BucketDoesNotExistException, lambda: manager.drop_bucket("toys"))


@suite.test
def changes_the_settings_of_a_running_bucket(world):
    """Each with the management calls of the SDK; documents obey them at once, and a restart keeps them."""
    manager = world.cluster.buckets()
    manager.create_bucket(CreateBucketSettings(name="tuned", ram_quota_mb=100, num_replicas=0))
    tuned = world.cluster.bucket("tuned").default_collection()
    expiry = lambda key: tuned.get(key, GetOptions(with_expiry=True)).expiryTime
    tuned.upsert("before", {"n": 1})
    equal(expiry("before"), None)
    wanted = {
        "ram_quota_mb": 120,
        "flush_enabled": True,
        "num_replicas": 2,
        "max_expiry": timedelta(seconds=600),
        "compression_mode": CompressionMode.OFF,
        "eviction_policy": EvictionPolicyType.FULL,
        "minimum_durability_level": DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
    }
    manager.update_bucket(BucketSettings(name="tuned", **wanted))

    def told():
        bucket = manager.get_bucket("tuned")
        return {name: bucket[name] for name in wanted}

    equal(told(), wanted, "settings")
    tuned.upsert("after", {"n": "x" * 500})
    equal(content(tuned.get("after")), {"n": "x" * 500})
    assert expiry("after") is not None
    world.node.stop()
    world.node.start().ready()
    eventually("the settings are as before the restart", lambda: told() == wanted, seconds=30)
    manager.update_bucket(
        BucketSettings(name="tuned", compression_mode=CompressionMode.ACTIVE, eviction_policy=EvictionPolicyType.VALUE_ONLY)
    )
    equal(told()["compression_mode"], CompressionMode.ACTIVE)
    equal(told()["eviction_policy"], EvictionPolicyType.VALUE_ONLY)
    equal(told()["max_expiry"], wanted["max_expiry"], "what was not told stays")
    wrong = BucketSettings(name="tuned", eviction_policy=EvictionPolicyType.NO_EVICTION)
    error = raises(CouchbaseException, lambda: manager.update_bucket(wrong))
    assert "evictionPolicy" in str(error), error
    manager.drop_bucket("tuned")


@suite.test
def manages_scopes_and_collections(world):
    """With the management calls of the SDK, and documents in between."""
    manager = world.cluster.bucket("default").collections()
    manager.create_scope("inventory")
    raises(ScopeAlreadyExistsException, lambda: manager.create_scope("inventory"))
    manager.create_collection("inventory", "hotel")
    manager.create_collection("inventory", "fleeting", CreateCollectionSettings(max_expiry=timedelta(seconds=1)))
    raises(CollectionAlreadyExistsException, lambda: manager.create_collection("inventory", "hotel"))
    raises(ScopeNotFoundException, lambda: manager.create_collection("nope", "hotel"))
    scopes = {scope.name: scope for scope in manager.get_all_scopes()}
    equal(sorted(scopes), ["_default", "_system", "inventory"])
    equal(sorted(one.name for one in scopes["_system"].collections), ["_mobile", "_query"])
    equal(sorted(one.name for one in scopes["inventory"].collections), ["fleeting", "hotel"])

    hotel = in_scope(world, "inventory", "hotel")
    hotel.upsert("same", {"in": "hotel"})
    world.collection.upsert("same", {"in": "default"})
    equal(content(hotel.get("same")), {"in": "hotel"})
    equal(content(world.collection.get("same")), {"in": "default"})
    hotel.remove("same")
    raises(DocumentNotFoundException, lambda: hotel.get("same"))
    equal(content(world.collection.get("same")), {"in": "default"})

    fleeting = in_scope(world, "inventory", "fleeting")
    fleeting.upsert("soon", {"n": 1})
    eventually("the collection's limit ends it", lambda: not fleeting.exists("soon").exists, seconds=10)

    hotel.upsert("old", {"n": 1})
    manager.drop_collection("inventory", "hotel")
    gone = (
        AmbiguousTimeoutException,
        UnAmbiguousTimeoutException,
        CollectionNotFoundException,
        ScopeNotFoundException,
    )
    short = GetOptions(timeout=timedelta(seconds=2))
    raises(gone, lambda: hotel.get("old", short))
    raises(CollectionNotFoundException, lambda: manager.drop_collection("inventory", "hotel"))
    manager.create_collection("inventory", "hotel")
    raises(DocumentNotFoundException, lambda: in_scope(world, "inventory", "hotel").get("old"))
    manager.drop_scope("inventory")
    raises(ScopeNotFoundException, lambda: manager.drop_scope("inventory"))
    raises(gone, lambda: hotel.get("old", short))


@suite.test
def changes_the_ttl_of_a_collection(world):
    """What is written from then on expires by it, what was there before stays as it was."""
    manager = world.cluster.bucket("default").collections()
    manager.create_scope("lives")
    manager.create_collection("lives", "one")
    one = in_scope(world, "lives", "one")

    def limit():
        (scope,) = (scope for scope in manager.get_all_scopes() if scope.name == "lives")
        return scope.collections[0].max_expiry

    def update(seconds):
        limited = UpdateCollectionSettings(max_expiry=timedelta(seconds=seconds))
        manager.update_collection("lives", "one", limited)
        equal(limit(), timedelta(seconds=seconds), "limit of the collection")

    def expiry(key):
        return one.get(key, GetOptions(with_expiry=True)).expiryTime

    one.upsert("before", {"n": 1})
    update(1000)
    one.upsert("plain", {"n": 1})
    one.upsert("longer", {"n": 1}, UpsertOptions(expiry=timedelta(hours=2)))
    one.upsert("shorter", {"n": 1}, UpsertOptions(expiry=timedelta(seconds=100)))
    for key, least, most in (("plain", 900, 1001), ("longer", 900, 1001), ("shorter", 0, 101)):
        left = expiry(key).timestamp() - time.time()
        assert least < left < most, f"{key}: {left} s left"
    update(1)
    one.upsert("soon", {"n": 1})
    eventually("the new limit ends it", lambda: not one.exists("soon").exists, seconds=30)
    raises(DocumentNotFoundException, lambda: one.get("soon"))
    update(0)
    one.upsert("for ever", {"n": 1})
    for key in ("before", "for ever"):
        assert not expiry(key), key
    equal([one.exists(key).exists for key in ("plain", "longer", "shorter")], [True] * 3)
    missing = UpdateCollectionSettings(max_expiry=timedelta(seconds=1))
    raises(CollectionNotFoundException, lambda: manager.update_collection("lives", "two", missing))
    raises(ScopeNotFoundException, lambda: manager.update_collection("nope", "one", missing))
    manager.drop_scope("lives")


@suite.test
def scans_collections(world):
    """Ranges, prefixes and samples over all vBuckets, behind the writes that the scan is told of."""
    manager = world.cluster.bucket("default").collections()
    manager.create_scope("scanned")
    manager.create_collection("scanned", "one")
    c = in_scope(world, "scanned", "one")
    written = {f"{letter}{n:03}": {"n": n} for letter in "ab" for n in range(150)}
    seen = MutationState(*[c.upsert(key, value) for key, value in written.items()])

    def scan(what, **options):
        options = ScanOptions(consistent_with=seen, timeout=timedelta(seconds=30), **options)
        return list(c.scan(what, options))

    # Told of no write, a scan sees what was acknowledged before it.
    c.upsert("fresh", {"n": 0})
    equal([one.id for one in c.scan(PrefixScan("fresh"))], ["fresh"])
    c.remove("fresh")
    # The scans below are told of `written` alone: they would see the document until its removal is on disk.
    equal(list(c.scan(PrefixScan("fresh"))), [])
    found = scan(PrefixScan("a"))
    expected = {key: value for key, value in written.items() if key[0] == "a"}
    equal({one.id: one.content_as[dict] for one in found}, expected)
    equal(len(found), len(expected), "each once")
    between = RangeScan(start=ScanTerm("a148"), end=ScanTerm("b002", exclusive=True))
    found = sorted(one.id for one in scan(between, ids_only=True))
    equal(found, ["a148", "a149", "b000", "b001"])
    equal(sorted(one.id for one in scan(RangeScan(), ids_only=True, batch_item_limit=1)), sorted(written))
    sample = {one.id for one in scan(SamplingScan(20, 42), ids_only=True)}
    equal((len(sample), sample - written.keys()), (20, set()))
    equal(scan(PrefixScan("nobody")), [])
    manager.drop_scope("scanned")


def audited(place):
    """The events of an audit log, without those of the audit itself."""
    files = [path for path in place.iterdir() if not path.is_symlink()]
    lines = [line for path in sorted(files) for line in path.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["id"] > 4097]


@suite.test
def records_what_users_do(world):
    """Audit on over HTTP: an administrator and a user of whom data events are left out."""
    place = world.node.data.parent / "audited"
    place.mkdir()
    users = world.cluster.users()
    for name in ("heard", "unheard"):
        admin, writer = Role(name="admin"), Role(name="data_writer", bucket="default")
        role = admin if name == "heard" else writer
        users.upsert_user(User(username=name, password="sesame", roles=[role]))
    form = {"auditdEnabled": "true", "logPath": str(place), "disabled": "20492"}
    must(world.node, "POST", "/settings/audit", disabledUsers="unheard/local", **form)
    told = json.loads(must(world.node, "GET", "/settings/audit"))
    equal((told["auditdEnabled"], told["disabled"], told["logPath"]), (True, [20492], str(place)))
    for name in ("heard", "unheard"):
        cluster = connect(world.node, user=name, password="sesame")
        c = cluster.bucket("default").default_collection()
        c.upsert(f"audit-{name}", {})
        if name == "heard":
            c.get("audit-heard")
            c.remove("audit-heard")
        cluster.close()
    event = {"timestamp": "2024-05-06T07:08:09Z", "real_userid": {"domain": "local", "user": "x"}}
    put = (AUDIT_PUT, b"", (20484).to_bytes(4, "big"), json.dumps(event).encode())
    for name, status in (("heard", SUCCESS), ("unheard", NO_ACCESS)):
        connection = Connection(world.node.kv)
        connection.hello(FEATURE_XERROR)
        connection.login(name, "sesame")
        equal(connection.call(*put).status, status, name)
        connection.close()

    def keys():
        documents = [event for event in audited(place) if "key" in event]
        ours = [event for event in documents if event["key"].startswith("audit-")]
        return [(event["id"], event["key"]) for event in ours]

    wanted = [(20490, "audit-heard"), (20488, "audit-heard"), (20491, "audit-heard")]
    eventually("events are written", lambda: len(keys()) >= len(wanted))
    equal(keys(), wanted)

    def names(number):
        events = [event for event in audited(place) if event["id"] == number]
        return {event["real_userid"]["user"] for event in events}

    # An SDK that still asks for a bucket that was dropped is refused, too.
    eventually("the refusal is written", lambda: {"x", "unheard"} <= names(20484))
    assert "heard" not in names(20484), names(20484)
    logins = names(20485)
    assert "heard" in logins and "unheard" not in logins, logins
    world.node.stop()
    world.node.start()
    kept = json.loads(must(world.node, "GET", "/settings/audit"))
    equal(kept["auditdEnabled"], True, "after a restart")
    must(world.node, "POST", "/settings/audit", auditdEnabled="false")
    current = place / "current-audit.log"
    eventually("the log is closed", lambda: not current.is_symlink())
    # The client finds the node again.
    eventually("users are told", lambda: len(users.get_all_users()) == 2, seconds=30)
    for name in ("heard", "unheard"):
        users.drop_user(name)


@suite.test
def keeps_collections_over_a_kill(world):
    """Made, filled, one dropped, killed: the client finds what there was."""
    manager = world.cluster.bucket("default").collections()
    manager.create_scope("kept")
    for name in ("stays", "goes"):
        manager.create_collection("kept", name)
    collections = {name: in_scope(world, "kept", name) for name in ("stays", "goes")}
    written = [one.upsert(f"k{n}", {"n": n}) for one in collections.values() for n in range(30)]
    await_persistence(world.node, written)
    manager.drop_collection("kept", "goes")
    world.node.kill()
    world.node.start()
    stays = collections["stays"]
    eventually("the client is back", lambda: content(stays.get("k0")) == {"n": 0}, seconds=30)
    for n in range(30):
        equal(content(stays.get(f"k{n}")), {"n": n})
    scopes = {scope.name: scope for scope in manager.get_all_scopes()}
    equal([one.name for one in scopes["kept"].collections], ["stays"])
    manager.create_collection("kept", "goes")
    raises(DocumentNotFoundException, lambda: in_scope(world, "kept", "goes").get("k0"))
    manager.drop_scope("kept")


@suite.test
def finds_all_after_a_restart(world):
    back_after(world, world.node.stop)


@suite.test
def finds_all_after_a_kill(world):
    back_after(world, world.node.kill)


@suite.test
def keeps_durable_writes_over_a_kill(world):
    """Killed right behind the answers: what was to be on disk is."""
    c = world.collection
    written = {}
    for level in LEVELS[1:]:
        for n in range(20):
            key = f"sync-kill-{level.name}-{n}"
            result = c.upsert(key, {"n": n}, UpsertOptions(durability=ServerDurability(level)))
            written[key] = ({"n": n}, result.cas)
    world.node.kill()
    world.node.start()
    first = next(iter(written))
    eventually("the client is back", lambda: content(c.get(first)) == {"n": 0}, seconds=30)
    for key, (value, cas) in written.items():
        got = c.get(key)
        equal((content(got), got.cas), (value, cas), key)


if __name__ == "__main__":
    suite.main(World())
