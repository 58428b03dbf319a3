"""`settee replicate`: two nodes that both have what was written to either, also when one of them or the
command itself is killed.
"""

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from certificates import client_certificate
from harness import Node, Suite, address, begun, binary, equal, eventually, finished
from manage import must
from mcbp import (
    DELETE, FEATURE_COLLECTIONS, FEATURE_SNAPPY, FEATURE_XERROR, GET, HELLO, NOT_FOUND, SET, SUCCESS, Connection,
    collection_key, vbucket_of,
)  # fmt: skip

suite = Suite("replicate")

GET_META, GET_COLLECTION_ID = 0xA0, 0xBB
SET_WITH_META, DEL_WITH_META = 0xA2, 0xA8
SUBDOC_GET, SUBDOC_UPSERT = 0xC5, 0xC8
FEATURE_XATTR, XATTR_PATH, MKDIR_P, ACCESS_DELETED = 0x06, 0x04, 0x01, 0x04
SUCCESS_DELETED = 0xCD
USAGE, NO_INPUT = 64, 66
PATIENCE = 40


class WithoutSnappy:
    """The way to a node that does not know Snappy: it is left out of what clients ask for."""

    def __init__(self, port):
        self.to, self.refused = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            for ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, target, asks):
        # HELLO is the first request, and small.
        while data := source.recv(65536):
            if asks and data[1] == HELLO:
                features = [data[at : at + 2] for at in range(24 + data[3], len(data), 2)]
                self.refused += features.count(b"\0\x0a")
                # That of the other order of bytes in datatypes means nothing any more.
                data = data[: 24 + data[3]] + b"".join(b"\0\x01" if one == b"\0\x0a" else one for one in features)
            asks = False
            target.sendall(data)
        target.close()

    def close(self):
        self.listener.close()


class World:
    """Two nodes for all tests; each test has keys of its own."""

    def __init__(self):
        self.random = random.Random(int(os.environ.get("SETTEE_SEED", "1")))
        self.home = Path(tempfile.mkdtemp(prefix="settee-conformance-replicate-"))
        self.nodes = [Node().start().ready(), Node().start().ready()]
        self.files = 0

    def state(self):
        self.files += 1
        return str(self.home / f"state-{self.files}")

    @property
    def addresses(self):
        return [node.address for node in self.nodes]

    def close(self):
        for node in self.nodes:
            node.close()
        shutil.rmtree(self.home, ignore_errors=True)


def run(arguments):
    """Runs a replication to its end; returns exit code and standard error."""
    ran = finished([binary(), "replicate", *arguments])
    return ran.returncode, ran.stderr


class Replication:
    """A replication in the background."""

    def __init__(self, *arguments):
        self.command = [binary(), "replicate", *arguments]
        self.start()

    def start(self):
        self.process = begun(self.command, stderr=subprocess.PIPE, text=True)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        error = self.process.communicate(timeout=PATIENCE)[1]
        equal(self.process.returncode, 0, f"exit code ({error})")
        return error


def log_in(node, bucket="default", *features):
    connection = Connection(node.kv).login(bucket=bucket)
    connection.hello(FEATURE_COLLECTIONS, FEATURE_XERROR, FEATURE_XATTR, *features)
    return connection


def call(connection, opcode, key, extras=b"", value=b"", collection=0):
    sent = collection_key(collection, key)
    return connection.call(opcode, sent, extras, value, vbucket=vbucket_of(key))


def known(connection, key, collection=0):
    """What a node knows of a key: metadata with CAS, and the value."""
    meta = call(connection, GET_META, key, b"\x02", collection=collection)
    got = call(connection, GET, key, collection=collection)
    return meta.status, meta.extras, meta.cas, got.status, got.value


def store(connection, key, value, flags=0, expiry=0, collection=0):
    done = call(connection, SET, key, struct.pack(">II", flags, expiry), value, collection)
    equal(done.status, SUCCESS, "stored")
    return done


