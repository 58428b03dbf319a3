"""Faults that last: a disk that turns read-only, a sync that does not return, a directory that somebody
removes, descriptors that run out, a clock that jumps. While they last the node says so, goes on with what
it can, and answers nothing as durable that is not; when they are over it goes on by itself, or says why
it cannot.
"""

import resource
import shutil
import signal
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
# Its nodes and writers; this file is `suite` to nobody.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))

from harness import Node, Suite, binary, equal, eventually
from manage import must
from mcbp import (
    FEATURE_JSON,
    GET,
    NOT_FOUND,
    OUT_OF_MEMORY,
    SET,
    SUCCESS,
    SYNC_WRITE_AMBIGUOUS,
    TEMPORARY_FAILURE,
    Connection,
    frame,
    key_call,
    vbucket_of,
)
from suite import ON_ACTIVE, TIMEOUT_MS, Faulty, Flood, World, stats

GET_RANDOM_KEY = 0xB6
MULTI_MUTATION, DICT_UPSERT, FEATURE_XATTR = 0xD1, 0xC8, 0x06
# Flags of a path: an attribute, which is made if it is missing.
ATTRIBUTE_AND_PARENTS = 0x05
ROUNDS = 8

suite = Suite("lasting")
QUOTA_MIB, MIB = 32, 1 << 20


class Large(Flood):
    """Large documents, of which two rounds fill a log."""

    PATIENCE = bytes([0x13, 2]) + (2_000).to_bytes(2, "big")

    def whole(self, connection):
        """Whether all of them are durable."""
        return self.round(connection) == len(self.KEYS)


class Small(Large):
    """Small documents, for which nobody waits long."""

    BYTES, KEYS = 100, [b"small-%d" % number for number in range(12)]
    PATIENCE = ON_ACTIVE


def plain(connection, key, value=b"x"):
    """Writes a document that nobody waits for; returns the status."""
    return key_call(connection, SET, key, bytes(8), value).status


def ends(node, seconds=30):
    """Asks the node to stop; returns its exit code."""
    node.process.send_signal(signal.SIGTERM)
    return node.process.wait(seconds)


@suite.test
def a_sync_hangs(world):
    node, small = Faulty(world.shim, QUOTA_MIB), Small()
    node.plan = {"OPS": "sync", "KIND": "hang"}
    with node.watched():
        node.start().ready()
        connection = small.connect(node)
        eventually("writes are durable", lambda: small.whole(connection))
        node.switch(1)
        # Who waits for the disk is told in time that nobody knows.
        key = b"in doubt"
        connection.send(frame(SET, key, bytes(8), b"1", vbucket=vbucket_of(key), framing=ON_ACTIVE))
        started = time.monotonic()
        equal(connection.receive().status, SYNC_WRITE_AMBIGUOUS)
        took = time.monotonic() - started
        assert TIMEOUT_MS / 1000 <= took + 0.01 < 3, f"after {took} s"
        # Others go on, whatever they ask, up to the quota.
        statuses = {plain(connection, b"plain-%d" % n, bytes(30_000)) for n in range(1_500)}
        assert statuses <= {SUCCESS, TEMPORARY_FAILURE, OUT_OF_MEMORY}, statuses
        assert statuses != {SUCCESS}, "what cannot be persisted must be bounded"
        resident = node.resident_bytes() >> 20
        assert resident < 64 + 2 * QUOTA_MIB, f"{resident} MiB"
        equal(key_call(connection, GET, small.KEYS[0]).status, SUCCESS)
        rows = stats(node)
        assert int(rows["ep_diskqueue_items"]) > 300, rows["ep_diskqueue_items"]
        # And when the disk goes on, so does everything.
        node.switch(0)
        eventually("writes are durable again", lambda: small.whole(connection))
        eventually("all is persisted", lambda: stats(node)["ep_diskqueue_items"] == "0")
        node.switch(1)
        eventually("a write is taken", lambda: plain(connection, b"late") == SUCCESS)
        node.process.send_signal(signal.SIGTERM)
        eventually("it says what it waits for", lambda: "waiting for the disk" in node.tail(), seconds=30)
        assert node.alive()
        node.switch(0)
        equal(node.process.wait(30), 0)
        node.restart_healed(60)
        small.check(node)
        equal(key_call(small.connect(node), GET, b"late").status, SUCCESS)


@suite.test
def a_disk_turns_read_only(world):
    node, small = Faulty(world.shim), Small()
    node.plan = {"OPS": "write", "KIND": "readonly", "EVERY": 1}
    with node.watched():
        node.start().ready()
        connection = small.connect(node)
        eventually("writes are durable", lambda: small.whole(connection))
        node.switch(1)
        equal(small.round(connection), 0, "durable on a disk that takes nothing")
        equal(plain(connection, b"plain"), SUCCESS)
        equal(key_call(connection, GET, b"plain").status, SUCCESS)
        equal(stats(node)["ep_flusher_state"], "retrying")
        node.switch(0)
        eventually("writes are durable again", lambda: small.whole(connection))
        node.switch(1)
        equal(plain(connection, b"late"), SUCCESS)
        assert ends(node) != 0, "it stopped with what it could not persist"
        node.restart_healed()
        small.check(node)


