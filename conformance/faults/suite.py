"""Disks that go wrong at one moment: every write and every sync of a node's life, from its start to
its stop, fails once, or is the last thing before the process is killed or the power is lost.

A small library (`shim.c`, compiled here) is put between the node and its files. Documents are written
durably (`majorityAndPersistActive`), so an answer says that they are on disk. After each fault the node
is started anew on what is left, and has every answered write, or a later one, and each key once.

`FAULTS=all` tries every single operation; otherwise some of each kind, other ones in each run.
"""

import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import START_SECONDS, Node, Suite, binary, equal, eventually
from manage import call, manage
from mcbp import (
    DELETE,
    FEATURE_ALT_REQUEST,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_SYNC_REPLICATION,
    FEATURE_UNORDERED,
    FEATURE_XERROR,
    GET,
    NOT_FOUND,
    OUT_OF_MEMORY,
    SET,
    SUCCESS,
    SYNC_WRITE_AMBIGUOUS,
    SYNC_WRITE_IN_PROGRESS,
    TEMPORARY_FAILURE,
    Closed,
    Connection,
    frame,
    key_call,
    vbucket_of,
)

suite = Suite("faults")
TIMEOUT_MS = 400
ON_ACTIVE = bytes([0x13, 2]) + TIMEOUT_MS.to_bytes(2, "big")
PATIENT = bytes([0x13, 2]) + (5_000).to_bytes(2, "big")
KEYS = [b"fault-%d" % number for number in range(12)]
ROUNDS = 6
SAMPLES = 5
SEED = int(os.environ.get("SETTEE_SEED", "1"))
ALL = os.environ.get("FAULTS") == "all"


class Faulty(Node):
    """A node whose disk goes wrong as planned."""

    def __init__(self, shim, quota_mib=64):
        super().__init__("--bucket", f"default:{quota_mib}")
        self.shim = shim
        self.tally = self.home / "tally"
        self.plan = {}

    def command(self):
        if self.plan is None:
            return super().command()
        plan = {"PATH": self.data, "TALLY": self.tally, **self.plan}
        words = [f"FAULT_{name}={value}" for name, value in plan.items()]
        return ["env", f"LD_PRELOAD={self.shim}", *words, *super().command()]

    def operations(self):
        """Writes and syncs so far."""
        return struct.unpack_from("=2q", self.tally.read_bytes())

    def switch(self, on):
        """Lets the operations of a plan with EVERY fail, or no more."""
        self._tell(3, on)

    def set_clock(self, seconds):
        """Makes the time of day wrong by so much."""
        self._tell(4, seconds)

    def _tell(self, place, number):
        with self.tally.open("r+b") as file:
            file.seek(place * 8)
            file.write(struct.pack("=q", number))

    def restart_healed(self, seconds=START_SECONDS):
        """Starts the node anew, on other ports and a good disk."""
        self.plan, self.ports = None, {}
        return self.start(seconds).ready()


