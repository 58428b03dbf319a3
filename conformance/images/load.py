"""Load for a node whose files are recorded, and what must be there after a power cut at any moment of it."""

import json
import random
import struct
import threading

from manage import call
from mcbp import (
    DELETE,
    DEL_VBUCKET,
    FEATURE_ALT_REQUEST,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_SYNC_REPLICATION,
    FEATURE_UNORDERED,
    FEATURE_XERROR,
    GET,
    NOT_FOUND,
    NOT_MY_VBUCKET,
    OUT_OF_MEMORY,
    SET,
    SET_VBUCKET,
    SUCCESS,
    SYNC_WRITE_AMBIGUOUS,
    SYNC_WRITE_IN_PROGRESS,
    TEMPORARY_FAILURE,
    Closed,
    Connection,
    frame,
    vbucket_of,
)

ACTIVE, DEAD = b"\x01", b"\x04"
PERSIST_TO_MAJORITY = bytes([0x13, 3]) + (4_000).to_bytes(2, "big")
SIZES = (60,) * 6 + (700,) * 6 + (5_000,) * 4 + (60_000,) * 3 + (400_000, 1_048_700)
KEYS = [b"image-%d" % number for number in range(48)]
EXTRA = "toys"


def content(key, version, size):
    """A value that tells what it is, and shows when any byte of it is another one."""
    head = b"%s %d %d " % (key, version, size)
    return head + random.Random(version).randbytes(max(0, size - len(head)))


def connect(node, bucket="default"):
    connection = Connection(node.kv, seconds=30)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET,
                     FEATURE_UNORDERED, FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION)  # fmt: skip
    return connection.login(bucket=bucket)


class Truth:
    """What was written, and from which record on it must be there."""

    def __init__(self):
        self.version = 0
        # Of each document: all versions (None: no document) and (record, version) of those that hold.
        self.sent, self.held = {}, {}
        # Of each bucket and scope that comes and goes: (record when asked, when answered, there or not).
        self.comings = {}

    def send(self, where, value_size):
        """A new version of a document, `where` is its bucket and key; its value, or None."""
        self.version += 1
        value = None if value_size is None else content(where[1], self.version, value_size)
        self.sent.setdefault(where, {0: None})[self.version] = value and (len(value), hash(value))
        return self.version, value

    def hold(self, where, version, record):
        self.held.setdefault(where, [(0, 0)]).append((record, version))

    def gone(self, places, record):
        """Documents that went with their vBucket or bucket: from now on, perhaps, ..."""
        return [(where, self.send(where, None)[0]) for where in places if where in self.sent]

    def least(self, where, record):
        held = self.held.get(where, [(0, 0)])
        return max(version for at, version in held if at <= record)

    def check(self, where, value, record):
        """What was found must have been written, and not before what must be there."""
        sent, least = self.sent[where], self.least(where, record)
        seen = value and (len(value), hash(value))
        if not any(version >= least and known == seen for version, known in sent.items()):
            older = [version for version, known in sent.items() if known == seen]
            shown = "nothing" if value is None else value[:40]
            raise AssertionError(f"{where}: found {shown} (version {older}), must be {least} or later")

    def must_be(self, name, record):
        """Whether a bucket or scope must be there (True), must not (False), or may (None)."""
        answered = [there for _, end, there in self.comings.get(name, []) if end is not None and end <= record]
        under_way = [1 for start, end, _ in self.comings.get(name, []) if start <= record and (end is None or end > record)]
        if under_way:
            return None
        return answered[-1] if answered else False


