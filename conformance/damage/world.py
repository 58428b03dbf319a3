"""A data directory as a node leaves it, and everything that must be found in it again.

Five lives of a node make it: values beyond a MiB, rows in a log and in runs, values in logs that became runs and in files
to which a merge moved them, deletions, counters of versions, collections, a history, a bucket whose keys leave memory, and one
so young that it has no run. The state of an earlier stop is kept beside it, for files that come back older.
"""

import hashlib
import json
import os
import shutil
import socket
import ssl
import struct
import zlib

from harness import Node, equal
from manage import call, must
from mcbp import (
    DELETE,
    FEATURE_COLLECTIONS,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_XERROR,
    GET,
    NOT_FOUND,
    SET,
    SUCCESS,
    TEMPORARY_FAILURE,
    Connection,
    collection_key,
    frame,
    vbucket_of,
)

KIB = 1024
FLAGS = ("--bucket", "default:128", "--kv-tls-port", "0", "--threads", "2", "--journal", "3")
# Name, and what it is made with over HTTP.
MADE = {
    "shop": {"ramQuota": 200, "storageBackend": "magma", "evictionPolicy": "valueOnly",
             "historyRetentionSeconds": 86400, "historyRetentionBytes": 2 << 30, "historyRetentionCollectionDefault": "true", "flushEnabled": 1},
    "full": {"ramQuota": 100, "evictionPolicy": "fullEviction", "maxTTL": 864000},
    "young": {"ramQuota": 120, "replicaNumber": 0, "durabilityMinLevel": "majority"},
}  # fmt: skip
BUCKETS = ("default", *MADE)
LIVES = 5
AT_ONCE = 64