@suite.test
def documents_and_deletions_arrive_as_they_are(world):
    one, two = (log_in(node) for node in world.nodes)
    store(one, b"plain", b'{"a":1}', flags=0x02000006)
    store(one, b"often", b"1")
    store(one, b"often", b"2")
    store(one, b"mortal", b"text", expiry=4_000_000_000)
    store(one, b"gone", b"x")
    equal(call(one, DELETE, b"gone").status, SUCCESS)
    for name in (b"_sync", b"mine"):
        for key in (b"marked", b"marked-gone"):
            if name == b"_sync":
                store(one, key, b"{}")
            spec = struct.pack(">HB", len(name), XATTR_PATH | MKDIR_P)
            equal(call(one, SUBDOC_UPSERT, key, spec, name + b"7").status, SUCCESS, "attribute")
    equal(call(one, DELETE, b"marked-gone").status, SUCCESS)
    keys = [b"plain", b"often", b"mortal", b"gone", b"marked", b"marked-gone"]
    # One that is newer over there stays as it is.
    extras = struct.pack(">IIQQ", 0, 0, 100, 1 << 60)
    equal(call(two, SET_WITH_META, b"newer", extras, b"stays").status, SUCCESS)
    store(one, b"newer", b"goes")
    state = world.state()
    arguments = [*world.addresses, "--state", state, "--until-now", "--log-conflicts"]
    code, error = run(arguments)
    equal(code, 0, error)
    assert 'not newer than what is there: "newer", rev 1' in error, error
    for key in keys:
        equal(known(two, key), known(one, key), key.decode())
    equal(known(two, b"often")[1][12:20], struct.pack(">Q", 2), "revision")
    equal(call(two, GET, b"newer").value, b"stays")
    spec = struct.pack(">HB", 5, XATTR_PATH)
    equal(call(two, SUBDOC_GET, b"marked", spec, b"_sync").value, b"7", "attribute")
    gone = call(two, SUBDOC_GET, b"marked-gone", spec + bytes([ACCESS_DELETED]), b"_sync")
    equal((gone.status, gone.value), (SUCCESS_DELETED, b"7"), "attribute of a deletion")
    code, error = run(arguments)
    equal(code, 0, error)
    assert " 0 changes sent" in error, f"a second run goes on from the first one: {error}"


@suite.test
def collections_are_found_by_name(world):
    one, two = world.nodes
    # Their numbers differ.
    must(two, "POST", "/pools/default/buckets/default/scopes", name="first")
    for node in world.nodes:
        must(node, "POST", "/pools/default/buckets/default/scopes", name="shop")
        for name in ("chairs", "tables"):
            must(node, "POST", "/pools/default/buckets/default/scopes/shop/collections", name=name)
    connections = [log_in(node) for node in world.nodes]

    def number(connection, name):
        found = connection.call(GET_COLLECTION_ID, b"", b"", b"shop." + name)
        equal(found.status, SUCCESS, "collection")
        return struct.unpack(">QI", found.extras)[1]

    chairs, tables = ([number(connection, name) for connection in connections] for name in (b"chairs", b"tables"))
    store(connections[0], b"seat", b"1", collection=chairs[0])
    store(connections[0], b"top", b"1", collection=tables[0])
    store(connections[0], b"outside", b"1")
    arguments = [*world.addresses, "--until-now", "--filter"]
    code, error = run([*arguments, "shop.chairs", "--state", world.state()])
    equal(code, 0, error)
    there = connections[1]
    equal(known(there, b"seat", chairs[1]), known(connections[0], b"seat", chairs[0]), "seat")
    equal(call(there, GET, b"top", collection=tables[1]).status, NOT_FOUND, "another collection")
    equal(call(there, GET, b"outside").status, NOT_FOUND, "another scope")
    must(one, "POST", "/pools/default/buckets/default/scopes/shop/collections", name="only")
    only = number(connections[0], b"only")
    store(connections[0], b"lonely", b"1", collection=only)
    state = world.state()
    code, error = run([*arguments, "shop", "--state", state, "--retry", "0"])
    equal(code, NO_INPUT, error)
    assert "shop.only" in error, error
    must(two, "POST", "/pools/default/buckets/default/scopes/shop/collections", name="only")
    code, error = run([*arguments, "shop", "--state", state])
    equal(code, 0, error)
    equal(call(there, GET, b"lonely", collection=number(there, b"only")).value, b"1")
    equal(call(there, GET, b"top", collection=tables[1]).value, b"1")