class Load:
    """Writes to a node that is recorded."""

    def __init__(self, node, truth, chance):
        self.node, self.truth, self.chance = node, truth, chance
        # Whether what is asked for may be refused, since a sync may have failed.
        self.may_fail = False
        self.refused = 0

    def moment(self):
        """The number of records so far."""
        return struct.unpack_from("=Q", self.node.tally.read_bytes())[0]

    def round(self, connection, bucket="default"):
        """Writes some documents durably, and some just so; tells how many are durable."""
        chance, truth, asked, lines = self.chance, self.truth, {}, []
        for key in chance.sample(KEYS, chance.randrange(1, len(KEYS) // 2)):
            size = None if chance.random() < 0.12 else chance.choice(SIZES)
            version, value = truth.send((bucket, key), size)
            durable = chance.random() < 0.8
            where = {"vbucket": vbucket_of(key), "opaque": version, **({"framing": PERSIST_TO_MAJORITY} if durable else {})}
            lines.append(frame(DELETE, key, **where) if value is None
                         else frame(SET, key, bytes(8), value, **where))  # fmt: skip
            asked[version] = key, durable
        sender = threading.Thread(target=self._send, args=(connection, lines))
        sender.start()
        held = 0
        try:
            for _ in range(len(asked)):
                reply = connection.receive()
                key, durable = asked.pop(reply.opaque)
                if reply.status == SUCCESS and durable:
                    truth.hold((bucket, key), reply.opaque, self.moment())
                    held += 1
                elif reply.status in (NOT_FOUND, NOT_MY_VBUCKET):  # or its vBucket could not be made anew
                    del truth.sent[bucket, key][reply.opaque]
                elif reply.status != SUCCESS:
                    assert reply.status in (
                        TEMPORARY_FAILURE, OUT_OF_MEMORY, SYNC_WRITE_IN_PROGRESS, SYNC_WRITE_AMBIGUOUS
                    ), f"{key}: status {reply.status:#04x}"  # fmt: skip
                    self.refused += 1
        finally:
            sender.join()
        return held

    @staticmethod
    def _send(connection, lines):
        for line in lines:
            try:
                connection.send(line)
            except (Closed, OSError):
                return

    def remove_vbucket(self, connection):
        """Takes a vBucket away with its documents, and makes it anew."""
        vbucket = vbucket_of(self.chance.choice(KEYS))
        places = [("default", key) for key in KEYS if vbucket_of(key) == vbucket]
        dead = connection.call(SET_VBUCKET, b"", DEAD, vbucket=vbucket)
        assert dead.status == SUCCESS or self.may_fail, f"a dead vBucket: {dead}"
        gone = self.truth.gone(places, self.moment())
        removed = connection.call(DEL_VBUCKET, vbucket=vbucket)
        if removed.status == SUCCESS:
            for where, version in gone:
                self.truth.hold(where, version, self.moment())
        connection.call(SET_VBUCKET, b"", ACTIVE, vbucket=vbucket)

    def _change(self, name, there, request, form):
        coming = [self.moment(), None, there]
        comings = self.truth.comings.setdefault(name, [])
        comings.append(coming)
        status, _, body = call(self.node, *request, **form)
        assert status in (200, 202) or self.may_fail, f"{request}: {status} {body}"
        if status in (200, 202):
            coming[1] = self.moment()
        return status in (200, 202)

    def toggle(self, name, make, drop):
        """Makes what is not there, or drops it; tells whether that is there now, or None if it was refused."""
        there = name in listed(self.node)
        request, form = drop if there else make
        return not there if self._change(name, not there, request, form) else None

    def toggle_scope(self):
        name = f"s{self.chance.randrange(3)}"
        path = "/pools/default/buckets/default/scopes"
        self.toggle(("scope", name), (("POST", path), {"name": name}), (("DELETE", f"{path}/{name}"), {}))

    def toggle_bucket(self):
        """Makes another bucket and writes to it, or drops it. One whose drop is refused may go at a start."""
        path = "/pools/default/buckets"
        there = self.toggle(("bucket", EXTRA), (("POST", path), {"name": EXTRA, "ramQuota": 100}),
                            (("DELETE", f"{path}/{EXTRA}"), {}))  # fmt: skip
        if there:
            connection = connect(self.node, EXTRA)
            self.round(connection, EXTRA)
            connection.close()
            return
        for where, version in self.truth.gone([(EXTRA, key) for key in KEYS], self.moment()):
            if there is False:
                self.truth.hold(where, version, self.moment())

    def read_all(self):
        """What is read after a start counts as there for good."""
        connection = connect(self.node)
        for where, value in found(connection, self.truth, "default"):
            self.truth.check(where, value, self.moment())
            seen = value and (len(value), hash(value))
            version = max(at for at, known in self.truth.sent[where].items() if known == seen)
            if value is not None:
                self.truth.hold(where, max(version, self.truth.least(where, self.moment())), self.moment())
        connection.close()


def found(connection, truth, bucket):
    """Every document that was ever written to a bucket, with what is there of it."""
    keys = [key for name, key in truth.sent if name == bucket]
    connection.send(b"".join(frame(GET, key, vbucket=vbucket_of(key), opaque=at) for at, key in enumerate(keys)))
    for _ in keys:
        reply = connection.receive()
        assert reply.status in (SUCCESS, NOT_FOUND, NOT_MY_VBUCKET), f"{keys[reply.opaque]}: {reply}"
        yield (bucket, keys[reply.opaque]), reply.value if reply.status == SUCCESS else None


def listed(node):
    """The buckets, and the scopes of the first one, that a node says it has."""
    _, _, body = call(node, "GET", "/pools/default/buckets/default/scopes")
    scopes = {("scope", scope["name"]) for scope in json.loads(body)["scopes"]}
    _, _, body = call(node, "GET", "/pools/default/buckets")
    return scopes | {("bucket", one["name"]) for one in json.loads(body)}


def check_image(node, truth, record):
    """Looks whether a node that was started on an image has what it must have."""
    connection = connect(node)
    for where, value in found(connection, truth, "default"):
        truth.check(where, value, record)
    connection.close()
    there = listed(node)
    for name in truth.comings:
        must = truth.must_be(name, record)
        assert must in (None, name in there), f"{name}: must be there: {must}"
    if ("bucket", EXTRA) in there:
        connection = connect(node, EXTRA)
        for where, value in found(connection, truth, EXTRA):
            truth.check(where, value, record)
        connection.close()

