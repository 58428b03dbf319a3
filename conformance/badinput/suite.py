"""What no client should send: each request is answered with its own opaque or the connection is
closed, memory stays bounded, and a well-behaved neighbour notices nothing.
"""

import contextlib
import itertools
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from conversations import FEATURES, MOVABLE, Commands
from harness import Node, Suite, equal, eventually
from mcbp import (
    AUTH_CONTINUE,
    AUTH_ERROR,
    DELETE,
    DEL_VBUCKET,
    EXISTS,
    FEATURE_JSON,
    FEATURE_SNAPPY,
    FEATURE_XERROR,
    GET,
    GET_ERROR_MAP,
    HELLO,
    INVALID,
    NOOP,
    NO_ACCESS,
    SASL_AUTH,
    SASL_LIST,
    SASL_STEP,
    SEQNO_PERSISTENCE,
    SET,
    SETQ,
    SET_VBUCKET,
    SUCCESS,
    TOO_BIG,
    Closed,
    Connection,
    frame,
    key_call,
    vbucket_of,
)

suite = Suite("badinput")
KIB, MIB = 1024, 1024 * 1024
GROWTH_MAX = 32 * MIB
STOP_PERSISTENCE = 0x80
# The first one waits; the others do what an administrator may do to a bucket.
LEFT_OUT = (SEQNO_PERSISTENCE, DEL_VBUCKET, SET_VBUCKET, STOP_PERSISTENCE)
CONVERSATIONS_SECONDS = float(os.environ.get("CONVERSATIONS_SECONDS", "8"))
LOGIN_FLOOD_SECONDS = float(os.environ.get("LOGIN_FLOOD_SECONDS", "2"))
FENCE = 0xFE4CE000
SEED = int(os.environ.get("SETTEE_SEED", "1"))

BEFORE_LOGIN = {HELLO, SASL_LIST, SASL_AUTH, SASL_STEP, GET_ERROR_MAP}


