"""What many clients see of few keys can have happened one after the other, whatever becomes of the node.

Clients read, write, replace by CAS, count and delete, all on the same keys at the same time; `lib/linear.py`
judges what they were answered, key by key. Once on a node alone; and once with durable writes on two nodes, of
which the active one is killed and the other promoted.

usage: suite.py [name of a test]
"""

import random
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, Suite, equal, eventually
from linear import Op, linearizable
from mcbp import DELETE, EXISTS, GET, NOT_FOUND, REPLACE, SET, SUCCESS, Closed, Connection, key_call
from mcbp import FEATURE_MUTATION_SEQNO, FEATURE_SELECT_BUCKET, FEATURE_XERROR
from pair import CATCH_UP_SECONDS, Pair, promote, stats

INCREMENT = 0x05
CLIENTS = 5
MAJORITY = bytes([0x11, 1])
FEATURES = (FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, 0x10, 0x11)  # framing, durable writes
# Of each key, so many operations on average; several keys are in use at the same time.
OPS_OF_A_KEY = 40
KEYS_AT_ONCE = 4

suite = Suite("histories")


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
        more = {} if kind == "get" or not self.world.durable else {"framing": MAJORITY}
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
        if answer is None:
            # Refused or ambiguous: it may have happened all the same, or happen later.
            self.world.note(key, Op(called=called, **asked))
            return
        cas = reply.cas if answer == "done" and kind != "delete" else None
        if cas:
            self.cas[key] = cas
        self.world.note(key, Op(called=called, answered=answered, answer=answer, cas=cas, **asked))


class World:
    """What clients share: the node, and the histories of all keys."""

    def __init__(self, node, durable):
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
        wrong = [key for key, history in self.histories.items() if not linearizable(history)]
        if wrong:
            history = sorted(self.histories[wrong[0]], key=lambda op: op.called)
            raise AssertionError(f"{len(wrong)} of {len(self.histories)}; {wrong[0]}: " + "\n".join(map(str, history)))
        known = sum(op.answer != "unknown" for history in self.histories.values() for op in history)
        if known < least:
            raise AssertionError(f"{known} answers say nothing")


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
        world = World(node, durable=False)
        world.work(15_000)
        world.judge(14_000)
    finally:
        node.close()


@suite.test
def clients_of_two_nodes_agree_through_a_kill_and_a_promotion():
    with Pair("--bucket", "default:128") as pair:
        # Before that a majority is the active node alone.
        streaming = lambda: stats(pair.replica, "replication")["streams"] == "1024"
        eventually("all streams are open", streaming, CATCH_UP_SECONDS)
        world = World(pair.active, durable=True)
        eventually("durable writes are done", lambda: world.begun > 2000, 60)
        pair.active.kill()
        promote(pair.replica)
        world.node = pair.replica
        world.work(2000)
        world.judge(2000)


if __name__ == "__main__":
    suite.main()
