"""Several Python SDKs on the same keys of a cluster: what they saw must have an order, key by key (`lib/linear.py`)."""

import random
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CasMismatchException, CouchbaseException, DocumentNotFoundException
from couchbase.options import (
    ClusterOptions, DeltaValue, GetOptions, IncrementOptions, RemoveOptions, ReplaceOptions, SignedInt64, UpsertOptions,
)  # fmt: skip
from couchbase.transcoder import Transcoder
from harness import equal, eventually
from linear import Op, must_be_linearizable

CLIENTS = 4
# Of each key, so many operations on average; several keys are in use at the same time.
OPS_OF_A_KEY = 40
KEYS_AT_ONCE = 4
PAUSE_SECONDS = 0.002
TIMEOUT = timedelta(seconds=6)
LASTS = {"durability": ServerDurability(Durability.MAJORITY), "timeout": TIMEOUT}


class Numbers(Transcoder):
    """Numbers as counters keep them."""

    def encode_value(self, value):
        return str(value).encode(), 0

    def decode_value(self, value, flags):
        return int(value)


def connected(ports):
    """An SDK that knows seeds and nothing else."""
    seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
    login = PasswordAuthenticator("Administrator", "password")
    cluster = Cluster(f"couchbase://{seeds}", ClusterOptions(login, transcoder=Numbers()))
    cluster.wait_until_ready(timedelta(seconds=30))
    return cluster


class Client(threading.Thread):
    """Works on the keys; where it cannot know what became of an operation, it says so."""

    def __init__(self, crowd, number, ports):
        super().__init__(daemon=True)
        self.crowd, self.number = crowd, number
        self.random = random.Random(number)
        self.written, self.cas = 0, {}
        self.documents = connected(ports).bucket("default").default_collection()

    def run(self):
        while not self.crowd.stopped:
            self.step(self.crowd.key(self.random))
            time.sleep(PAUSE_SECONDS)

    def step(self, key):
        kind = self.random.choice(("get", "get", "get", "set", "replace", "add_one", "delete"))
        if kind == "replace" and key not in self.cas:
            kind = "get"
        self.written += 1
        op = SimpleNamespace(kind=kind, called=time.monotonic(), answer="unknown", number=None, cas=None, expected=None)
        if kind in ("set", "replace"):
            op.number = self.number * 10_000_000 + self.written
        if kind == "replace":
            op.expected = self.cas[key]
        try:
            self.call(op, key)
        except DocumentNotFoundException:
            op.answer = "missing"
        except CasMismatchException:
            op.answer = "exists"
        except CouchbaseException as error:
            # It may have happened all the same, or happen later.
            self.crowd.note_failure(error)
        else:
            op.answer = "done"
            self.cas[key] = op.cas or self.cas.get(key, 1)
        if op.answer != "unknown":
            op.answered = time.monotonic()
        if kind != "get" or op.answer != "unknown":
            self.crowd.note(key, Op(**vars(op)))

    def call(self, op, key):
        documents = self.documents
        if op.kind == "get":
            found = documents.get(key, GetOptions(timeout=TIMEOUT))
            op.number, op.cas = found.value, found.cas
        elif op.kind == "set":
            op.cas = documents.upsert(key, op.number, UpsertOptions(**LASTS)).cas
        elif op.kind == "replace":
            op.cas = documents.replace(key, op.number, ReplaceOptions(cas=op.expected, **LASTS)).cas
        elif op.kind == "add_one":
            options = IncrementOptions(initial=SignedInt64(0), delta=DeltaValue(1), **LASTS)
            counted = documents.binary().increment(key, options)
            op.number, op.cas = counted.content, counted.cas
        else:
            documents.remove(key, RemoveOptions(**LASTS))


class Crowd:
    """The clients, and the histories of all keys."""

    def __init__(self, name, ports):
        self.name, self.turn = name, threading.Lock()
        self.begun, self.noted, self.stopped = 0, 0, False
        self.histories, self.failures = {}, {}
        self.clients = [Client(self, number, ports) for number in range(CLIENTS)]
        for client in self.clients:
            client.start()

    def key(self, chance):
        with self.turn:
            self.begun += 1
            return f"{self.name}-{self.begun // OPS_OF_A_KEY + chance.randrange(KEYS_AT_ONCE)}"

    def note(self, key, op):
        with self.turn:
            self.histories.setdefault(key, []).append(op)
            self.noted += op.answer != "unknown"

    def note_failure(self, error):
        with self.turn:
            name = type(error).__name__
            self.failures[name] = self.failures.get(name, 0) + 1

    def work(self, ops, seconds=60):
        """Waits until so many more operations are answered."""
        wanted = self.noted + ops
        eventually("the clients work", lambda: self.noted >= wanted, seconds)

    def judge(self):
        """Ends the clients; all that they saw must have an order."""
        self.stopped = True
        for client in self.clients:
            client.join(40)
            equal(client.is_alive(), False, "a client hangs")
        must_be_linearizable(self.histories)
        print(f"     {self.name}: {self.noted} answers, {len(self.histories)} keys; without: {self.failures}")
