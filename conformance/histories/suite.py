"""What many clients see of few keys can have happened one after the other, whatever becomes of the node.

Clients read, write, replace by CAS, count and delete, all on the same keys at the same time; `lib/linear.py`
judges what they were answered, key by key. Once on a node alone; with durable writes on two nodes, of which the
active one is killed and the other promoted; and while what lies between the two is slow, stands still or is cut, and
either is killed and comes back.

usage: suite.py [name of a test]
"""

import random
import selectors
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, Suite, equal, eventually
from linear import Op, linearizable, must_be_linearizable
from mcbp import (
    DELETE,
    EXISTS,
    FEATURE_ALT_REQUEST,
    FEATURE_SYNC_REPLICATION,
    GET,
    NOT_FOUND,
    NOT_MY_VBUCKET,
    REPLACE,
    SET,
    SUCCESS,
    SYNC_WRITE_AMBIGUOUS,
    SYNC_WRITE_IN_PROGRESS,
    TEMPORARY_FAILURE,
    Closed,
    Connection,
)
from mcbp import frame, key_call, vbucket_of
from mcbp import FEATURE_MUTATION_SEQNO, FEATURE_SELECT_BUCKET, FEATURE_XERROR
from pair import Apart, Pair, log_in, promote

INCREMENT = 0x05
CLIENTS = 5
SYNC_WRITE_RECOMMIT_IN_PROGRESS = 0xA4
# With these nothing happened, and nothing will.
REFUSED = (NOT_MY_VBUCKET, TEMPORARY_FAILURE, SYNC_WRITE_IN_PROGRESS, SYNC_WRITE_RECOMMIT_IN_PROGRESS)
FEATURES = (FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET,
            FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION)  # fmt: skip
# Of each key, so many operations on average; several keys are in use at the same time.
OPS_OF_A_KEY = 40
KEYS_AT_ONCE = 4

suite = Suite("histories")


def level(number, milliseconds=30_000):
    """The frame info of a durable write."""
    return bytes([0x13, number]) + struct.pack(">H", milliseconds)


MAJORITY, PERSIST_TO_MAJORITY = level(1), level(3)


class Client(threading.Thread):
    """Works on the keys; where it cannot know what became of an operation, it says so."""

    def __init__(self, world, number):
        super().__init__(daemon=True)
        self.world, self.number = world, number
        self.random = random.Random(number)
        self.written = 0
        self.cas = {}
        self.connection = None

    def run(self):
        while not self.world.stopped:
            with self.world.turn:
                self.world.begun += 1
                first = self.world.begun // OPS_OF_A_KEY
            key = b"key-%d" % (first + self.random.randrange(KEYS_AT_ONCE))
            try:
                if self.connection is None:
                    self.connection = Connection(self.world.node.kv, seconds=30)
                    self.connection.hello(*FEATURES)
                    self.connection.login()
                self.step(key)
            except (OSError, Closed, AssertionError):
                self.connection = None
                time.sleep(0.01)

    def step(self, key):
        kind = self.random.choice(("get", "get", "get", "set", "replace", "add_one", "delete"))
        if kind == "replace" and key not in self.cas:
            kind = "get"
        self.written += 1
        number = self.number * 10_000_000 + self.written
        asked = {"kind": kind, "number": number if kind in ("set", "replace") else None}
        more = {} if kind == "get" or not self.world.durable else {"framing": self.world.durable}
        text, plain = str(number).encode(), bytes(8)
        call = {
            "get": (GET, b"", b""),
            "set": (SET, plain, text),
            "replace": (REPLACE, plain, text),
            "add_one": (INCREMENT, struct.pack(">QQI", 1, 0, 0), b""),
            "delete": (DELETE, b"", b""),
        }[kind]
        if kind == "replace":
            asked["expected"] = more["cas"] = self.cas[key]
        called = time.monotonic()
        try:
            reply = key_call(self.connection, call[0], key, call[1], call[2], **more)
        except (OSError, Closed):
            self.world.note(key, Op(called=called, **asked))
            raise
        answered = time.monotonic()
        words = {SUCCESS: "done", NOT_FOUND: "missing", EXISTS: "exists"}
        answer = words.get(reply.status)
        if answer == "done" and kind in ("get", "add_one"):
            value = reply.value
            asked["number"] = int(value) if kind == "get" else struct.unpack(">Q", value)[0]
        if reply.status in REFUSED:
            return
        if answer is None:
            # Ambiguous: it may have happened all the same, or happen later.
            self.world.note(key, Op(called=called, **asked))
            return
        cas = reply.cas if answer == "done" and kind != "delete" else None
        if cas:
            self.cas[key] = cas
        self.world.note(key, Op(called=called, answered=answered, answer=answer, cas=cas, **asked))