@suite.test
def collections_may_be_made_while_it_runs(world):
    connections = [log_in(node) for node in world.nodes]

    def make(node, name):
        must(node, "POST", "/pools/default/buckets/default/scopes/_default/collections", name=name)

    def number(side, name):
        found = connections[side].call(GET_COLLECTION_ID, b"", b"", b"_default." + name.encode())
        equal(found.status, SUCCESS, "collection")
        return struct.unpack(">QI", found.extras)[1]

    def arrives(key, name):
        store(connections[0], key, b"1", collection=number(0, name))
        there = number(1, name)
        eventually("it arrives", lambda: call(connections[1], GET, key, collection=there).value == b"1")

    replication = Replication(*world.addresses, "--state", world.state())
    store(connections[0], b"runs", b"1")
    eventually("it runs", lambda: call(connections[1], GET, b"runs").value == b"1")
    one, two = world.nodes
    make(two, "there-first")
    make(one, "there-first")
    arrives(b"a", "there-first")
    make(one, "there-later")
    store(connections[0], b"early", b"1", collection=number(0, "there-later"))
    eventually("it is waited for", lambda: "has no collection" in replication.process.stderr.readline())
    make(two, "there-later")
    arrives(b"b", "there-later")
    early = number(1, "there-later")
    eventually("it arrives", lambda: call(connections[1], GET, b"early", collection=early).value == b"1")
    must(two, "DELETE", "/pools/default/buckets/default/scopes/_default/collections/there-first")
    make(two, "there-first")
    arrives(b"c", "there-first")
    replication.interrupt()


LINE = b"one text that is long enough to be worth it "
# Snappy of four lines: the length, one literal, and three copies of what stands a line before.
PACKED = bytes([4 * len(LINE) & 0x7F | 0x80, 4 * len(LINE) >> 7, (len(LINE) - 1) << 2]) + LINE
PACKED += bytes([(len(LINE) - 1) << 2 | 2, len(LINE), 0]) * 3


@suite.test
def the_last_write_wins_over_tls_with_a_certificate(_):
    """Between buckets of other names; values that are compressed go along so."""
    one = Node("--kv-tls-port", "0", "--https-port", "0", "--client-cert", "optional").start()
    authority = one.data / "tls" / "ca.pem"
    client = ("--client-cert", "optional", "--client-ca", str(authority))
    two = Node("--kv-tls-port", "0", "--https-port", "0", *client).start()
    sites = ((one, "here"), (two, "there"))
    with tempfile.TemporaryDirectory() as home:
        try:
            for node, bucket in sites:
                node.ready()
                made = {"name": bucket, "ramQuotaMB": 100, "bucketType": "couchbase", "conflictResolutionType": "lww"}
                must(node, "POST", "/pools/default/buckets", **made)
                must(node, "PUT", "/settings/rbac/users/local/robot", password="secret", roles="admin")
            trusted = Path(home) / "trusted.pem"
            trusted.write_text("".join((node.data / "tls" / "ca.pem").read_text() for node, _ in sites))
            certificate, key = client_certificate(one, "robot")
            addresses = [f"couchbases://robot:wrong@127.0.0.1:{node.ports['kv_tls']}/{bucket}" for node, bucket in sites]
            here, there = (log_in(node, bucket, FEATURE_SNAPPY) for node, bucket in sites)
            # Changed more often, but before the other one: the time in a CAS has steps of 65 us.
            for number in range(5):
                older = store(there, b"fought", b"older %d" % number).cas
            while store(here, b"fought", b"newer").cas <= older:
                pass
            store(there, b"back", b"y")
            packed = collection_key(0, b"packed")
            sent = here.call(SET, packed, bytes(8), PACKED, vbucket=vbucket_of(b"packed"), datatype=2)
            equal(sent.status, SUCCESS, "stored compressed")
            arguments = [*addresses, "--both", "--state", str(Path(home) / "state"), "--until-now", "--ca", str(trusted)]
            code, error = run([*arguments, "--cert", certificate, "--key", key])
            equal(code, 0, error)
            for name in (b"fought", b"back"):
                equal(known(there, name), known(here, name), name.decode())
            equal(call(there, GET, b"fought").value, b"newer")
            equal(call(here, GET, b"packed").value, PACKED, "where it was compressed")
            equal(call(there, GET, b"packed").value, PACKED, "where it arrived")
            metas = [known(side, b"packed") for side in (there, here)]
            equal(*((extras, cas) for _, extras, cas, *_ in metas), "its metadata")
            code, error = run(arguments)
            assert code, f"without the certificate there is no login: {error}"
        finally:
            for node, _ in sites:
                node.close()


