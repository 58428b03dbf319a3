"""A small raw client of the binary protocol: what goes out is exactly what the test wrote."""

import os
import socket
import struct
import zlib

HEADER = struct.Struct(">BBHBBHIIQ")
REQUEST, FLEXIBLE_REQUEST = 0x80, 0x08
RESPONSE, FLEXIBLE_RESPONSE = 0x81, 0x18
SERVER_REQUEST = 0x82

GET, SET, ADD, REPLACE, DELETE = 0x00, 0x01, 0x02, 0x03, 0x04
NOOP, VERSION, STAT, SETQ, HELLO = 0x0A, 0x0B, 0x10, 0x11, 0x1F
SASL_LIST, SASL_AUTH, SASL_STEP = 0x20, 0x21, 0x22
SET_VBUCKET, DEL_VBUCKET, GET_REPLICA = 0x3D, 0x3F, 0x83
SELECT_BUCKET, OBSERVE_SEQNO, OBSERVE, GET_FAILOVER_LOG = 0x89, 0x91, 0x92, 0x96
SEQNO_PERSISTENCE, GET_COLLECTION_ID, GET_ERROR_MAP = 0xB7, 0xBB, 0xFE

SUCCESS, NOT_FOUND, EXISTS, TOO_BIG, INVALID, NOT_MY_VBUCKET = 0x00, 0x01, 0x02, 0x03, 0x04, 0x07
AUTH_ERROR, AUTH_CONTINUE, NO_ACCESS = 0x20, 0x21, 0x24
UNKNOWN_COMMAND, OUT_OF_MEMORY, NOT_SUPPORTED, TEMPORARY_FAILURE = 0x81, 0x82, 0x83, 0x86
UNKNOWN_COLLECTION, SYNC_WRITE_IN_PROGRESS, SYNC_WRITE_AMBIGUOUS = 0x88, 0xA2, 0xA3

FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET = 0x04, 0x07, 0x08
FEATURE_SNAPPY, FEATURE_JSON, FEATURE_UNORDERED = 0x0A, 0x0B, 0x0E
FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION, FEATURE_COLLECTIONS = 0x10, 0x11, 0x12

VBUCKETS = 128 if os.environ.get("SETTEE_FEW_VBUCKETS") == "1" else 1024


class Closed(Exception):
    """The peer closed the connection."""


def vbucket_of(key, count=VBUCKETS):
    """The vBucket that a key belongs to."""
    return ((zlib.crc32(key) >> 16) & 0x7FFF) & (count - 1)


def collection_key(collection, key):
    """A key as connections with collections send it: the collection's number before it."""
    number = b""
    while collection >= 0x80:
        number += bytes([collection & 0x7F | 0x80])
        collection >>= 7
    return number + bytes([collection]) + key


def frame(opcode, key=b"", extras=b"", value=b"", **more):
    """One request; `more` overrides header fields, true or not.

    Known: vbucket, cas, opaque, datatype, magic, framing (bytes, makes the frame flexible),
    key_len, extras_len, body_len.
    """
    framing = more.get("framing")
    magic = more.get("magic", REQUEST if framing is None else FLEXIBLE_REQUEST)
    body = (framing or b"") + extras + key + value
    key_len = more.get("key_len", len(key))
    if framing is not None:
        key_len = (len(framing) & 0xFF) << 8 | (key_len & 0xFF)
    head = HEADER.pack(
        magic,
        opcode,
        key_len & 0xFFFF,
        more.get("extras_len", len(extras)) & 0xFF,
        more.get("datatype", 0),
        more.get("vbucket", 0),
        more.get("body_len", len(body)),
        more.get("opaque", 0),
        more.get("cas", 0),
    )
    return head + body


class Response:
    """One frame from the server."""

    def __init__(self, head, body):
        self.magic, self.opcode, key_len, extras_len = head[0], head[1], head[2], head[3]
        self.datatype, self.status, self.opaque, self.cas = head[4], head[5], head[7], head[8]
        framing_len = 0
        if self.magic == FLEXIBLE_RESPONSE:
            framing_len, key_len = key_len >> 8, key_len & 0xFF
        start = framing_len + extras_len
        self.extras = body[framing_len:start]
        self.key = body[start : start + key_len]
        self.value = body[start + key_len :]

    def __repr__(self):
        return f"<opcode {self.opcode:#04x} status {self.status:#04x} value {self.value[:80]!r}>"


class Connection:
    """A blocking connection; every read has a deadline."""

    def __init__(self, port, seconds=10.0, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.opaque = 0x5E77EE

    def send(self, data):
        """Writes bytes as they are."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from None

    def _exactly(self, count):
        while len(self.buffer) < count:
            try:
                more = self.socket.recv(max(65536, count - len(self.buffer)))
            except ConnectionResetError as error:
                raise Closed(str(error)) from None
            if not more:
                raise Closed(f"{len(self.buffer)} bytes of an unfinished frame were left")
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def receive(self):
        """The next response; pushes of the server are passed over."""
        while True:
            head = HEADER.unpack(self._exactly(HEADER.size))
            body = self._exactly(head[6])
            if head[0] == SERVER_REQUEST:
                continue
            if head[0] not in (RESPONSE, FLEXIBLE_RESPONSE):
                raise AssertionError(f"the server sent magic {head[0]:#04x}")
            return Response(head, body)

    def pushed(self):
        """What the server sends next by itself."""
        head = HEADER.unpack(self._exactly(HEADER.size))
        if head[0] != SERVER_REQUEST:
            raise AssertionError(f"the server sent magic {head[0]:#04x}")
        return self._exactly(head[6])

    def call(self, opcode, key=b"", extras=b"", value=b"", **more):
        """One request and its response, which must carry the same opcode and opaque."""
        self.opaque = (self.opaque + 1) & 0xFFFFFFFF
        more.setdefault("opaque", self.opaque)
        self.send(frame(opcode, key, extras, value, **more))
        response = self.receive()
        if (response.opcode, response.opaque) != (opcode, more["opaque"]):
            raise AssertionError(f"sent opcode {opcode:#04x}, got {response!r}")
        return response

    def hello(self, *features):
        """Negotiates features; returns those granted."""
        asked = struct.pack(f">{len(features)}H", *features)
        reply = self.call(HELLO, b"settee-conformance", b"", asked)
        return set(struct.unpack(f">{len(reply.value) // 2}H", reply.value))

    def login(self, user="Administrator", password="password", bucket="default"):
        """SASL PLAIN, then the bucket; both must succeed."""
        secret = b"\0" + user.encode() + b"\0" + password.encode()
        reply = self.call(SASL_AUTH, b"PLAIN", b"", secret)
        if reply.status != SUCCESS:
            raise AssertionError(f"PLAIN refused: {reply!r}")
        if bucket is not None:
            reply = self.call(SELECT_BUCKET, bucket.encode())
            if reply.status != SUCCESS:
                raise AssertionError(f"bucket {bucket} refused: {reply!r}")
        return self

    def stats(self, group=""):
        """The rows of a group of statistics."""
        self.send(frame(STAT, group.encode()))
        rows = {}
        while True:
            reply = self.receive()
            if reply.status != SUCCESS:
                raise AssertionError(f"STAT {group}: {reply!r}")
            if not reply.key:
                return rows
            rows[reply.key.decode()] = reply.value.decode()

    def close(self):
        """Closes at once."""
        self.socket.close()


def key_call(connection, opcode, key, extras=b"", value=b"", **more):
    """A call on a key, sent to the vBucket of the key."""
    more.setdefault("vbucket", vbucket_of(key))
    return connection.call(opcode, key, extras, value, **more)