class World:
    """What clients share: the node, and the histories of all keys."""

    def __init__(self, node, durable=None):
        self.node, self.durable = node, durable
        self.turn = threading.Lock()
        self.begun, self.stopped = 0, False
        self.histories = {}
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        for client in self.clients:
            client.start()

    def note(self, key, op):
        with self.turn:
            self.histories.setdefault(key, []).append(op)

    def work(self, ops):
        wanted = self.begun + ops
        eventually("the clients work", lambda: self.begun >= wanted, 60)

    def judge(self, least):
        self.stopped = True
        for client in self.clients:
            client.join(40)
            equal(client.is_alive(), False, "a client hangs")
        must_be_linearizable(self.histories)
        known = sum(op.answer != "unknown" for history in self.histories.values() for op in history)
        if known < least:
            raise AssertionError(f"{known} answers say nothing")


class Crowd(threading.Thread):
    """Many writers, each with a connection and a key of its own, and one durable write under way."""

    def __init__(self, node, count, milliseconds):
        super().__init__(daemon=True)
        self.stopped, self.problem = False, None
        self.framing = level(1, milliseconds)
        self.selector = selectors.DefaultSelector()
        self.sent, self.done, self.ambiguous = [0] * count, [0] * count, 0
        self.writers = []
        for number in range(count):
            connection = Connection(node.kv, seconds=60)
            connection.hello(*FEATURES)
            connection.login()
            self.selector.register(connection.socket, selectors.EVENT_READ, number)
            self.writers.append(connection)
        self.start()

    def run(self):
        try:
            for number in range(len(self.writers)):
                self.write(number)
            while not self.stopped:
                for ready, _ in self.selector.select(0.05):
                    self.answered(ready.data)
        except Exception as error:  # noqa: BLE001 - told by whoever waits
            self.problem = error

    def key(self, number):
        return b"writer-%d" % number

    def write(self, number):
        self.sent[number] += 1
        key, value = self.key(number), str(self.sent[number]).encode()
        more = {"framing": self.framing, "vbucket": vbucket_of(key), "opaque": self.sent[number]}
        self.writers[number].send(frame(SET, key, bytes(8), value, **more))

    def answered(self, number):
        reply = self.writers[number].receive()
        equal(reply.opaque, self.sent[number], "opaque")
        if reply.status == SUCCESS:
            self.done[number] = self.sent[number]
        elif reply.status == SYNC_WRITE_AMBIGUOUS:
            self.ambiguous += 1
        elif reply.status not in REFUSED:
            raise AssertionError(f"{reply!r}")
        self.write(number)

    def each_succeeds(self):
        """Waits until every writer had a write done that began after this was called."""
        begun = list(self.sent)

        def all_have():
            equal(self.problem, None, "a writer's problem")
            return all(done > before for done, before in zip(self.done, begun))

        eventually("every writer gets through", all_have, 40)

    def fails(self, count):
        """Waits until so many more writes were not decided in time."""
        wanted = self.ambiguous + count
        eventually("writes are given up", lambda: self.ambiguous >= wanted, 40)

    def end(self):
        self.stopped = True
        self.join(20)
        equal((self.is_alive(), self.problem), (False, None), "the writers")