@suite.test
def values_go_compressed_where_both_sides_take_them_so(world):
    """What one side does not know goes plain, and what a bucket does not keep is stored plain."""
    one, two = world.nodes
    sender = log_in(one, "default", FEATURE_SNAPPY)
    addresses = list(world.addresses)
    for number, plain_side in enumerate((None, 0, 1)):
        key = b"snappy-%d" % number
        sent = sender.call(SET, collection_key(0, key), bytes(8), PACKED, vbucket=vbucket_of(key), datatype=2)
        equal(sent.status, SUCCESS, "stored compressed")
        sides, wire = list(addresses), None
        if plain_side is not None:
            wire = WithoutSnappy(world.nodes[plain_side].kv)
            sides[plain_side] = address(wire.port)
        code, error = run([*sides, "--state", world.state(), "--until-now"])
        equal(code, 0, error)
        if wire is not None:
            assert wire.refused > 0, "Snappy was not asked for"
            wire.close()
        receiver = log_in(two, "default", FEATURE_SNAPPY)
        arrived = call(receiver, GET, key)
        packed = plain_side is None
        equal((arrived.value, arrived.datatype & 2), (PACKED, 2) if packed else (4 * LINE, 0), key)
        equal(call(log_in(two), GET, key).value, 4 * LINE, "for a client without Snappy")
        receiver.close()
    # A bucket that keeps nothing compressed takes it all the same.
    must(two, "POST", "/pools/default/buckets/default", compressionMode="off")
    try:
        key = b"snappy-off"
        equal(sender.call(SET, collection_key(0, key), bytes(8), PACKED, vbucket=vbucket_of(key), datatype=2).status, 0)
        equal(run([*addresses, "--state", world.state(), "--until-now"])[0], 0)
        arrived = call(log_in(two, "default", FEATURE_SNAPPY), GET, key)
        equal((arrived.value, arrived.datatype & 2), (4 * LINE, 0))
    finally:
        must(two, "POST", "/pools/default/buckets/default", compressionMode="passive")
    sender.close()


@suite.test
def wrong_uses_are_refused(world):
    one, two = world.addresses
    state = world.state()
    for arguments, code, word in (
        ([one, one], USAGE, "same bucket"),
        ([one, "127.0.0.1:1"], USAGE, "couchbase://"),
        ([one, two, "--filter", "nowhere"], NO_INPUT, "no such scope"),
        ([one, two, "--filter", "a.b.c"], USAGE, "SCOPE.COLLECTION"),
    ):
        got, error = run([*arguments, "--state", state, "--until-now"])
        equal(got, code, error)
        assert word in error, error
    equal(run([one, two, "--state", state, "--until-now"])[0], 0)
    code, error = run([two, one, "--state", state])
    equal(code, USAGE, error)
    assert "other buckets" in error, error