class Writer:
    """Writes documents durably, and knows what must be there."""

    def __init__(self):
        self.version = 0
        # Newest answered version of each key, and all that may be there; None is no document.
        self.least = dict.fromkeys(KEYS, 0)
        self.possible = {key: {0: None} for key in KEYS}

    def connect(self, node):
        connection = Connection(node.kv, seconds=20)
        connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET,
                         FEATURE_UNORDERED, FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION)  # fmt: skip
        return connection.login()

    def round(self, connection, chance):
        """Writes every key once; returns how many were answered as durable."""
        sent = {}
        data = []
        for key in KEYS:
            self.version += 1
            value = b"%s %d " % (key, self.version) + b"x" * chance.choice((1, 100, 5000))
            if chance.random() < 0.15:
                value = None
            where = {"vbucket": vbucket_of(key), "framing": ON_ACTIVE, "opaque": self.version}
            self.possible[key][self.version] = value
            data.append(frame(DELETE, key, **where) if value is None
                        else frame(SET, key, bytes(8), value, **where))  # fmt: skip
            sent[self.version] = key
        connection.send(b"".join(data))
        durable = 0
        for _ in KEYS:
            reply = connection.receive()
            version, status = reply.opaque, reply.status
            key = sent.pop(version)
            if status == SUCCESS:
                self.least[key] = version
                durable += 1
            elif status in (TEMPORARY_FAILURE, SYNC_WRITE_IN_PROGRESS, NOT_FOUND):
                del self.possible[key][version]
            elif status != SYNC_WRITE_AMBIGUOUS:
                raise AssertionError(f"{key!r}: status {status:#04x}")
        return durable

    def check(self, node):
        """What is there was written, and is not older than what was answered."""
        connection = self.connect(node)
        found = 0
        for key in KEYS:
            # A prepare that was on disk is decided after the start.
            decided = lambda: key_call(connection, GET, key).status in (SUCCESS, NOT_FOUND)
            eventually(f"{key!r} is decided", decided)
            reply = key_call(connection, GET, key)
            value = reply.value if reply.status == SUCCESS else None
            found += value is not None
            allowed = [v for at, v in self.possible[key].items() if at >= self.least[key]]
            if value not in allowed:
                seen = "nothing" if value is None else value[:20]
                newest = [at for at, v in self.possible[key].items() if v == value]
                raise AssertionError(
                    f"{key!r}: found {seen} (version {newest}), answered was {self.least[key]}"
                )
        equal(int(connection.stats()["curr_items"]), found, "documents that are counted")
        connection.close()


def warm(node):
    """Whether it serves, or tells that its first commit failed, so that it keeps nothing."""
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{node.ports['http']}/readyz").status == 200
    except urllib.error.HTTPError as refusal:
        return b"cannot persist any more" in refusal.read()
    except OSError:
        return not node.alive()  # the fault has ended it


def life(node, writer, chance):
    """Starts the node, writes, stops it; returns what it could not do, if anything."""
    try:
        node.start()
    except AssertionError as error:
        return str(error)
    eventually("it tells how it is", lambda: warm(node))
    failed = 0
    try:
        connection = writer.connect(node)
        for _ in range(ROUNDS):
            failed += writer.round(connection, chance) == 0
            if failed == 2:
                break  # nothing is durable any more
        connection.close()
        if node.plan.get("KIND") == "full":
            again = writer.connect(node)
            recovered = lambda: writer.round(again, chance) == len(KEYS)
            eventually("writes are durable again", recovered, seconds=40)
            again.close()
        node.process.send_signal(signal.SIGTERM)
        node.process.wait(30)
    except (Closed, OSError):
        node.process.wait(30)  # its connections end a moment before it does
    return None


def end(node):
    """Makes sure that the node is gone, and tells how."""
    if node.alive():
        node.kill()
    return node.process.returncode