class Neighbour(threading.Thread):
    """Reads its document all the time and notes the slowest answer and the largest memory."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node = node
        self.connection = Connection(node.kv).login()
        equal(key_call(self.connection, SET, b"neighbour", bytes(8), b"here").status, SUCCESS)
        self.stop = threading.Event()
        self.problem = None
        self.answers = 0
        self.slowest = 0.0
        self.resident_first = self.resident_max = node.resident_bytes()

    def run(self):
        try:
            while not self.stop.is_set():
                started = time.monotonic()
                equal(key_call(self.connection, GET, b"neighbour").value, b"here", "the neighbour")
                equal(self.connection.call(NOOP).status, SUCCESS, "NOOP of the neighbour")
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.answers += 1
                self.resident_max = max(self.resident_max, self.node.resident_bytes())
                self.stop.wait(0.01)
        except Exception as error:  # noqa: BLE001 - told by the test that looks
            self.problem = error


class World:
    """A node, a neighbour, and connections for the attacks."""

    def __init__(self):
        self.node = Node().start().ready()
        self.neighbour = Neighbour(self.node)
        self.neighbour.start()

    def connect(self, log_in=True, seconds=10.0):
        connection = Connection(self.node.kv, seconds)
        return connection.login() if log_in else connection

    def fine(self):
        """The node lives and the neighbour is served, now."""
        assert self.node.alive(), f"the node died:\n{self.node.tail()}"
        if self.neighbour.problem:
            raise AssertionError(f"the neighbour suffers: {self.neighbour.problem!r}")
        seen = self.neighbour.answers
        eventually("the neighbour is answered", lambda: self.neighbour.answers > seen, seconds=10)

    def close(self):
        self.neighbour.stop.set()
        self.neighbour.join(10)
        self.node.close()


class Prober:
    """Sends requests that are wrong, each followed by a NOOP as fence, and judges the answers."""

    def __init__(self, world, log_in=True):
        self.world = world
        self.log_in = log_in
        self.connection = None
        self.closed = self.answered = self.silent = 0

    def probe(self, data, opcode, opaque, fence=True):
        """Sends `data`; returns the statuses it got, or None when the connection was closed."""
        if self.connection is None:
            self.connection = self.world.connect(self.log_in)
        statuses = []
        try:
            self.connection.send(data + (frame(NOOP, opaque=FENCE) if fence else b""))
            while True:
                reply = self.connection.receive()
                if (reply.opcode, reply.opaque) == (NOOP, FENCE):
                    break
                if (reply.opcode, reply.opaque) != (opcode, opaque):
                    raise AssertionError(f"opcode {opcode:#04x} opaque {opaque:#x} got {reply!r}")
                statuses.append(reply.status)
                if not fence:
                    break
        except Closed:
            self.reset()
            self.closed += 1
            return statuses or None
        except (TimeoutError, socket.timeout):
            self.reset()
            raise AssertionError(f"no answer to opcode {opcode:#04x}: {data[:48].hex()}") from None
        self.answered += bool(statuses)
        self.silent += not statuses
        return statuses

    def reset(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def told(self):
        return f"{self.answered} answered, {self.silent} silent, {self.closed} closed"


def lengths_of(opcode):
    """Boundary lengths of key, extras and value, each alone and all with each other."""
    keys, extras, values = (0, 1, 250, 251, 252), (0, 1, 4, 8, 20, 24, 255), (0, 1, 16)
    yield from itertools.product(keys, extras, values)
    yield from ((65535, e, 0) for e in (0, 8))
    yield (0, 0, 64 * KIB)
    # The extras that the opcode's own command has, with a key and a value that fit nothing.
    yield from ((k, e, 2) for k in (2, 10) for e in (2, 5, 9, 12, 16, 28, 30, 31, 48))


@suite.test
def every_opcode_at_every_length(world):
    prober = Prober(world)
    for opcode in range(256):
        prober.reset()
        # These change a vBucket; they may do so to one that nobody else uses.
        vbucket = 1023 if opcode in (SET_VBUCKET, DEL_VBUCKET) else 0
        opaque = opcode << 16
        for key, extras, value in lengths_of(opcode):
            opaque += 1
            body = b"k" * key, bytes(extras), b"v" * value
            prober.probe(frame(opcode, *body, opaque=opaque, vbucket=vbucket), opcode, opaque)
    prober.reset()
    print(f"     {prober.told()}")
    world.fine()


@suite.test
def every_opcode_with_odd_bytes(world):
    prober = Prober(world)
    for opcode in range(256):
        if opcode == SEQNO_PERSISTENCE:
            continue  # a seqno far ahead is a legal wish to wait
        vbucket = 1023 if opcode in (SET_VBUCKET, DEL_VBUCKET) else 0
        for number, (key, extras) in enumerate(itertools.product((0, 3), (0, 1, 4, 8, 20, 24))):
            opaque = opcode << 16 | number
            body = b"\xff" * key, b"\xff" * extras, b"\xff" * number
            more = {"opaque": opaque, "vbucket": vbucket, "cas": 0xFFFFFFFFFFFFFFFF}
            prober.probe(frame(opcode, *body, **more), opcode, opaque)
        prober.reset()
    print(f"     {prober.told()}")
    world.fine()


@suite.test
def every_vbucket_number(world):
    prober = Prober(world)
    for vbucket in (0, 1, 1022, 1023, 1024, 1025, 32767, 32768, 65535):
        for opcode in (GET, SET, DELETE, 0x91, 0x96, 0x3E):
            extras = bytes(8) if opcode == SET else b""
            value = bytes(8) if opcode == 0x91 else b""
            key = b"" if opcode in (0x91, 0x96, 0x3E) else b"k"
            got = prober.probe(frame(opcode, key, extras, value, vbucket=vbucket, opaque=7), opcode, 7)
            assert got, f"opcode {opcode:#04x} on vBucket {vbucket} was not answered"
    world.fine()


@suite.test
def frame_infos(world):
    prober = Prober(world)
    infos = [bytes([kind << 4 | length]) + bytes(data)
             for kind in range(16) for length in range(16) for data in (0, 1, length, 14)]
    infos += [bytes([0xFF, a, b]) + bytes(20) for a in (0, 1, 255) for b in (0, 1, 5, 255)]
    infos += [bytes([0x50] * n) for n in (1, 2, 255)] + [bytes(n) for n in (0, 1, 250, 255)]
    infos += [bytes([0x13, level, *timeout.to_bytes(2, "big")])
              for level in (0, 1, 2, 3, 4, 255) for timeout in (0, 1, 65535)]  # fmt: skip
    for opaque, info in enumerate(infos):
        for opcode, extras in ((GET, b""), (SET, bytes(8)), (NOOP, b"")):
            key = b"" if opcode == NOOP else b"framed"
            prober.probe(
                frame(opcode, key, extras, framing=info[:255], opaque=opaque), opcode, opaque
            )
    prober.reset()
    print(f"     {prober.told()}")
    world.fine()


@suite.test
def lengths_that_lie(world):
    prober = Prober(world)
    claims = []
    for body_len in (0, 1, 7, 30 * MIB, 30 * MIB + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        claims.append({"body_len": body_len, "key_len": 8, "extras_len": 8})
    claims += [{"key_len": 65535}, {"extras_len": 255}, {"key_len": 65535, "extras_len": 255}]
    for claim in claims:
        for magic in (0x80, 0x08):
            started = time.monotonic()
            data = frame(SET, b"k", bytes(8), b"v", magic=magic, opaque=5, **claim)
            connection = world.connect(seconds=3)
            connection.send(data)
            # A body that may be this long is awaited; anything else must be refused without it.
            awaited = 10 < claim.get("body_len", 0) < 30 * MIB
            try:
                reply = connection.receive()
                equal(reply.opaque, 5, f"opaque of the answer to {claim}")
            except Closed:
                pass
            except (TimeoutError, socket.timeout):
                assert awaited, f"{claim} with magic {magic:#x} is neither answered nor closed"
            connection.close()
            assert awaited or time.monotonic() - started < 3, f"{claim} took long"
    prober.reset()
    world.fine()


@suite.test
def claims_without_a_body_take_no_memory(world):
    before = world.node.resident_bytes()
    waiting = []
    for number in range(32):
        connection = world.connect(log_in=number % 2 == 0)
        claim = 29 * MIB if number % 2 == 0 else 0xFFFFFFFF
        try:
            connection.send(frame(SET, b"k", bytes(8), b"", body_len=claim) + bytes(4 * KIB))
        except Closed:
            pass
        waiting.append(connection)
    world.fine()
    growth = world.node.resident_bytes() - before
    assert growth < GROWTH_MAX, f"32 unfinished frames took {growth // MIB} MiB"
    for connection in waiting:
        connection.close()
    world.fine()


@suite.test
def wrong_magic(world):
    prober = Prober(world)
    for magic in range(256):
        if magic in (0x80, 0x08):
            continue
        prober.probe(frame(GET, b"k", magic=magic, opaque=magic), GET, magic)
        prober.reset()
    print(f"     {prober.told()}")
    world.fine()


@suite.test
def every_datatype(world):
    prober = Prober(world)
    for datatype in range(256):
        for opcode, extras, value in ((GET, b"", b""), (SET, bytes(8), b"{}"), (0x0E, b"", b"x")):
            data = frame(opcode, b"typed", extras, value, datatype=datatype, opaque=datatype)
            got = prober.probe(data, opcode, datatype)
            assert got, f"opcode {opcode:#04x} with datatype {datatype:#x} was not answered"
            if datatype & 0xF8:
                equal(got, [INVALID], f"opcode {opcode:#04x} with datatype {datatype:#x}")
    world.fine()


@suite.test
def frames_cut_at_every_byte(world):
    whole = frame(SET, b"cut", bytes(8), b"value", vbucket=vbucket_of(b"cut"))
    for end in range(len(whole)):
        connection = world.connect()
        connection.send(whole[:end])
        connection.close()
    world.fine()
    reply = key_call(world.connect(), GET, b"cut")
    assert reply.status != SUCCESS, "an unfinished frame was executed"


@suite.test
def frames_byte_by_byte(world):
    connection = world.connect()
    whole = frame(SET, b"slow", bytes(8), b"value", vbucket=vbucket_of(b"slow"), opaque=3)
    for byte in whole + frame(GET, b"slow", vbucket=vbucket_of(b"slow"), opaque=4):
        connection.send(bytes([byte]))
    equal([connection.receive().status for _ in range(2)], [SUCCESS, SUCCESS])
    connection.close()


@suite.test
def commands_before_login(world):
    prober = Prober(world, log_in=False)
    for opcode in range(256):
        key = b"" if opcode in (HELLO, SASL_LIST) else b"key"
        for body in ((b"",), (key, b"", b""), (key, bytes(8), b"value")):
            got = prober.probe(frame(opcode, *body, opaque=opcode), opcode, opcode, fence=False)
            if opcode not in BEFORE_LOGIN and got is not None:
                equal(got, [NO_ACCESS], f"opcode {opcode:#04x} before login")
    print(f"     {prober.told()}")
    # More than an unauthenticated client may send in one frame.
    connection = world.connect(log_in=False)
    try:
        connection.send(frame(SASL_AUTH, b"PLAIN", b"", bytes(17 * KIB)))
        assert connection.receive().status != SUCCESS
    except Closed:
        pass
    world.fine()


@suite.test
def sasl_out_of_order(world):
    connection = None
    plain = b"\0Administrator\0password"
    first = b"n,,n=Administrator,r=clientnonce"

    def fresh():
        """Some wrong logins end a connection and slow down the next ones; a right one ends that."""
        nonlocal connection
        if connection:
            connection.close()
        world.connect().close()
        connection = world.connect(log_in=False)

    fresh()

    def refused(opcode, mechanism, payload, *statuses):
        reply = connection.call(opcode, mechanism, b"", payload)
        assert reply.status in (statuses or (AUTH_ERROR, INVALID)), f"{payload[:40]!r}: {reply!r}"
        equal(connection.call(NOOP).status, NO_ACCESS, f"still not logged in after {payload[:40]!r}")

    refused(SASL_STEP, b"SCRAM-SHA512", b"c=biws,r=x,p=eA==", AUTH_ERROR, INVALID, 0x83)
    refused(SASL_AUTH, b"OAUTHBEARER", b"n,,\x01auth=Bearer x\x01\x01", AUTH_ERROR)
    refused(SASL_STEP, b"OAUTHBEARER", b"\x01", AUTH_ERROR)
    listed = Connection(world.node.kv)
    assert b"OAUTHBEARER" not in listed.call(SASL_LIST).value.split()
    listed.close()
    refused(SASL_AUTH, b"NO-SUCH-MECHANISM", b"", AUTH_ERROR, INVALID, 0x83)
    refused(SASL_AUTH, b"", plain)
    refused(SASL_AUTH, b"PLAIN" * 50, plain, AUTH_ERROR, INVALID, 0x83)
    for payload in (b"", b"\0", b"\0\0", b"\0\0\0", b"Administrator", b"\0Administrator",
                    b"\0Administrator\0", b"\0Administrator\0wrong", b"\0nobody\0password",
                    b"\0" + b"u" * 200 + b"\0password", b"\xff" * 300, bytes(12 * KIB)):  # fmt: skip
        fresh()
        refused(SASL_AUTH, b"PLAIN", payload)
    for payload in (b"", b"n", b"n,,", b"n,,n=", b"n,,n=x", b"n,,n=x,r=", b"y,,n=x,r=1",
                    b"p=tls-unique,,n=x,r=1", b"n,,m=ext,n=x,r=1", b"n,,r=1,n=x", b"n,,n==,r=1",
                    b"n,,n=\xff,r=1", b"," * 500, b"n,,n=" + b"u" * 9000 + b",r=1"):  # fmt: skip
        fresh()
        refused(SASL_AUTH, b"SCRAM-SHA512", payload, AUTH_ERROR, INVALID, AUTH_CONTINUE)
        refused(SASL_STEP, b"SCRAM-SHA512", b"c=biws,r=1,p=eA==", AUTH_ERROR, INVALID, 0x83)
    for step in (b"", b"c=", b"c=biws", b"c=biws,r=", b"c=biws,r=1,p=", b"c=biws,r=1,p=%%%",
                 b"x" * 9000, b"c=biws,r=clientnonce,p=" + b"A" * 100):  # fmt: skip
        fresh()
        refused(SASL_AUTH, b"SCRAM-SHA1", first, AUTH_CONTINUE)
        refused(SASL_STEP, b"SCRAM-SHA1", step)
    fresh()
    refused(SASL_AUTH, b"SCRAM-SHA256", first, AUTH_CONTINUE)
    refused(SASL_AUTH, b"SCRAM-SHA256", first, INVALID, AUTH_CONTINUE, AUTH_ERROR)
    refused(SASL_STEP, b"SCRAM-SHA512", b"c=biws,r=x,p=eA==", AUTH_ERROR, INVALID)
    world.connect().close()
    world.fine()


def snappy_of_zeros(length, claim=None):
    """`length` zero bytes as Snappy writes them; `claim` is what the length field says."""
    out = bytearray()
    said = length if claim is None else claim
    while said >= 0x80:
        out.append(said & 0x7F | 0x80)
        said >>= 7
    out.append(said)
    out += b"\x00\x00"  # a literal of one byte, then copies of it
    left = length - 1
    full = bytes([63 << 2 | 2, 1, 0])
    out += full * (left // 64)
    if left % 64:
        out += bytes([(left % 64 - 1) << 2 | 2, 1, 0])
    return bytes(out)


@suite.test
def snappy_bombs(world):
    before = world.node.resident_bytes()
    connections = [world.connect() for _ in range(8)]
    for connection in connections:
        granted = connection.hello(FEATURE_SNAPPY, FEATURE_JSON, FEATURE_XERROR)
        assert FEATURE_SNAPPY in granted, "Snappy is not granted"
    bombs = [
        snappy_of_zeros(21 * MIB),
        snappy_of_zeros(60 * MIB),
        *(snappy_of_zeros(100, claim) for claim in (2**20, 2**30, 2**32 - 1, 2**32, 2**63)),
        b"", b"\xff" * 12, b"\x80", snappy_of_zeros(1000)[:-1], b"\x05\x00a\x01\x05",
        b"\x08\x00a" + bytes([63 << 2 | 2, 0, 0]), b"\x08\x00a" + bytes([63 << 2 | 2, 9, 0]),
    ]  # fmt: skip
    for bomb in bombs:
        # What was sent must be held; the test is of what it would grow to.
        sending = connections if len(bomb) < 2 * MIB else connections[:1]
        for connection in sending:
            connection.send(
                frame(SET, b"bomb", bytes(8), bomb, datatype=2, vbucket=vbucket_of(b"bomb"), opaque=9)
            )
        for connection in sending:
            reply = connection.receive()
            equal(reply.opaque, 9)
            assert reply.status in (INVALID, TOO_BIG), f"{len(bomb)} bytes: {reply!r}"
    reply = key_call(connections[0], SET, b"bomb", bytes(8), snappy_of_zeros(MIB), datatype=2)
    equal(reply.status, SUCCESS, "a compressed document of 1 MiB")
    plain = world.connect()
    equal(key_call(plain, GET, b"bomb").value, bytes(MIB), "read without Snappy")
    equal(key_call(plain, DELETE, b"bomb").status, SUCCESS)
    for connection in connections:
        connection.close()
    world.fine()
    growth = world.node.resident_bytes() - before
    assert growth < GROWTH_MAX, f"the bombs took {growth // MIB} MiB"


@suite.test
def clients_that_do_not_read(world):
    """Back-pressure: the answers of a client that never reads do not pile up in the node."""
    writer = world.connect()
    equal(key_call(writer, SET, b"big", bytes(8), bytes(MIB)).status, SUCCESS)
    before = world.node.resident_bytes()
    deaf = [world.connect(seconds=1) for _ in range(8)]
    request = frame(GET, b"big", vbucket=vbucket_of(b"big"))
    for connection in deaf:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            connection.send(request * 500)
        except (TimeoutError, socket.timeout):
            pass  # the node no longer reads either, as it should
    for _ in range(5):
        world.fine()
    growth = world.node.resident_bytes() - before
    assert growth < GROWTH_MAX, f"8 clients that do not read took {growth // MIB} MiB"
    for connection in deaf:
        connection.close()
    equal(key_call(writer, DELETE, b"big").status, SUCCESS)
    world.fine()


@suite.test
def half_closed_connections(world):
    connection = world.connect()
    requests = [frame(GET, b"neighbour", vbucket=vbucket_of(b"neighbour"), opaque=n) for n in range(50)]
    connection.send(b"".join(requests))
    connection.socket.shutdown(socket.SHUT_WR)
    equal([connection.receive().opaque for _ in requests], list(range(50)), "what was queued")
    try:
        connection.receive()
        raise AssertionError("the node still sends after the end")
    except Closed:
        pass


@suite.test
def random_frames(world):
    print(f"     seed {SEED}")
    chance = random.Random(SEED)
    prober = Prober(world)
    for number in range(3000):
        opcode = chance.choice([c for c in range(256) if c not in LEFT_OUT])
        pick = lambda *sizes: chance.randbytes(chance.choice(sizes))
        more = {"opaque": number, "cas": chance.choice((0, 0, chance.getrandbits(64)))}
        more["datatype"] = chance.choice((0, 0, 0, chance.getrandbits(8)))
        more["vbucket"] = chance.choice((0, chance.getrandbits(10)))
        if chance.random() < 0.3:
            more["framing"] = pick(0, 1, 2, 3, 10, 255)
        data = frame(opcode, pick(0, 1, 5, 250), pick(0, 1, 4, 8, 20), pick(0, 1, 9, 300), **more)
        if opcode == SETQ or chance.random() < 0.1:
            prober.reset()
        prober.probe(data, opcode, number)
    print(f"     {prober.told()}")
    world.fine()


@suite.test
def mutated_conversations(world):
    """Nobody judges the answers here: the node lives, and serves others, whatever it was told."""
    print(f"     seed {SEED}")
    chance = random.Random(SEED)
    commands = Commands(chance)
    started = time.monotonic()
    sent = conversations = 0
    while time.monotonic() - started < CONVERSATIONS_SECONDS:
        connection = world.connect(log_in=chance.random() < 0.95)
        conversations += 1
        try:
            if chance.random() < 0.8:
                connection.hello(*chance.sample(FEATURES, chance.randrange(len(FEATURES))))
            for _ in range(chance.choice((1, 5, 20))):
                batch = [commands.next() for _ in range(chance.choice((1, 3, 10)))]
                sent += len(batch)
                connection.send(b"".join(batch))
                if chance.random() < 0.5:
                    # Whatever has come is enough; some conversations never read.
                    connection.socket.settimeout(0.001)
                    with contextlib.suppress(TimeoutError, BlockingIOError):
                        connection.socket.recv(MIB)
                    connection.socket.settimeout(10)
        except (Closed, ConnectionError):
            pass
        except TimeoutError:
            pass  # its requests wait, and so does it
        connection.close()
        if conversations % 50 == 0:
            world.fine()
    for vbucket in MOVABLE:
        # As it was: on this node alone.
        topology = {"value": b'{"topology":[]}', "datatype": 1, "vbucket": vbucket}
        connection = world.connect()
        connection.hello(FEATURE_JSON)
        equal(connection.call(SET_VBUCKET, b"", b"\x01", **topology).status, SUCCESS)
        connection.close()
    world.fine()
    print(f"     {conversations} conversations, {sent} commands")


@suite.test
def bytes_that_are_no_protocol(world):
    chance = random.Random(SEED + 1)
    for data in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" + bytes(200),
                 b"get key\r\n", b"stats\r\n", bytes(100_000), b"\xff" * 100_000,
                 *(chance.randbytes(5000) for _ in range(50))):  # fmt: skip
        for log_in in (False, True):
            connection = world.connect(log_in=log_in, seconds=2)
            try:
                connection.send(data)
                connection.socket.shutdown(socket.SHUT_WR)
                while connection.socket.recv(65536):
                    pass
            except (Closed, ConnectionResetError, BrokenPipeError, OSError):
                pass
            connection.close()
    world.fine()


@suite.test
def http_that_is_wrong(world):
    port = world.node.ports["http"]
    for data in (b"\r\n" * 1000, b"NONSENSE\r\n\r\n", b"GET " + b"/" * 100_000, bytes(10_000),
                 b"GET /pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic !!!\r\nConnection: close\r\n\r\n",
                 b"POST /pools HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65536)
            except OSError:
                continue
            refused = answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
            assert not answer or refused, f"{data[:30]!r}: {answer[:80]!r}"
    world.fine()


@suite.test
def floods_of_wrong_logins_fill_no_log(world):
    """Of both doors: connections that end are opened again at once, for a while."""
    log, began = world.node.log, time.monotonic()
    before = log.stat().st_size
    until = began + LOGIN_FLOOD_SECONDS
    wrong = frame(SASL_AUTH, b"PLAIN", b"", b"\0Administrator\0wrong")
    request = (b"GET /pools/default HTTP/1.1\r\nHost: localhost\r\n"
               b"Authorization: Basic QWRtaW5pc3RyYXRvcjp3cm9uZw==\r\n\r\n")  # fmt: skip

    def flood(port, data):
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as one:
                one.sendall(data * 50)
                while one.recv(65536):
                    pass

    doors = ((world.node.kv, wrong), (world.node.ports["http"], request)) * 8
    floods = [threading.Thread(target=flood, args=door) for door in doors]
    for thread in floods:
        thread.start()
    for thread in floods:
        thread.join(60)
    took = time.monotonic() - began
    lines = [line for line in log.read_bytes()[before:].splitlines() if b"authentication failed" in line]
    assert 0 < len(lines) <= took + 2, f"{len(lines)} lines in {took:.0f} s"
    print(f"     {log.stat().st_size - before} bytes of log in {took:.0f} s")
    eventually("a right login gets in", lambda: logs_in(world), seconds=60)
    world.fine()


def logs_in(world):
    try:
        world.connect().close()
    except (AssertionError, Closed, OSError):
        return False
    return True


@suite.test
def pages_of_others_and_bodies_without_end(world):
    def status(head, body=b""):
        login = b"Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\n"
        with socket.create_connection(("127.0.0.1", world.node.ports["http"]), timeout=30) as one:
            try:
                one.sendall(head + login + b"\r\n" + body)
            except OSError:
                pass  # it was refused before all of it was sent
            try:
                return one.recv(65536)[9:12]
            except ConnectionResetError:
                return b"413"

    read = b"GET /pools/default HTTP/1.1\r\n"
    make = b"POST /pools/default/buckets HTTP/1.1\r\nContent-Length: 0\r\nHost: localhost\r\n"
    equal(status(read + b"Host: localhost:1\r\n"), b"200")
    equal(status(read + b"Host: evil.example\r\n"), b"403", "a name that was let point here")
    equal(status(make + b"Origin: http://evil.example\r\n"), b"403")
    equal(status(make + b"Sec-Fetch-Site: cross-site\r\n"), b"403")
    equal(status(make), b"400", "what is no browser goes on working")
    chunks = (b"10000\r\n" + bytes(0x10000) + b"\r\n") * 500
    chunked = make.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    equal(status(chunked, chunks), b"413")
    world.fine()


@suite.test
def nothing_was_left_behind(world):
    world.fine()
    connection = world.connect()
    for opcode, extras, expected in ((SET, bytes(8), SUCCESS), (0x02, bytes(8), EXISTS)):
        equal(key_call(connection, opcode, b"end", extras, b"value").status, expected)
    equal(key_call(connection, GET, b"end").value, b"value")
    connection.close()
    neighbour = world.neighbour
    growth = neighbour.resident_max - neighbour.resident_first
    print(
        f"     the neighbour was answered {neighbour.answers} times, at worst after "
        f"{neighbour.slowest * 1000:.0f} ms; memory grew by at most {growth // MIB} MiB"
    )
    assert growth < 2 * GROWTH_MAX, f"memory grew by {growth // MIB} MiB"
    assert neighbour.slowest < 5, f"the neighbour waited {neighbour.slowest:.1f} s"
    world.neighbour.stop.set()
    world.neighbour.join(10)
    world.node.stop()


if __name__ == "__main__":
    suite.main(World())