def value_of(bucket, key, version, size):
    """A value that tells whose it is and whether it is whole."""
    name = bucket.encode() + b"/" + key
    head = struct.pack(">QH", version, len(name)) + name
    noise = hashlib.blake2b(head).digest()
    body = head + noise * (max(size - len(head), 0) // len(noise))
    return zlib.crc32(body).to_bytes(4, "big") + body


def told_by(bucket, key, value):
    """The version that a value carries; None when it is torn or another document's."""
    body = value[4:]
    if len(body) < 10 or zlib.crc32(body).to_bytes(4, "big") != value[:4]:
        return None
    version, length = struct.unpack_from(">QH", body)
    return version if body[10 : 10 + length] == bucket.encode() + b"/" + key else None


def connect(node, bucket):
    connection = Connection(node.kv, seconds=60)
    connection.hello(FEATURE_COLLECTIONS, FEATURE_MUTATION_SEQNO, FEATURE_SELECT_BUCKET, FEATURE_XERROR)
    return connection.login(bucket=bucket)


class Bucket:
    """What was written into one bucket: of each key (collection and name) the version that it has now."""

    def __init__(self, name):
        self.name = name
        self.now = {}
        self.version = 0

    def write(self, connection, sizes):
        """Writes documents: (collection, key) with a size, None to delete."""
        sizes = list(sizes.items())
        for start in range(0, len(sizes), AT_ONCE):
            part = sizes[start : start + AT_ONCE]
            data = []
            for (collection, key), size in part:
                self.version += 1
                where = {"vbucket": vbucket_of(key)}
                name = collection_key(collection, key)
                if size is None:
                    data.append(frame(DELETE, name, **where))
                    self.now[collection, key] = None
                else:
                    value = value_of(self.name, key, self.version, size)
                    data.append(frame(SET, name, struct.pack(">II", self.version & 0xFFFF, 0), value, **where))
                    self.now[collection, key] = self.version
            while data:
                for request in data:
                    connection.send(request)
                replies = [connection.receive() for _ in data]
                wrong = [reply for reply in replies if reply.status not in (SUCCESS, TEMPORARY_FAILURE)]
                assert not wrong, f"{self.name}: {wrong[0]!r}"
                # The disk may be slower than the writes.
                data = [request for request, reply in zip(data, replies) if reply.status == TEMPORARY_FAILURE]

    def look(self, node):
        """What a node has: of each key status, version and CAS; then figures of the bucket and its vBuckets."""
        connection = connect(node, self.name)
        found = {}
        keys = list(self.now)
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            data = [frame(GET, collection_key(c, key), vbucket=vbucket_of(key)) for c, key in part]
            connection.send(b"".join(data))
            for collection, key in part:
                reply = connection.receive()
                if reply.status == SUCCESS:
                    version = told_by(self.name, key, reply.value)
                    found[collection, key] = (version, reply.extras, reply.cas)
                elif reply.status == NOT_FOUND:
                    found[collection, key] = None
                else:
                    found[collection, key] = f"status {reply.status:#x}"
        vbuckets = {}
        for row, value in connection.stats("vbucket-details").items():
            vb, _, field = row.removeprefix("vb_").partition(":")
            if field in ("", "high_seqno", "num_items", "purge_seqno", "uuid"):
                vbuckets.setdefault(int(vb), {})[field or "state"] = value
        connection.close()
        return found, vbuckets


def settings_of(node, bucket):
    """What the node says of a bucket that must not change by itself."""
    status, _, body = call(node, "GET", f"/pools/default/buckets/{bucket}")
    if status != 200:
        return f"status {status}"
    told = json.loads(body)
    names = ("name", "uuid", "bucketType", "storageBackend", "replicaNumber", "evictionPolicy", "maxTTL",
             "durabilityMinLevel", "historyRetentionSeconds", "historyRetentionBytes",
             "historyRetentionCollectionDefault")  # fmt: skip
    kept = {name: told.get(name) for name in names}
    kept["quota"] = told["quota"]["rawRAM"]
    kept["flush"] = "flush" in told.get("controllers", {})
    status, _, scopes = call(node, "GET", f"/pools/default/buckets/{bucket}/scopes")
    kept["scopes"] = json.loads(scopes) if status == 200 else f"status {status}"
    return kept


class World:
    """The data directory, the one of an earlier stop, and what a node must say of it."""

    def __init__(self, place):
        self.place = place
        self.data, self.older = place / "data", place / "older"
        self.buckets = {name: Bucket(name) for name in BUCKETS}
        for life in range(LIVES):
            node = At(self.data, place / "build")
            try:
                node.start(120)
                self.write(node, life)
                node.stop()
            finally:
                node.discard()
            if life == LIVES - 2:
                shutil.copytree(self.data, self.older)
        node = At(self.copy(place / "first"), place / "build")
        try:
            node.start(120)
            self.truth = self.look(node)
            node.stop()
        finally:
            node.discard()
        shutil.rmtree(place / "first")
        for name, bucket in self.buckets.items():
            found, _ = self.truth["documents"][name]
            for key, version in bucket.now.items():
                seen = found[key]
                equal(seen if seen is None else seen[0], version, f"{name} {key}")

    def copy(self, to):
        shutil.copytree(self.data, to, copy_function=copy_sparse)
        return to

    def write(self, node, life):
        """One life: what is written in it."""
        if life == 0:
            for name, form in MADE.items():
                if name != "young":
                    must(node, "POST", "/pools/default/buckets", name=name, **form)
            must(node, "POST", "/pools/default/buckets/shop/scopes", name="s")
            must(node, "POST", "/pools/default/buckets/shop/scopes/s/collections", name="c")
        if life == LIVES - 1:
            must(node, "POST", "/pools/default/buckets", name="young", **MADE["young"])
            self.fill(node, "young", {(0, b"y%d" % n): 300 for n in range(60)})
        default = {(0, b"k%d" % n): 24 * KIB for n in range(life * 40, life * 40 + 600)}
        default |= {(0, b"s%d" % n): 100 + n for n in range(life * 50, life * 50 + 200)}
        default |= {(0, b"large%d" % life): 1100 * KIB, (0, b"large"): 1500 * KIB}
        self.fill(node, "default", default)
        if life == LIVES - 2:
            self.move_values(node, default)
        gone = [key for n in range(life * 40, life * 40 + 40, 5) if self.has("default", key := (0, b"k%d" % n))]
        self.fill(node, "default", dict.fromkeys(gone))
        shop = {(self.collection(node), b"c%d" % n): 200 for n in range(life * 10, life * 10 + 60)}
        shop |= {(0, b"d%d" % n): 20 * KIB for n in range(400)}
        if life == 0:
            shop[0, b"large"] = 1200 * KIB
        self.fill(node, "shop", shop)
        full = {(0, b"f%d" % n): 12 * KIB for n in range(life * 100, life * 100 + 600)}
        self.fill(node, "full", full)

    def move_values(self, node, sizes):
        """Replaces documents until a merge moves values out of logs of which most is dead."""
        for _ in range(30):
            if any(self.data.glob("buckets/default/values-*")):
                return
            self.fill(node, "default", sizes)
        raise AssertionError("no merge moves values")

    def collection(self, node):
        """The number of the collection that was made."""
        told = json.loads(must(node, "GET", "/pools/default/buckets/shop/scopes"))
        of = [c for scope in told["scopes"] for c in scope["collections"] if (scope["name"], c["name"]) == ("s", "c")]
        return int(of[0]["uid"], 16)

    def has(self, bucket, key):
        return self.buckets[bucket].now.get(key) is not None

    def fill(self, node, bucket, sizes):
        connection = connect(node, bucket)
        self.buckets[bucket].write(connection, sizes)
        connection.close()

    def look(self, node):
        """All that a node says of the buckets."""
        names = [told["name"] for told in json.loads(must(node, "GET", "/pools/default/buckets"))]
        known = [name for name in BUCKETS if name in names]
        return {
            "node": json.loads(must(node, "GET", "/pools"))["uuid"],
            "authority": node.trusted_by(self.data / "tls" / "ca.pem"),
            "buckets": sorted(names),
            "settings": {name: settings_of(node, name) for name in known},
            "documents": {name: self.buckets[name].look(node) for name in known},
        }


class At(Node):
    """A node on a directory that is somewhere else, with a log of its own."""

    def __init__(self, data, home):
        super().__init__(*FLAGS)
        shutil.rmtree(self.home)
        home.mkdir(exist_ok=True)
        self.home, self.data = home, data
        self.ports_file, self.log = home / "ports.json", home / "log"
        self.log.unlink(missing_ok=True)

    def trusted_by(self, authority):
        """Whether a client that trusts a certificate trusts the node."""
        trust = ssl.create_default_context(cafile=authority)
        try:
            with socket.create_connection(("127.0.0.1", self.ports["kv_tls"]), timeout=20) as plain:
                trust.wrap_socket(plain, server_hostname="localhost").close()
        except ssl.SSLError as error:
            return str(error)
        return True

    def discard(self):
        """Kills it if it runs, and forgets it."""
        if self.alive():
            self.kill()

    def told(self):
        """All that it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def copy_sparse(source, target):
    """Copies a file without its holes."""
    with open(source, "rb") as read, open(target, "wb") as written:
        size = os.fstat(read.fileno()).st_size
        for at, end in runs(read.fileno(), size):
            written.seek(at)
            while at < end:
                at += os.sendfile(written.fileno(), read.fileno(), at, end - at)
        written.truncate(size)
    shutil.copystat(source, target)


def runs(descriptor, size):
    """Where a file has bytes: start and end of each part that is no hole."""
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        yield at, end
        at = end