@suite.test
def a_state_is_for_buckets_not_for_addresses(world):
    """It goes on at another address of them; a bucket that was made anew gets everything again."""
    buckets = {"name": "mine", "ramQuotaMB": "100", "numVBuckets": "128"}, {"name": "yours", "ramQuotaMB": "100"}
    for node, bucket in zip(world.nodes, buckets, strict=True):
        must(node, "POST", "/pools/default/buckets", **bucket)
    one, two = (address(node.kv, bucket["name"]) for node, bucket in zip(world.nodes, buckets, strict=True))
    source = log_in(world.nodes[0], "mine")
    for number in range(20):
        key = b"kept-%d" % number
        done = source.call(SET, collection_key(0, key), bytes(8), b"1", vbucket=vbucket_of(key, 128))
        equal(done.status, SUCCESS, "stored")
    source.close()
    state = world.state()
    sent = "20 changes sent"

    def replicate(*pair):
        code, error = run([*pair, "--state", state, "--until-now"])
        equal(code, 0, error)
        return error

    assert sent in replicate(one, two)
    there = [name.replace("127.0.0.1", "localhost") for name in (one, two)]
    assert "0 changes sent" in replicate(*there)
    code, error = run([there[1], there[0], "--state", state, "--until-now"])
    equal(code, USAGE, error)
    must(world.nodes[1], "DELETE", "/pools/default/buckets/yours")
    must(world.nodes[1], "POST", "/pools/default/buckets", **buckets[1])
    told = replicate(*there)
    assert "made anew" in told and sent in told, told
    for node, bucket in zip(world.nodes, buckets, strict=True):
        must(node, "DELETE", f"/pools/default/buckets/{bucket['name']}")


class Sites:
    """Both nodes written at once, some keys on both sides."""

    def __init__(self, world):
        self.world, self.keys, self.count = world, set(), 0

    def write(self, sides=(0, 1), changes=400):
        connections = {side: log_in(self.world.nodes[side]) for side in sides}
        for _ in range(changes):
            self.count += 1
            side = self.world.random.choice(sides)
            key = b"site-%d" % self.world.random.randrange(300)
            self.keys.add(key)
            if self.world.random.random() < 0.2:
                assert call(connections[side], DELETE, key).status in (SUCCESS, NOT_FOUND)
            else:
                store(connections[side], key, b"%d-%d" % (side, self.count), flags=self.count)
        for connection in connections.values():
            connection.close()

    def are_the_same(self):
        return self.differences() == []

    def differences(self):
        connections = [log_in(node) for node in self.world.nodes]
        try:
            pairs = [(key, *(known(connection, key) for connection in connections)) for key in sorted(self.keys)]
            return [pair for pair in pairs if pair[1] != pair[2]]
        finally:
            for connection in connections:
                connection.close()


@suite.test
def both_sites_agree_whatever_is_killed(world):
    replication = Replication(*world.addresses, "--both", "--state", world.state())
    sites = Sites(world)
    sites.write()
    eventually("both agree", sites.are_the_same)
    for _ in range(2):
        sites.write()
        replication.kill()
        sites.write()
        replication.start()
        for side in (0, 1):
            sites.write()
            world.nodes[side].kill()
            sites.write(sides=[1 - side], changes=100)
            world.nodes[side].start().ready()
            sites.write()
        eventually("both agree after kills", sites.are_the_same, seconds=PATIENCE)
    error = replication.interrupt()
    assert "changes sent" in error, error


@suite.test
def changes_are_not_sent_to_and_fro(world):
    state = world.state()
    # What both have already is offered once.
    code, error = run([*world.addresses, "--both", "--state", state, "--until-now"])
    equal(code, 0, error)
    replication = Replication(*world.addresses, "--both", "--state", state)
    sites = Sites(world)
    one = log_in(world.nodes[0])
    for number in range(100):
        store(one, b"fro-%d" % number, b"x")
        sites.keys.add(b"fro-%d" % number)
    eventually("all arrive", sites.are_the_same)
    error = replication.interrupt()
    back = error.splitlines()[-1]
    assert "0 of them not newer" in back, f"nothing was offered back: {back}"


if __name__ == "__main__":
    suite.main(World())