class World:
    """The shim, and how much a life without faults does to its disk."""

    def __init__(self):
        print(f"faults: seed {SEED}")
        self.folder = Path(tempfile.mkdtemp(prefix="settee-faults-"))
        self.shim = self.folder / "shim.so"
        source = Path(__file__).with_name("shim.c")
        build = ["gcc", "-shared", "-fPIC", "-O1", "-o", self.shim, source, "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        node, writer = Faulty(self.shim), Writer()
        equal(life(node, writer, random.Random(SEED)), None, "a life without faults")
        self.writes, self.syncs = node.operations()
        equal(end(node), 0, "exit code of a life without faults")
        assert self.writes > 20 and self.syncs > 10, "the shim sees nothing"
        node.restart_healed()
        writer.check(node)
        node.close()
        print(f"     a life without faults makes {self.writes} writes and {self.syncs} syncs")

    def close(self):
        self.shim.unlink()
        self.folder.rmdir()


def attempt(world, number, plan):
    """One life with a fault, and what is left of it."""
    chance = random.Random(SEED + number)
    node, writer = Faulty(world.shim), Writer()
    with node.watched(plan):
        node.plan = plan
        refused = life(node, writer, chance)
        code = end(node)
        # SIGABRT, SIGSEGV: a bug. SIGKILL is what some plans are about.
        assert code not in (-6, -11, 134, 139), f"it crashed with {code}:\n{node.tail()}"
        if refused and plan["KIND"] in ("full", "error"):
            assert "settee:" in node.tail(), f"it did not say why it refused:\n{node.tail()}"
        node.restart_healed()
        writer.check(node)
        # And it goes on.
        connection = writer.connect(node)
        durable = lambda: writer.round(connection, chance) == len(KEYS)
        eventually("writes are durable", durable)
        connection.close()
        node.stop()


def attempts(world, kind, ops, **more):
    total = world.writes if ops == "write" else world.syncs
    numbers = range(1, total + 1)
    if not ALL:
        numbers = sorted(random.Random(SEED).sample(numbers, min(SAMPLES, total)))
    started = time.monotonic()
    for number in numbers:
        attempt(world, number, {"AT": number, "KIND": kind, "OPS": ops, **more})
        if time.monotonic() - started > 60 and not ALL:
            break


@suite.test
def a_write_finds_the_disk_full(world):
    attempts(world, "full", "write", COUNT=1)


@suite.test
def some_writes_find_the_disk_full(world):
    attempts(world, "full", "write", COUNT=5)


@suite.test
def a_write_fails(world):
    attempts(world, "error", "write")


@suite.test
def a_sync_fails_and_loses_what_it_was_for(world):
    attempts(world, "error", "sync")


@suite.test
def it_is_killed_in_the_middle_of_a_write(world):
    attempts(world, "torn", "write")


@suite.test
def the_power_is_lost_at_a_write(world):
    attempts(world, "power", "write")


@suite.test
def the_power_is_lost_at_a_sync(world):
    attempts(world, "power", "sync")


class Flood:
    """Replaces large documents durably, again and again, and knows which versions may be there."""

    BYTES, KEYS = 1_000_000, [b"large-%d" % number for number in range(16)]
    PATIENCE = PATIENT

    def __init__(self):
        self.version = 0
        self.durable, self.newest = dict.fromkeys(self.KEYS, 0), dict.fromkeys(self.KEYS, 0)
        self.refused = 0

    def connect(self, node):
        return Writer().connect(node)

    def round(self, connection):
        """Replaces every document; returns how many were answered as durable."""
        sent = {}
        for key in self.KEYS:
            self.version += 1
            sent[self.version] = key
            self.newest[key] = self.version
            value = b"%d " % self.version + b"x" * self.BYTES
            where = {"vbucket": vbucket_of(key), "framing": self.PATIENCE, "opaque": self.version}
            connection.send(frame(SET, key, bytes(8), value, **where))
        durable = 0
        for _ in self.KEYS:
            reply = connection.receive()
            if reply.status == SUCCESS:
                self.durable[sent[reply.opaque]] = reply.opaque
                durable += 1
            elif reply.status not in (TEMPORARY_FAILURE, OUT_OF_MEMORY, SYNC_WRITE_IN_PROGRESS,
                                      SYNC_WRITE_AMBIGUOUS):  # fmt: skip
                raise AssertionError(f"status {reply.status:#04x}")
        return durable

    def check(self, node):
        connection = self.connect(node)
        for key in self.KEYS:
            found = int(key_call(connection, GET, key).value.split()[0])
            assert self.durable[key] <= found <= self.newest[key], (
                f"{key!r}: found {found}, durable was {self.durable[key]}"
            )
        connection.close()


def stats(node):
    connection = Writer().connect(node)
    rows = connection.stats()
    connection.close()
    return rows


def merges_fail(world, plan):
    """Merges fail under load, for a while: nothing else does, then nothing at all."""
    node, flood = Faulty(world.shim), Flood()
    node.plan = {"FILES": "/run-", **plan}
    with node.watched(plan):
        node.start().ready()
        node.switch(1)
        connection = flood.connect(node)
        equal(flood.round(connection), len(flood.KEYS), "durable before a merge")
        # A run is made of 32 MB, and runs of which a third is dead are merged. A merge that fails is tried again
        # after 100 ms, so every one has to fail, however few operations it takes.
        for _ in range(60):
            flood.round(connection)
            if int(stats(node)["ep_store_merges_failed"]) > 1:
                break
        rows = stats(node)
        assert int(rows["ep_store_merges_failed"]) > 1, "merges were to fail"
        for _ in range(6):
            equal(flood.round(connection), len(flood.KEYS), "durable while merges fail")
        equal(stats(node)["ep_flusher_state"], "running", "flusher")
        node.switch(0)
        merges = int(rows["ep_store_merges"])
        eventually("merges succeed", lambda: int(stats(node)["ep_store_merges"]) > merges, seconds=60)
        files = len(list(node.data.glob("**/run-*")))
        assert files < 30, f"{files} runs: failed merges leave something"
        equal(flood.round(connection), len(flood.KEYS), "durable after it")
        connection.close()
        end(node)
        node.restart_healed()
        flood.check(node)


@suite.test
def some_reads_fail_while_runs_are_merged(world):
    merges_fail(world, {"OPS": "read", "KIND": "error", "EVERY": 3, "THREAD": "merge"})


@suite.test
def a_merge_finds_the_disk_full(world):
    merges_fail(world, {"OPS": "write", "KIND": "full", "EVERY": 3, "THREAD": "merge"})


@suite.test
def a_merge_cannot_write(world):
    merges_fail(world, {"OPS": "write", "KIND": "error", "EVERY": 3, "THREAD": "merge"})


@suite.test
def every_fiftieth_read_fails_under_load(world):
    """Of any file: commits may be refused for a while, and go on when reads succeed again."""
    node, flood = Faulty(world.shim), Flood()
    node.plan = {"OPS": "read", "KIND": "error", "EVERY": 50}
    with node.watched():
        node.start().ready()
        node.switch(1)
        connection = flood.connect(node)
        # A round of writes that are refused or not durable in time takes seconds.
        until = time.monotonic() + 20
        for _ in range(40):
            flood.round(connection)
            if time.monotonic() > until:
                break
        rows = stats(node)
        failed = int(rows["ep_store_merges_failed"]) + int(rows["ep_store_runs_failed"])
        assert failed > 0, "reads were to fail"
        node.switch(0)
        durable = lambda: flood.round(connection) == len(flood.KEYS)
        eventually("writes are durable again", durable, seconds=40)
        connection.close()
        end(node)
        node.restart_healed()
        flood.check(node)


@suite.test
def a_bucket_is_emptied_with_few_syncs(world):
    """However many of its vBuckets hold something: nothing, the collections alone, documents."""
    node, bucket = Faulty(world.shim), "/pools/default/buckets/default"
    with node.watched():
        node.start().ready()
        equal(call(node, "POST", bucket, flushEnabled="1")[0], 200, "flushing allowed")
        manage(node, "POST", "", name="shop")
        manage(node, "POST", "/shop/collections", name="chairs")
        writer = Writer()
        for full in (False, True, False):
            if full:
                connection = writer.connect(node)
                assert writer.round(connection, random.Random(1)) > 0, "no write is durable"
                connection.close()
            eventually("all is on disk", lambda: int(stats(node)["ep_queue_size"]) == 0)
            _, before = node.operations()
            equal(call(node, "POST", f"{bucket}/controller/doFlush")[0], 200, "flushed")
            made = node.operations()[1] - before
            assert made <= 10, f"{made} syncs, documents: {full}"


if __name__ == "__main__":
    binary()
    suite.main(World())