@suite.test
def it_is_started_on_a_read_only_disk(world):
    node = Faulty(world.shim)
    read_only = {"OPS": "write", "KIND": "readonly", "AT": 1, "COUNT": 1_000_000}
    with node.watched():
        # A new directory, then one with documents.
        for _ in range(2):
            node.plan = read_only
            node.ports = {}
            try:
                node.start()
            except AssertionError as error:
                assert "Read-only file system" in str(error), error
            else:
                raise AssertionError("it serves what it cannot persist")
            node.plan = {}
            node.start().ready()
            node.stop()


@suite.test
def its_directory_is_removed(_):
    node, small = Node("--bucket", "default:64"), Small()
    with node.watched():
        node.start().ready()
        connection = small.connect(node)
        eventually("writes are durable", lambda: small.whole(connection))
        # The node still makes files there: a removal that meets a new one begins again.
        eventually("its directory is removed", lambda: shutil.rmtree(node.data) or True)
        equal(small.round(connection), 0, "durable in a directory that is not there")
        equal(key_call(connection, GET, small.KEYS[0]).status, SUCCESS)
        equal(stats(node)["ep_flusher_state"], "failed")
        assert "was removed" in node.tail(), "it does not say what happened"
        equal(plain(connection, b"plain"), SUCCESS)
        connection.close()
        assert ends(node) != 0, "it stopped with what it could not persist"


@suite.test
def descriptors_run_out(_):
    node, small = Node("--bucket", "default:64"), Small()
    with node.watched():
        large = Large()
        node.start().ready()
        connection = small.connect(node)
        eventually("writes are durable", lambda: small.whole(connection))
        used = len(list(Path(f"/proc/{node.process.pid}/fd").iterdir()))
        limits = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        ports = (node.kv, node.ports["http"])
        crowd = [socket.create_connection(("127.0.0.1", port)) for port in ports for _ in range(20)]
        before = node.processor_ns()
        time.sleep(1)
        busy = (node.processor_ns() - before) / 1e9
        assert busy < 0.5, f"{busy} s of processor time for connections that cannot be accepted"
        equal(node.log.read_text().count("could not be accepted"), len(ports), "lines of the log about them")
        # The next log cannot be made: nothing more is durable, and nothing is lost.
        for _ in range(2):
            large.round(connection)
        equal(small.round(connection), 0, "durable without a log")
        equal(connection.stats()["ep_flusher_state"], "retrying")
        equal(key_call(connection, GET, small.KEYS[0]).status, SUCCESS)
        for one in crowd:
            one.close()
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, limits)
        eventually("writes are durable again", lambda: large.whole(connection), seconds=40)
        new = small.connect(node)
        eventually("writes are durable", lambda: small.whole(new))
        new.close()
        node.kill()
        node.ports = {}
        node.start().ready()
        small.check(node)
        large.check(node)


@suite.test
def files_may_not_grow(_):
    node, small, large = Node("--bucket", "default:64"), Small(), Large()
    with node.watched():
        node.start().ready()
        connection = small.connect(node)
        eventually("writes are durable", lambda: small.whole(connection) and large.whole(connection))
        limits = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (MIB, limits[1]))
        equal(plain(connection, b"late"), SUCCESS)
        large.round(connection)
        equal(small.round(connection), 0, "durable in files that may not grow")
        equal(connection.stats()["ep_flusher_state"], "retrying")
        assert "File too large" in node.tail(), node.tail()
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, limits)
        eventually("writes are durable again", lambda: small.whole(connection))
        eventually("all is persisted", lambda: connection.stats()["ep_diskqueue_items"] == "0")
        node.kill()
        node.start().ready()
        small.check(node)
        large.check(node)
        equal(key_call(small.connect(node), GET, b"late").status, SUCCESS)


@suite.test
def a_flushed_bucket_gives_its_space_back(_):
    node, large = Node("--bucket", "default:256"), Large()
    with node.watched():
        node.start().ready()
        connection = large.connect(node)
        for number in range(8_000):
            equal(plain(connection, b"document-%d" % number, bytes(20_000)), SUCCESS)
        eventually("all is persisted", lambda: connection.stats()["ep_diskqueue_items"] == "0")
        connection.close()

        def used():
            return sum(file.stat().st_blocks * 512 for file in node.data.rglob("*") if file.is_file())

        # A file that is removed meanwhile has no size: then it is counted again.
        eventually("the documents use space", lambda: used() > 8_000 * 20_000)
        must(node, "POST", "/pools/default/buckets/default", flushEnabled="1")
        must(node, "POST", "/pools/default/buckets/default/controller/doFlush")
        eventually("its space is free", lambda: used() < 8_000 * 10_000, seconds=30)


