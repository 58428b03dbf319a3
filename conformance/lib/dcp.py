"""A small consumer of change streams: which events and documents a vBucket's stream has, in order."""

import struct
from collections import namedtuple

from mcbp import (
    FEATURE_COLLECTIONS,
    FEATURE_SELECT_BUCKET,
    FEATURE_XERROR,
    HEADER,
    RESPONSE,
    SUCCESS,
    Connection,
    frame,
)

DCP_OPEN, DCP_STREAM_REQ, DCP_STREAM_END = 0x50, 0x53, 0x55
DCP_SNAPSHOT_MARKER, DCP_MUTATION, DCP_DELETION, DCP_SYSTEM_EVENT = 0x56, 0x57, 0x58, 0x5F
DCP_CONTROL, DCP_SEQNO_ADVANCED = 0x5E, 0x64
PRODUCER = 1
TO_LATEST, ACTIVE_ONLY = 0x4, 0x10
NO_END = 0xFFFFFFFFFFFFFFFF
END_OK, END_FILTER_EMPTY = 0, 7

# What a stream says; `what` is one of these names, `name` the key of a document or the name of a collection or scope.
BEGIN, END, SCOPE_BEGIN, SCOPE_END, MODIFY = "begin", "end", "scope begin", "scope end", "modify"
SET, DELETE = "set", "delete"
EVENTS = {0: BEGIN, 1: END, 3: SCOPE_BEGIN, 4: SCOPE_END, 5: MODIFY}
Change = namedtuple("Change", "seqno what scope collection name value")


def split_key(key):
    """The number of the collection before a key, and the key."""
    number = shift = 0
    for at, byte in enumerate(key):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, key[at + 1 :]
    raise AssertionError(f"a key without a whole collection number: {key!r}")


class Position:
    """Where a consumer stands in a vBucket; at first nowhere."""

    def __init__(self):
        self.seqno = self.uuid = 0
        self.snapshot = (0, 0)


class Consumer(Connection):
    """A producer's connection seen from the other side."""

    def __init__(self, node, name=b"conformance"):
        super().__init__(node.kv, seconds=30)
        self.hello(FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS)
        self.login()
        requests = ((DCP_OPEN, name, struct.pack(">II", 0, PRODUCER)), (DCP_CONTROL, b"enable_noop", b"", b"true"))
        for request in requests:
            reply = self.call(*request)
            if reply.status != SUCCESS:
                raise AssertionError(f"{request}: {reply!r}")

    def changes(self, positions, filter=b"", end_reason=END_OK):
        """What each vBucket has after its position up to now, by vBucket; moves the positions.

        `positions` names a `Position` for each vBucket. Streams begin one after the other, and come mixed.
        """
        requests, found = [], {}
        for vb, at in positions.items():
            extras = struct.pack(">II5Q", TO_LATEST, 0, at.seqno, NO_END, at.uuid, *(at.snapshot if at.seqno else (0, 0)))
            requests.append(frame(DCP_STREAM_REQ, b"", extras, filter, vbucket=vb, opaque=vb))
            found[vb] = []
        self.send(b"".join(requests))
        ended = 0
        while ended < len(positions):
            head = HEADER.unpack(self._exactly(HEADER.size))
            body = self._exactly(head[6])
            if head[0] == RESPONSE:
                vb = head[7]
                if head[5] != SUCCESS:
                    raise AssertionError(f"stream of vb {vb} from {vars(positions[vb])}: status {head[5]:#x} {body!r}")
                positions[vb].uuid = struct.unpack_from(">Q", body)[0]
                continue
            if head[1] == DCP_STREAM_END:
                reason = struct.unpack_from(">I", body)[0]
                if reason != end_reason:
                    raise AssertionError(f"vb {head[5]}: the stream ends for reason {reason}")
                ended += 1
                continue
            self._take(head, body, positions[head[5]], found[head[5]])
        return found

    def _take(self, head, body, at, found):
        opcode, key_len, extras_len = head[1], head[2], head[3]
        key, value = body[extras_len : extras_len + key_len], body[extras_len + key_len :]
        if opcode == DCP_SNAPSHOT_MARKER:
            at.snapshot = struct.unpack_from(">QQ", body)
            return
        seqno = struct.unpack_from(">Q", body)[0]
        if not at.seqno < seqno <= at.snapshot[1]:
            raise AssertionError(f"vb {head[5]}: {seqno} comes after {at.seqno} in the snapshot {at.snapshot}")
        at.seqno = seqno
        if opcode == DCP_SYSTEM_EVENT:
            what = EVENTS[struct.unpack_from(">I", body, 8)[0]]
            numbers = struct.unpack_from(f">{(len(value) - 8) // 4}I", value, 8)
            collection, scope = None, numbers[0]
            if what == MODIFY:
                collection, scope = numbers[0], numbers[2]
            elif what in (BEGIN, END):
                collection = numbers[1]
            found.append(Change(seqno, what, scope, collection, key.decode(), None))
        elif opcode in (DCP_MUTATION, DCP_DELETION):
            collection, key = split_key(key)
            what = SET if opcode == DCP_MUTATION else DELETE
            found.append(Change(seqno, what, None, collection, key, value))
        elif opcode != DCP_SEQNO_ADVANCED:
            raise AssertionError(f"vb {head[5]}: opcode {opcode:#x} in a stream")