@suite.test
def histories_that_cannot_have_happened_are_found():
    def at(kind, called, answered, **more):
        return Op(kind=kind, called=called, answered=answered, answer=more.pop("answer", "done"), **more)

    first, second = at("set", 0, 1, number=1, cas=1), at("set", 2, 3, number=2, cas=2)
    lost = Op(kind="set", called=4, number=9)
    good = [
        [first, second, at("get", 4, 5, number=2, cas=2)],
        # Side by side: either order.
        [first, at("set", 2, 9, number=2, cas=2), at("get", 3, 4, number=2, cas=2), at("get", 5, 6, number=2)],
        [first, lost, at("get", 5, 6, number=9, cas=3)],
        [first, lost, at("get", 5, 6, number=1, cas=1), at("get", 7, 8, number=9, cas=3)],
        [at("add_one", 0, 9, number=0), at("add_one", 0, 9, number=1), at("delete", 10, 11)],
        [first, at("replace", 2, 3, number=4, cas=4, expected=1), at("replace", 4, 5, expected=1, answer="exists")],
    ]
    bad = [
        [first, second, at("get", 4, 5, number=1, cas=1)],
        [first, at("set", 2, 9, number=2), at("get", 3, 4, number=2), at("get", 5, 6, number=1)],
        [first, lost, at("get", 5, 6, number=9), at("get", 7, 8, number=1)],
        [first, at("get", 2, 3, answer="missing")],
        [at("add_one", 0, 9, number=0), at("add_one", 0, 9, number=0)],
        [first, at("replace", 2, 9, number=4, cas=4, expected=1), at("replace", 2, 9, number=5, cas=5, expected=1)],
        [first, at("replace", 2, 3, expected=1, answer="exists")],
        [first, at("delete", 2, 3), at("delete", 4, 5)],
        [first, second, at("get", 4, 5, number=2, cas=1)],
    ]
    for history in good:
        equal(linearizable(history), True, f"a good one: {history}")
    for history in bad:
        equal(linearizable(history), False, f"a bad one: {history}")


@suite.test
def clients_of_a_node_agree_on_what_happened():
    node = Node("--bucket", "default:128").start().ready()
    try:
        world = World(node)
        world.work(15_000)
        world.judge(14_000)
    finally:
        node.close()


@suite.test
def clients_of_two_nodes_agree_through_a_kill_and_a_promotion():
    with Pair("--bucket", "default:128") as pair:
        # Before that a majority is the active node alone.
        pair.streams()
        world = World(pair.active, MAJORITY)
        eventually("durable writes are done", lambda: world.begun > 2000, 60)
        pair.active.kill()
        promote(pair.replica)
        world.node = pair.replica
        world.work(2000)
        world.judge(2000)


@suite.test
def clients_of_two_nodes_agree_through_partitions_and_a_promotion():
    with Apart("--bucket", "default:128") as pair:
        pair.streams()
        world = World(pair.active, level(1, 250))
        chance = random.Random(5)
        for _ in range(3):
            for disturb in chance.sample((pair.wire.freeze, pair.wire.cut, lambda: pair.wire.slow(0.005)), 3):
                disturb()
                world.work(150)
                pair.wire.flow()
                pair.streams()
                world.work(300)
        # Killed while it is cut off, it comes back and gets what it missed.
        pair.wire.cut()
        pair.replica.kill()
        world.work(100)
        pair.wire.flow()
        pair.replica.start()
        pair.streams()
        world.work(300)
        # Whatever was done is with the other one, also of what was under way when the wire was cut.
        pair.wire.cut()
        pair.active.kill()
        promote(pair.replica)
        world.node = pair.replica
        world.work(500)
        world.judge(2000)


@suite.test
def clients_of_two_nodes_agree_through_kills_of_either_where_writes_are_on_disk():
    with Pair("--bucket", "default:128") as pair:
        pair.streams()
        world = World(pair.active, level(3, 1000))
        for node in (pair.replica, pair.active, pair.replica, pair.active):
            world.work(200)
            node.kill()
            # Nobody works without the active node.
            world.work(60 if node is pair.replica else 5)
            node.start().ready()
            pair.streams()
        world.work(300)
        world.judge(500)


@suite.test
def five_hundred_durable_writers_and_a_replica_that_comes_and_goes():
    with Apart("--bucket", "default:128") as pair:
        pair.streams()
        crowd = Crowd(pair.active, 500, 200)
        crowd.each_succeeds()
        for disturb in (pair.wire.cut, pair.wire.freeze, pair.replica.kill, pair.wire.cut):
            disturb()
            # Each of them waits once at least, and most of them again.
            crowd.fails(600)
            pair.wire.flow()
            if not pair.replica.alive():
                pair.replica.start()
            pair.streams()
            crowd.each_succeeds()
        pair.wire.freeze()
        crowd.fails(200)
        crowd.end()
        pair.active.kill()
        promote(pair.replica)
        reader = log_in(pair.replica)
        for number, (done, sent) in enumerate(zip(crowd.done, crowd.sent)):
            key = crowd.key(number)
            # What was prepared last is decided by the new active node.
            read = lambda k=key: next(r for r in [key_call(reader, GET, k)] if r.status == SUCCESS)
            value = int(eventually("it can be read", read).value)
            if not done <= value <= sent:
                raise AssertionError(f"{key!r}: {done} was acknowledged, {sent} sent, {value} is there")


if __name__ == "__main__":
    suite.main()