@suite.test
def the_time_of_day_jumps(world):
    node, small = Faulty(world.shim), Small()
    node.plan = {}
    with node.watched():
        node.start().ready()
        connection = small.connect(node)
        hour = 3600
        cas = []

        def write(key, expiry=0):
            extras = (0).to_bytes(4, "big") + expiry.to_bytes(4, "big")
            reply = key_call(connection, SET, key, extras, b"x")
            equal(reply.status, SUCCESS)
            if key == b"a":
                cas.append(reply.cas)

        def there(key):
            return key_call(connection, GET, key).status == SUCCESS

        write(b"a")
        before = 0
        for jump in (-24 * hour, 24 * hour, -2 * hour, 0):
            write(b"hour-%d" % jump, hour)
            write(b"absolute-%d" % jump, int(time.time()) + 10 * 24 * hour)
            node.set_clock(jump)
            eventually("the jump is seen", lambda: there(b"hour-%d" % jump) == (jump < before + hour))
            before = jump
            assert there(b"a") and there(b"absolute-%d" % jump), jump
            write(b"a")
            # What is waited for is waited for by another clock.
            eventually("writes are durable", lambda: small.whole(connection))
        assert cas == sorted(set(cas)), f"CAS values go up, whatever the clock says: {cas}"
        node.set_clock(-24 * hour)
        node.kill()
        node.ports = {}
        node.start().ready()
        node.set_clock(-48 * hour)
        connection = small.connect(node)
        small.check(node)
        write(b"a")
        assert cas[-1] > cas[-2], "after a restart, too"


@suite.test
def documents_of_any_size_take_little_more_than_the_quota(_):
    """Three times the quota of each size."""
    quota = 100 << 20
    for size in (20_000, 4_000, 200_000, 1_000):
        node = Node("--bucket", f"default:{quota >> 20}")
        try:
            node.start().ready()
            empty = node.resident_bytes() >> 20
            connection = Connection(node.kv, seconds=30)
            connection.login()
            keys = [b"%d" % number for number in range(3 * quota // size)]
            burst = (1 << 20) // size
            for first in range(0, len(keys), burst):
                some = keys[first : first + burst]
                bursts = (frame(SET, key, bytes(8), bytes(size), vbucket=vbucket_of(key)) for key in some)
                connection.send(b"".join(bursts))
                for _ in some:
                    status = connection.receive().status
                    assert status in (SUCCESS, TEMPORARY_FAILURE), status
            # A program that is not optimised has more code in memory.
            most = (node.most_resident_bytes() >> 20) - empty
            assert most < 1.15 * (quota >> 20), f"{most} MiB more than empty with documents of {size} bytes"
        finally:
            node.close()


@suite.test
def a_bucket_that_holds_few_large_documents_replaces_them_for_ever(_):
    """Two clients, each with a document and an attribute; a write is sent once more on average at most."""
    value = b'{"a":"' + b"x" * 15_000_000 + b'"}'
    attribute = struct.pack(">BBHI", DICT_UPSERT, ATTRIBUTE_AND_PARENTS, 4, 1) + b"meta" + b"1"
    for eviction in ("value", "full"):
        node = Node("--bucket", f"default:100:couchbase:{eviction}").start()
        with node.ready().watched(eviction):
            refused = [0, 0]

            def replace(client, node=node, refused=refused):
                connection = Connection(node.kv, seconds=60)
                connection.login()
                connection.hello(FEATURE_JSON, FEATURE_XATTR)
                key = b"large-%d" % client
                writes = [(SET, bytes(8), value), (MULTI_MUTATION, b"", attribute)]
                for opcode, extras, body in writes * ROUNDS:
                    while key_call(connection, opcode, key, extras, body).status != SUCCESS:
                        refused[client] += 1
                connection.close()

            with ThreadPoolExecutor() as clients:
                list(clients.map(replace, range(2)))
            assert sum(refused) <= 4 * ROUNDS, f"{refused} refusals before {4 * ROUNDS} writes"


@suite.test
def with_full_eviction_a_killed_node_starts_without_its_documents(_):
    """All of them are counted, served, and come back by themselves; absent keys are absent, and some are drawn at random."""
    node = Node("--bucket", "default:100:couchbase:full")
    try:
        connection = Connection(node.start().ready().kv, seconds=30)
        connection.login()
        keys = [b"key-%d" % number for number in range(500)]
        for key in keys:
            equal(key_call(connection, SET, key, bytes(8), b"value of " + key).status, SUCCESS, key)
        eventually("all is on disk", lambda: connection.stats()["ep_queue_size"] == "0")
        node.kill()
        connection = Connection(node.start().ready().kv, seconds=30)
        connection.login()
        equal(connection.stats()["curr_items"], "500", "documents")
        eventually("all are in memory", lambda: connection.stats()["vb_active_num_non_resident"] == "0")
        drawn = connection.call(GET_RANDOM_KEY)
        equal(drawn.status, SUCCESS, "a random key")
        assert drawn.key in keys and drawn.value == b"value of " + drawn.key, drawn
        for key in keys:
            equal(key_call(connection, GET, key).value, b"value of " + key)
            equal(key_call(connection, GET, b"no " + key).status, NOT_FOUND)
    finally:
        node.close()


if __name__ == "__main__":
    binary()
    suite.main(World())
