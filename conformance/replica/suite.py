"""Two nodes: one follows the other, which is killed, and takes its place.

What must hold: a replica has what the active node has; it goes on where it was after a broken
connection and after a restart; once promoted it has every write that it had acknowledged (that is:
that its own seqno had reached) when the other one died; what only the old active node had is rolled back when that one
follows in turn. Values carry a checksum.

usage: suite.py [name of a test]
"""

import json
import random
import shutil
import signal
import struct
import sys
import threading
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from certificates import client_certificate
from harness import Node, Suite, address, binary, equal, eventually, finished
from manage import asked, manage, must
from mcbp import (
    FEATURE_ALT_REQUEST,
    FEATURE_COLLECTIONS,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_SYNC_REPLICATION,
    FEATURE_XERROR,
    GET,
    GET_REPLICA,
    NOT_FOUND,
    NOT_MY_VBUCKET,
    SET,
    SUCCESS,
    SYNC_WRITE_AMBIGUOUS,
    TEMPORARY_FAILURE,
    UNKNOWN_COLLECTION,
    Closed,
    Connection,
    collection_key,
    frame,
    key_call,
    vbucket_of,
)
from wire import Wire
from pair import CATCH_UP_SECONDS, Apart, Pair, caught_up, follower_of, high_seqnos, log_in, promote, stats

WRITERS = 3

suite = Suite("replica")


def value_of(key, version):
    body = struct.pack(">Q", version) + key
    return struct.pack(">I", zlib.crc32(body)) + body


def version_in(key, value):
    body = value[4:]
    if struct.pack(">I", zlib.crc32(body)) != value[:4] or body[8:] != key:
        raise AssertionError(f"{key!r}: the value is torn or another document's: {value!r}")
    return struct.unpack_from(">Q", body)[0]


def fill(node, keys, version=1):
    """Writes `keys`; gives (vBucket, seqno) of each write."""
    connection = log_in(node)
    connection.send(b"".join(frame(SET, k, bytes(8), value_of(k, version), vbucket=vbucket_of(k)) for k in keys))
    tokens = {}
    for key in keys:
        reply = connection.receive()
        equal(reply.status, SUCCESS, f"status of SET {key!r}")
        tokens[key] = (vbucket_of(key), struct.unpack(">QQ", reply.extras)[1])
    connection.close()
    return tokens


def versions(node, keys, opcode=GET, settle=False):
    """Version of each key; None for one that is not there, or whose vBucket is going back."""
    connection = log_in(node)
    found = {}
    for key in keys:
        reply = key_call(connection, opcode, key)
        if settle and reply.status in (NOT_MY_VBUCKET, TEMPORARY_FAILURE):
            found[key] = None
            continue
        if reply.status == NOT_FOUND:
            found[key] = None
        else:
            equal(reply.status, SUCCESS, f"status of {key!r}")
            found[key] = version_in(key, reply.value)
    connection.close()
    return found


def names(prefix, count):
    return [b"%s-%d" % (prefix, n) for n in range(count)]


@suite.test
def a_replica_has_what_the_active_node_has():
    with Pair() as pair:
        keys = names(b"doc", 2000)
        fill(pair.active, keys)
        caught_up(pair.active, pair.replica)
        equal(versions(pair.replica, keys, GET_REPLICA), dict.fromkeys(keys, 1), "documents of the replica")
        rows = stats(pair.replica, "replication")
        equal((rows["role"], rows["stage"], rows["rollbacks"]), ("replica", "streaming", "0"), "its statistics")
        equal(stats(pair.active, "replication")["role"], "active", "role of the other one")


@suite.test
def a_damaged_replica_comes_anew_from_the_active_node():
    with Pair() as pair:
        keys, large, value = names(b"doc", 500), b"large", random.Random(7).randbytes(100_000)
        equal(key_call(log_in(pair.active), SET, large, bytes(8), value).status, SUCCESS, "status of SET")
        fill(pair.active, keys)
        # What is written next comes after the value in the replica's logs too.
        caught_up(pair.active, pair.replica)
        # A log that is replayed must be whole. That of the value, the first one, is not once the second one becomes a run.
        folder, writer = pair.replica.data / "buckets" / "default", log_in(pair.active)

        def second_run():
            for number in range(10):
                equal(key_call(writer, SET, b"fill-%d" % number, bytes(8), bytes(1 << 20)).status, SUCCESS, "status of SET")
            return len(list(folder.glob("run-*"))) > 1

        eventually("a run of the second log", second_run, CATCH_UP_SECONDS)
        caught_up(pair.active, pair.replica)
        pair.replica.stop()
        files = [path for path in folder.glob("*-*") if value in path.read_bytes()]
        assert files, "the value is on disk"
        for path in files:
            content = path.read_bytes()
            path.write_bytes(content.replace(value[:50_000], bytes(50_000)))
        pair.replica.start()
        caught_up(pair.active, pair.replica)
        # A read meets the damage, unless the start did.
        got = lambda: key_call(log_in(pair.replica), GET_REPLICA, large)  # noqa: E731
        eventually("what was damaged is there", lambda: got().value == value, CATCH_UP_SECONDS)
        assert "what is left of a damaged replica is given up" in pair.replica.tail(100), pair.replica.tail()
        equal(versions(pair.replica, keys, GET_REPLICA), dict.fromkeys(keys, 1), "the others")
        equal(stats(pair.replica, "")["ep_vb_quarantined"], "0", "vBuckets in quarantine")


@suite.test
def both_nodes_are_in_both_maps_and_the_replica_refuses_writes():
    with Pair() as pair:
        eventually("they met", lambda: stats(pair.active, "replication")["role"] == "active")
        ports = [pair.replica.kv, pair.active.kv]
        for node in pair.nodes:
            # The map comes with the refusal; one for a vBucket that no node has gets it anywhere.
            reply = log_in(node).call(GET, b"k", vbucket=1031)
            equal(reply.status, NOT_MY_VBUCKET, "status")
            config = json.loads(reply.value)
            servers = [int(server.rsplit(":", 1)[1]) for server in config["vBucketServerMap"]["serverList"]]
            equal(servers, ports, "servers in the map, the active one last")
            equal(config["vBucketServerMap"]["vBucketMap"][7], [1, 0], "row of a vBucket")
        refused = key_call(log_in(pair.replica), SET, b"k", bytes(8), b"v")
        equal(refused.status, NOT_MY_VBUCKET, "status of a write to the replica")


@suite.test
def a_replica_goes_on_where_it_was():
    with Pair() as pair:
        keys = names(b"doc", 500)
        fill(pair.active, keys)
        caught_up(pair.active, pair.replica)
        for end in (pair.replica.stop, pair.replica.kill):
            end()
            fill(pair.active, keys, version=2)
            pair.replica.start()
            caught_up(pair.active, pair.replica)
            equal(stats(pair.replica, "replication")["rollbacks"], "0", "rollbacks")
        pair.active.stop()
        pair.active.start().ready()
        fill(pair.active, keys, version=3)
        caught_up(pair.active, pair.replica)
        equal(versions(pair.replica, keys, GET_REPLICA), dict.fromkeys(keys, 3), "documents of the replica")
        equal(stats(pair.replica, "replication")["rollbacks"], "0", "rollbacks")


class Writer(threading.Thread):
    """Overwrites its keys until the node dies; notes every answered write."""

    def __init__(self, node, keys, first_version):
        super().__init__(daemon=True)
        self.connection = log_in(node)
        self.keys = keys
        self.version = first_version
        self.answered = []
        self.stop = threading.Event()

    def run(self):
        try:
            while not self.stop.is_set():
                self.version += 1
                batch = random.sample(self.keys, 20)
                self.connection.send(
                    b"".join(frame(SET, k, bytes(8), value_of(k, self.version), vbucket=vbucket_of(k)) for k in batch)
                )
                for key in batch:
                    reply = self.connection.receive()
                    if reply.status == SUCCESS:
                        seqno = struct.unpack(">QQ", reply.extras)[1]
                        self.answered.append((key, self.version, seqno))
        except (Closed, OSError):
            pass  # the node was killed


def load(node, keys, first_version):
    writers = [Writer(node, keys[i::WRITERS], first_version) for i in range(WRITERS)]
    for writer in writers:
        writer.start()
    return writers


def end(writers):
    answered = []
    for writer in writers:
        writer.stop.set()
        writer.join(30)
        answered += writer.answered
    return answered


@suite.test
def changes_of_the_replica_are_there_after_kill_and_promotion():
    with Pair() as pair:
        keys = names(b"doc", 300)
        for round_number in range(3):
            writers = load(pair.active, keys, 1000 * (round_number + 1))
            seen = {}

            def replicated():
                seen.update(high_seqnos(pair.replica))
                answered = [write for writer in writers for write in list(writer.answered)]
                return sum(seqno <= seen.get(vbucket_of(key), 0) for key, _, seqno in answered) > 500

            eventually("the replica has some of the load", replicated, CATCH_UP_SECONDS)
            pair.active.kill()
            answered = end(writers)
            promote(pair.replica)
            now_active = pair.replica
            # Killed right after the answer, it still comes back as the active one.
            now_active.kill()
            now_active.flags = []
            now_active.start()
            high = high_seqnos(now_active)
            for vb, seqno in seen.items():
                if high[vb] < seqno:
                    raise AssertionError(f"vb {vb}: had {seqno}, has {high[vb]}")
            owed = {}
            for key, version, seqno in answered:
                if seqno <= seen.get(vbucket_of(key), 0):
                    owed[key] = max(owed.get(key, 0), version)
            if not owed:
                raise AssertionError("the replica had nothing, so nothing was proven")
            found = versions(now_active, list(owed))
            lost = {key: (owed[key], found[key]) for key in owed if (found[key] or 0) < owed[key]}
            equal(lost, {}, "writes that the replica had and lost")
            # The old active node comes back, follows, and gives up what only it had.
            pair.nodes.reverse()
            pair.replica.flags = ["--replica-of", pair.active.address, "--demote"]
            pair.replica.start()
            fill(pair.active, keys, version=1000 * (round_number + 1) + 999)
            caught_up(pair.active, pair.replica)
            equal(versions(pair.replica, keys, GET_REPLICA), versions(pair.active, keys), "both nodes")


@suite.test
def changes_of_the_old_active_node_alone_are_rolled_back():
    with Pair() as pair:
        common, lost, new = names(b"common", 300), names(b"lost", 300), names(b"new", 300)
        fill(pair.active, common)
        caught_up(pair.active, pair.replica)
        pair.replica.process.send_signal(signal.SIGSTOP)
        fill(pair.active, lost)
        fill(pair.active, common[:100], version=2)
        pair.active.stop()
        pair.replica.process.send_signal(signal.SIGCONT)
        promote(pair.replica)
        # What was on its way when it was stopped may still have come.
        had = versions(pair.replica, lost + common)
        fill(pair.replica, new)
        pair.nodes.reverse()
        pair.replica.flags = ["--replica-of", pair.active.address]
        code = pair.replica.process.returncode
        equal(code, 0, "exit code of the old active node")
        refused = finished(pair.replica.command())
        equal(refused.returncode, 78, f"a node with changes of its own follows only when told: {refused.stderr}")
        pair.replica.flags.append("--demote")
        pair.replica.start()
        caught_up(pair.active, pair.replica)
        found = versions(pair.replica, lost + common + new, GET_REPLICA)
        equal(found, {**had, **dict.fromkeys(new, 1)}, "documents after the rollback")
        if all(had[key] is None for key in lost):
            rollbacks = int(stats(pair.replica, "replication")["rollbacks"])
            if rollbacks == 0:
                raise AssertionError("nothing was rolled back, so nothing was proven")


MAJORITY, PERSIST_TO_MAJORITY = 1, 3


def log_in_durably(node):
    connection = Connection(node.kv, seconds=60)
    connection.hello(
        FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION
    )
    return connection.login()


def durable_set(key, version, level, timeout_ms=None):
    framing = bytes([0x11, level]) if timeout_ms is None else bytes([0x13, level]) + struct.pack(">H", timeout_ms)
    return frame(SET, key, bytes(8), value_of(key, version), vbucket=vbucket_of(key), framing=framing)


class DurableWriter(threading.Thread):
    """Writes each of its keys durably, over and over, until the node dies."""

    def __init__(self, node, keys, level, first_version=0):
        super().__init__(daemon=True)
        self.version = first_version
        self.connection = log_in_durably(node)
        self.keys = keys
        self.level = level
        self.answered = {}
        self.count = 0
        self.problem = None

    def run(self):
        version = self.version
        try:
            while True:
                version += 1
                self.connection.send(b"".join(durable_set(key, version, self.level) for key in self.keys))
                for key in self.keys:
                    reply = self.connection.receive()
                    if reply.status != SUCCESS:
                        raise AssertionError(f"{key!r}: {reply!r}")
                    self.answered[key] = version
                    self.count += 1
        except (Closed, OSError):
            pass  # the node was killed
        except AssertionError as error:
            self.problem = error


@suite.test
def a_durable_write_that_was_answered_survives_kill_and_promotion():
    for level in (MAJORITY, PERSIST_TO_MAJORITY):
        with Pair() as pair:
            caught_up(pair.active, pair.replica)
            streaming = lambda: stats(pair.replica, "replication")["streams"] == "1024"
            eventually("all streams are open", streaming, CATCH_UP_SECONDS)
            keys = names(b"durable", 120)
            writers = [DurableWriter(pair.active, keys[i::WRITERS], level) for i in range(WRITERS)]
            for writer in writers:
                writer.start()
            some = lambda: sum(writer.count for writer in writers) > 400 or any(w.problem for w in writers)
            eventually("durable writes are answered", some, 60)
            pair.active.kill()
            for writer in writers:
                writer.join(30)
                if writer.problem:
                    raise writer.problem
            answered = {key: version for writer in writers for key, version in writer.answered.items()}
            promote(pair.replica)
            found = versions(pair.replica, list(answered))
            lost = {key: (answered[key], found[key]) for key in answered if (found[key] or 0) < answered[key]}
            equal(lost, {}, f"durable writes of level {level} that were answered and lost")
            # Alone, it goes on to take durable writes.
            connection = log_in_durably(pair.replica)
            connection.send(durable_set(b"after", 1, MAJORITY))
            equal(connection.receive().status, SUCCESS, "a durable write after the promotion")


@suite.test
def without_its_replica_a_majority_is_not_reached_until_it_is_forgotten():
    with Pair() as pair:
        caught_up(pair.active, pair.replica)
        eventually("they met", lambda: stats(pair.active, "replication")["role"] == "active")
        pair.replica.kill()
        connection = log_in_durably(pair.active)
        connection.send(durable_set(b"k", 1, MAJORITY, timeout_ms=200))
        equal(connection.receive().status, SYNC_WRITE_AMBIGUOUS, "a durable write without the replica")
        promote(pair.active)
        equal(stats(pair.active, "replication")["role"], "alone", "role")
        connection.send(durable_set(b"k", 2, MAJORITY))
        equal(connection.receive().status, SUCCESS, "a durable write of a node on its own")
        equal(versions(pair.active, [b"k"]), {b"k": 2}, "the document")


def served_nodes(node):
    """KV ports in the map that a node tells, the active one first."""
    reply = log_in(node).call(GET, b"k", vbucket=1031)
    equal(reply.status, NOT_MY_VBUCKET, "status")
    servers = json.loads(reply.value)["vBucketServerMap"]["serverList"]
    ports = [int(server.rsplit(":", 1)[1]) for server in servers]
    return [ports[-1], *ports[:-1]]


def streams_are_open(node):
    return stats(node, "replication")["streams"] == "1024"


@suite.test
def two_replicas_follow_one_node_and_one_of_them_takes_its_place():
    with Pair() as trio:
        active, first = trio.nodes
        second = follower_of(active)
        trio.nodes.append(second)
        everybody = lambda: all(set(served_nodes(node)) == {n.kv for n in trio.nodes} for node in trio.nodes)
        eventually("all are in all maps", everybody, CATCH_UP_SECONDS)
        order = served_nodes(active)
        equal([served_nodes(node) for node in trio.nodes], [order] * 3, "the same order everywhere")
        equal(order[0], active.kv, "the first one in the map")
        for replica in (first, second):
            eventually("streams are open", lambda r=replica: streams_are_open(r), CATCH_UP_SECONDS)
        connection = log_in_durably(active)
        keys = names(b"three", 100)
        connection.send(b"".join(durable_set(key, 1, MAJORITY) for key in keys))
        for key in keys:
            equal(connection.receive().status, SUCCESS, f"durable write of {key!r}")
        # Two of three are a majority.
        second.kill()
        connection.send(b"".join(durable_set(key, 2, PERSIST_TO_MAJORITY) for key in keys))
        for key in keys:
            equal(connection.receive().status, SUCCESS, f"durable write of {key!r} with one replica gone")
        first.kill()
        connection.send(durable_set(b"lonely", 1, MAJORITY, timeout_ms=200))
        equal(connection.receive().status, SYNC_WRITE_AMBIGUOUS, "a durable write with both replicas gone")
        first.start()
        second.start()
        for replica in (first, second):
            eventually("streams are open", lambda r=replica: streams_are_open(r), CATCH_UP_SECONDS)
            caught_up(active, replica)
        active.kill()
        promote(first)
        # The other one finds out by itself.
        follows = lambda: str(first.kv) in stats(second, "replication")["peer"] and streams_are_open(second)
        eventually("the other replica follows the promoted one", follows, CATCH_UP_SECONDS)
        connection = log_in_durably(first)
        connection.send(durable_set(b"after", 1, MAJORITY))
        equal(connection.receive().status, SUCCESS, "a durable write after the promotion")
        caught_up(first, second)
        equal(versions(second, keys, GET_REPLICA), dict.fromkeys(keys, 2), "documents of the other replica")
        equal(set(served_nodes(second)), {first.kv, second.kv}, "nodes in its map")


def rounds_of_kills(count):
    with Pair() as pair:
        keys = names(b"kill", 60)
        owed = dict.fromkeys(keys, 0)
        for round_number in range(count):
            eventually("all streams are open", lambda: streams_are_open(pair.replica), CATCH_UP_SECONDS)
            level = random.choice((MAJORITY, PERSIST_TO_MAJORITY))
            base = 100_000 * (round_number + 1)
            writers = [DurableWriter(pair.active, keys[i::WRITERS], level, base) for i in range(WRITERS)]
            for writer in writers:
                writer.start()
            wanted = random.randrange(20, 200)
            some = lambda: sum(writer.count for writer in writers) > wanted or any(w.problem for w in writers)
            eventually("durable writes are answered", some, 60)
            if level == PERSIST_TO_MAJORITY and random.random() < 0.5:
                # The replica dies and comes back: whoever waits for it goes on. A majority that
                # only had it in memory does not outlive two deaths in a row, and promises no more.
                pair.replica.kill()
                pair.replica.start()
                before = sum(writer.count for writer in writers)
                more = lambda: sum(writer.count for writer in writers) > before or any(w.problem for w in writers)
                eventually("durable writes go on", more, 60)
            pair.active.kill()
            for writer in writers:
                writer.join(30)
                if writer.problem:
                    raise writer.problem
                for key, version in writer.answered.items():
                    owed[key] = max(owed[key], version)
            promote(pair.replica)
            found = versions(pair.replica, keys)
            lost = {key: (owed[key], found[key]) for key in keys if (found[key] or 0) < owed[key]}
            equal(lost, {}, f"round {round_number}: durable writes that were answered and lost")
            pair.nodes.reverse()
            pair.replica.flags = ["--replica-of", pair.active.address, "--demote"]
            pair.active.flags = []
            pair.replica.start()
        caught_up(pair.active, pair.replica)
        equal(versions(pair.replica, keys, GET_REPLICA), versions(pair.active, keys), "both nodes")


# Twenty rounds, in two tests: each has its deadline.
@suite.test
def random_kills_lose_nothing_durable():
    rounds_of_kills(10)


@suite.test
def more_random_kills_lose_nothing_durable():
    rounds_of_kills(10)


def collections_of(node):
    """Numbers of the collections of the scope `s`, by name, as the node itself has them."""
    scopes = [scope for scope in own_scopes(node) if scope["name"] == "s"]
    return {one["name"]: int(one["uid"], 16) for scope in scopes for one in scope["collections"]}


def own_scopes(node):
    connection = log_in_with_collections(node)
    manifest = json.loads(connection.call(GET_MANIFEST).value)
    connection.close()
    return manifest["scopes"]


def scopes_of(node):
    """Names of the scopes, as the node itself has them."""
    return sorted(scope["name"] for scope in own_scopes(node))


def log_in_with_collections(node):
    connection = Connection(node.kv, seconds=60)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS)
    return connection.login()


def state_of(node, collections, keys, opcode):
    """Status and value of each key in each collection."""
    connection = log_in_with_collections(node)
    found = {}
    for collection in collections:
        for key in keys:
            reply = connection.call(opcode, collection_key(collection, key), vbucket=vbucket_of(key))
            found[collection, key] = (reply.status, reply.value if reply.status == SUCCESS else None)
    connection.close()
    return found


def change_collections(node, rounds, ended):
    """Makes, fills and drops collections until the node dies."""
    connection = log_in_with_collections(node)
    try:
        for _ in range(rounds):
            here = collections_of(node)
            name = random.choice("abcd")
            if name in here and random.random() < 0.6:
                ended.append(here[name])
                manage(node, "DELETE", f"/s/collections/{name}")
                continue
            if name not in here:
                manage(node, "POST", "/s/collections", name=name)
                here = collections_of(node)
            keys = random.sample(names(b"doc", 40), 15)
            of = here[name]
            connection.send(
                b"".join(
                    frame(SET, collection_key(of, k), bytes(8), b"%d" % of, vbucket=vbucket_of(k)) for k in keys
                )
            )
            for _ in keys:
                connection.receive()
    except (Closed, OSError):
        pass  # the node was killed


@suite.test
def collections_that_come_and_go_outlive_kills_and_promotions():
    with Pair() as pair:
        manage(pair.active, "POST", "", name="s")
        keys, given = names(b"doc", 40), set()
        for round_number in range(4):
            eventually("all streams are open", lambda: streams_are_open(pair.replica), CATCH_UP_SECONDS)
            ended = []
            change_collections(pair.active, 12, ended)
            caught_up(pair.active, pair.replica)
            settled, numbers = collections_of(pair.active), set(ended)
            worker = threading.Thread(target=change_collections, args=(pair.active, 1000, ended), daemon=True)
            worker.start()
            before = len(ended)
            eventually("some collections were dropped", lambda: len(ended) > before + 2, CATCH_UP_SECONDS)
            pair.active.kill()
            worker.join(60)
            promote(pair.replica)
            pair.nodes.reverse()
            found = collections_of(pair.active)
            # What both had and nobody asked to end is there; what both had ended stays so.
            for name, number in settled.items():
                if number not in ended and found.get(name) != number:
                    raise AssertionError(f"{name} ({number}) is lost: {found}")
            again = numbers & set(found.values())
            equal(again, set(), "collections that ended before the kill and are there")
            for (number, key), (status, value) in state_of(pair.active, found.values(), keys, GET).items():
                if status not in (SUCCESS, NOT_FOUND) or value not in (None, b"%d" % number):
                    raise AssertionError(f"{key!r} in {number}: {status:#x} {value!r}")
            gone = state_of(pair.active, numbers, keys[:5], GET).values()
            equal({status for status, _ in gone} - {UNKNOWN_COLLECTION}, set(), "statuses in dropped collections")
            manage(pair.active, "POST", "/s/collections", name=f"new{round_number}")
            number = collections_of(pair.active)[f"new{round_number}"]
            if number in given | numbers | set(found.values()):
                raise AssertionError(f"{number} was given again")
            given |= numbers | set(found.values()) | {number}
            pair.replica.flags = ["--replica-of", pair.active.address, "--demote"]
            pair.active.flags = []
            pair.replica.start()
            caught_up(pair.active, pair.replica)
            wanted = collections_of(pair.active)
            eventually("both have the same collections", lambda: collections_of(pair.replica) == wanted, CATCH_UP_SECONDS)
            there = state_of(pair.active, wanted.values(), keys, GET)
            # A vBucket that goes back first may have seemed to have caught up with what it gives up.
            here = lambda: state_of(pair.replica, wanted.values(), keys, GET_REPLICA)
            eventually("the replica has the same documents", lambda: here() == there, CATCH_UP_SECONDS)


@suite.test
def a_replica_tells_its_collections_and_hands_changes_on():
    with Pair() as pair:
        manage(pair.active, "POST", "", name="s")
        manage(pair.active, "POST", "/s/collections", name="c", maxTTL=7)
        knows = lambda: collections_of(pair.replica) == collections_of(pair.active)
        eventually("the replica knows them", knows, CATCH_UP_SECONDS)
        handed = lambda: asked(pair.replica, "POST", "", name="x")[0] == 200
        eventually("the replica knows where to hand on to", handed, CATCH_UP_SECONDS)
        for method, path, form in (
            ("POST", "/x/collections", {"name": "y"}),
            ("PATCH", "/s/collections/c", {"maxTTL": 9}),
            ("DELETE", "/x/collections/y", {}),
            ("DELETE", "/x", {}),
        ):
            before = manage(pair.active, "GET", "")
            status, _, body = asked(pair.replica, method, path, **form)
            equal((status, list(json.loads(body))), (200, ["uid"]), f"answer to {method} {path}")
            assert manage(pair.active, "GET", "") != before, f"{method} {path} changed nothing"
            equal(manage(pair.replica, "GET", ""), manage(pair.active, "GET", ""), "told at once")
        eventually("the replica knows of all", lambda: knows() and scopes_of(pair.replica) == scopes_of(pair.active), CATCH_UP_SECONDS)
        equal(asked(pair.replica, "DELETE", "/x")[0], 404, "status of a scope that is not there")
        pair.active.kill()
        status, _, body = asked(pair.replica, "POST", "", name="late")
        equal(status, 503, body)
        assert "follows another one" in body, body
        told = json.loads(manage(pair.replica, "GET", ""))["scopes"]
        equal([scope["name"] for scope in told if scope["name"] in "sx"], ["s"], "its own, without the active node")


@suite.test
def users_are_managed_at_a_follower():
    """`settee user` asks the node that it is told of, which hands it on."""
    with Pair() as pair:
        at = ["--connect", pair.replica.address]

        def run(*arguments):
            command = [binary(), "user", *arguments, *at]
            done = finished(command, SETTEE_NEW_PASSWORD="sesame")
            equal(done.returncode, 0, f"user {arguments}: {done.stderr}")
            return done.stdout

        # Until then it names the usual port of the active node's management.
        handed = lambda: asked(pair.replica, "POST", "", name="x")[0] == 200
        eventually("the replica knows where to hand on to", handed, CATCH_UP_SECONDS)
        run("group", "add", "readers", "--role", "data_reader[default]")
        run("add", "ana", "--group", "readers")
        assert "ana" in run("list") and "readers" in run("group", "list")
        there = json.loads(must(pair.active, "GET", "/settings/rbac/users/local"))
        equal([user["id"] for user in there], ["ana"], "the users of the active node")
        run("del", "ana")
        equal(json.loads(must(pair.active, "GET", "/settings/rbac/users/local")), [])


@suite.test
def a_node_that_lost_its_data_is_not_followed():
    with Pair() as pair:
        keys = names(b"kept", 200)
        fill(pair.active, keys)
        caught_up(pair.active, pair.replica)
        pair.active.stop()
        shutil.rmtree(pair.active.data)
        pair.active.start().ready()
        fill(pair.active, names(b"new", 50))
        refused = lambda: "lose its data" in stats(pair.replica, "replication")["last_error"]
        eventually("the replica says why it does not follow", refused, CATCH_UP_SECONDS)
        equal(versions(pair.replica, keys, GET_REPLICA), dict.fromkeys(keys, 1), "documents of the replica")
        # Told so, it gives up what it has, all of it, and is read from meanwhile.
        pair.replica.stop()
        pair.replica.flags.append("--demote")
        pair.replica.start()
        allowed = {None, 1}
        while high_seqnos(pair.replica) != high_seqnos(pair.active):
            mixed = set(versions(pair.replica, keys[:20], GET_REPLICA, settle=True).values()) - allowed
            equal(mixed, set(), "versions while it is rolled back")
        equal(versions(pair.replica, keys, GET_REPLICA), dict.fromkeys(keys), "documents of before")
        equal(versions(pair.replica, names(b"new", 50), GET_REPLICA), dict.fromkeys(names(b"new", 50), 1), "new documents")


@suite.test
def a_bucket_with_another_number_of_vbuckets_is_not_followed():
    few = ("--bucket", "default:64:couchbase:value:none:128")
    with Pair(*few) as pair:
        eventually("it is followed", lambda: stats(pair.replica, "replication")["streams"] == "128")
        other = follower_of(pair.active, "--bucket", "default:64")
        reason = lambda: "128 vBuckets there and 1024 here" in stats(other, "replication")["last_error"]
        eventually("the replica says why it does not follow", reason, CATCH_UP_SECONDS)
        other.kill()
        other.close()


GET_CLUSTER_CONFIG, GET_MANIFEST, SET_PARAM, DCP_PARAM = 0xB5, 0xBA, 0x82, 4


def set_param(node, name, value):
    reply = log_in(node).call(SET_PARAM, name.encode(), struct.pack(">I", DCP_PARAM), value.encode())
    equal(reply.status, SUCCESS, f"status of SET_PARAM {name}")


def role_of(node):
    return stats(node, "replication")["role"]


def gives_way(node):
    eventually("the old active node gives way", lambda: role_of(node) == "superseded", CATCH_UP_SECONDS)


def map_in_refusal(node, key=b"k"):
    """The map that comes with the refusal of a write."""
    reply = key_call(log_in(node), SET, key, bytes(8), b"v")
    equal(reply.status, NOT_MY_VBUCKET, "status of a write to a node that gave way")
    return json.loads(reply.value)


def servers_in(config):
    return config["vBucketServerMap"]["serverList"]


def ended_with(node):
    """Exit code and last words of a node that does not start."""
    done = finished(node.command())
    return done.returncode, done.stderr


@suite.test
def the_old_active_node_gives_way_once_it_hears_of_a_promotion():
    with Apart() as pair:
        old, new = pair.nodes
        common, lost, kept = names(b"common", 200), names(b"lost", 200), names(b"kept", 200)
        fill(old, common)
        caught_up(old, new)
        pair.wire.cut()
        promote(new)
        # Neither knows of the other: both take plain writes.
        fill(old, lost)
        fill(new, kept)
        equal((role_of(old), role_of(new)), ("active", "alone"), "roles while the line is cut")
        untold = lambda: "was not told of the promotion" in stats(new, "replication")["last_error"]
        eventually("the promoted node says whom it could not tell", untold, CATCH_UP_SECONDS)
        pair.wire.flow()
        gives_way(old)
        config = map_in_refusal(old)
        equal(config["revEpoch"], 2, "epoch of the map that the old active node tells")
        equal(servers_in(config)[-1], f"127.0.0.1:{new.kv}", "the active node in it")
        if "own_changes=\"200\"" not in old.log.read_text() and "own_changes=200" not in old.log.read_text():
            raise AssertionError(f"the log does not count what only the old active node has:\n{old.tail()}")
        told = lambda: stats(new, "replication")["last_error"] == ""
        eventually("the promoted node knows that all have heard", told, CATCH_UP_SECONDS)
        # What it learned outlives it, and nothing is given up by it.
        for end in (old.stop, old.kill):
            end()
            old.start()
            equal(role_of(old), "superseded", "role after a restart")
            map_in_refusal(old)
        equal(versions(old, lost, GET_REPLICA), dict.fromkeys(lost, 1), "what only the old active node has")
        old.stop()
        old.flags = ["--replica-of", new.address]
        code, words = ended_with(old)
        if code != 78 or "--demote" not in words:
            raise AssertionError(f"it follows only when told to give up what it has: {code} {words}")
        old.flags.append("--demote")
        old.start()
        caught_up(new, old)
        expected = {**dict.fromkeys(common + kept, 1), **dict.fromkeys(lost)}
        equal(versions(old, list(expected), GET_REPLICA), expected, "documents once it follows")
        old.stop()
        old.flags.remove("--demote")
        old.start()
        caught_up(new, old)
        equal(role_of(old), "replica", "role without --demote from then on")


@suite.test
def a_client_with_a_later_map_has_the_old_active_node_give_way():
    with Apart() as pair:
        old, new = pair.nodes
        fill(old, names(b"common", 50))
        caught_up(old, new)
        pair.wire.cut()
        # Restarted, it still knows that there was a replica which may have been promoted.
        old.stop()
        old.start()
        promote(new)
        own = log_in(new).call(GET_CLUSTER_CONFIG)
        config = json.loads(own.value)
        known = struct.pack(">qq", config["revEpoch"], config["rev"])
        reply = log_in(old).call(GET_CLUSTER_CONFIG, extras=known)
        equal((reply.status, reply.value), (SUCCESS, b""), "the client's map is the newer one")
        equal(role_of(old), "superseded", "role of the old active node")
        config = map_in_refusal(old)
        equal((config["revEpoch"], len(servers_in(config))), (2, 2), "its map")


@suite.test
def a_node_that_had_no_replica_believes_no_client():
    node = Node().start().ready()
    try:
        reply = log_in(node).call(GET_CLUSTER_CONFIG, extras=struct.pack(">qq", 7, 7))
        equal(reply.status, SUCCESS, "status")
        equal(role_of(node), "alone", "role")
        fill(node, names(b"k", 10))
    finally:
        node.close()


@suite.test
def a_promoted_node_starts_as_the_active_one_whatever_its_settings_say():
    with Pair() as pair:
        old, new = pair.nodes
        fill(old, names(b"common", 50))
        caught_up(old, new)
        old.stop()
        promote(new)
        for end in (new.stop, new.kill):
            end()
            new.start()
            equal(role_of(new), "alone", "role after a restart")
            fill(new, names(b"new", 50))
        if "was promoted: it starts as the active one" not in new.log.read_text():
            raise AssertionError(f"the log does not say so:\n{new.tail()}")
        # The old one comes back as if nothing had happened, and is told.
        old.start()
        gives_way(old)
        # Even without a document, and by force the old one is active again.
        command = [binary(), "promote", "--connect", old.address]
        refused = finished(command)
        if refused.returncode == 0 or "another node was promoted" not in refused.stderr:
            raise AssertionError(f"{refused}")
        finished([*command, "--force"]).check_returncode()
        equal(role_of(old), "alone", "role of the one that was promoted by force")
        fill(old, names(b"again", 10))


@suite.test
def a_switch_over_takes_all_nodes_along():
    with Pair() as trio:
        old, new = trio.nodes
        other = follower_of(old)
        trio.nodes.append(other)
        everybody = lambda: all(len(served_nodes(node)) == 3 for node in trio.nodes)
        eventually("all are in all maps", everybody, CATCH_UP_SECONDS)
        fill(old, names(b"common", 50))
        caught_up(old, new)
        promote(new)
        gives_way(old)
        follows = lambda: str(new.kv) in stats(other, "replication")["peer"] and streams_are_open(other)
        eventually("the other replica follows the promoted one", follows, CATCH_UP_SECONDS)
        fill(new, names(b"after", 50))
        caught_up(new, other)


@suite.test
def a_replica_is_listed_where_it_listens_or_as_it_advertises():
    active = Node().start().ready()
    nodes = [active]
    try:
        nodes.append(follower_of(active, "--listen", "127.0.0.2"))
        listed = lambda: servers_in(json.loads(log_in(active).call(GET_CLUSTER_CONFIG).value))
        here = lambda: f"127.0.0.2:{nodes[1].kv}" in listed()
        eventually("the map names the address that the replica listens on", here, CATCH_UP_SECONDS)
        nodes.append(follower_of(active, "--advertise", "couch.example"))
        named = lambda: f"couch.example:{nodes[2].kv}" in listed()
        eventually("the map names what the replica advertises", named, CATCH_UP_SECONDS)
    finally:
        for node in nodes:
            node.close()


def over_tls(port):
    return address(port).replace("couchbase://", "couchbases://")


@suite.test
def the_link_between_nodes_may_be_over_tls():
    old = Node("--kv-tls-port", "0").start().ready()
    nodes, wire = [old], Wire(old.ports["kv_tls"])
    try:
        fill(old, names(b"visible-key", 200))
        trusted = ["--peer-ca", str(old.data / "tls" / "ca.pem")]
        stranger = Node("--kv-tls-port", "0", "--replica-of", over_tls(wire.port), "--peer-ca", "/dev/null")
        nodes.append(stranger.start())
        why = lambda: "no certificate" in stats(stranger, "replication")["last_error"]
        eventually("a node that is not trusted is not followed", why, CATCH_UP_SECONDS)
        equal(stats(stranger, "replication")["changes"], "0", "changes from a node that is not trusted")
        stranger.stop()
        stranger.flags[-1] = str(stranger.data / "tls" / "ca.pem")
        stranger.start()
        why = lambda: "certificate" in stats(stranger, "replication")["last_error"]
        eventually("a certificate of another authority is refused", why, CATCH_UP_SECONDS)
        stranger.stop()
        stranger.flags[-2:] = trusted
        new = stranger.start()
        caught_up(old, new)
        equal(versions(new, names(b"visible-key", 200), GET_REPLICA), dict.fromkeys(names(b"visible-key", 200), 1), "copy")
        # Cut in the middle, it goes on.
        wire.cut()
        fill(old, names(b"visible-key", 200), version=2)
        wire.flow()
        caught_up(old, new)
        if b"visible-key" in wire.seen or b"Administrator" in wire.seen or not wire.seen:
            raise AssertionError("the link shows what passes")
        promote(new)
        gives_way(old)
        equal(map_in_refusal(old)["revEpoch"], 2, "epoch")
    finally:
        wire.close()
        for node in nodes:
            node.close()


@suite.test
def a_follower_shows_its_certificate():
    old = Node("--kv-tls-port", "0", "--client-cert", "mandatory").start().ready()
    nodes = [old]
    try:
        fill(old, names(b"k", 200))
        cert, key = client_certificate(old, "Administrator")
        of = f"couchbases://127.0.0.1:{old.ports['kv_tls']}/default"
        new = Node("--replica-of", of, "--peer-ca", str(old.data / "tls" / "ca.pem"))
        nodes.append(new.start())
        why = lambda: "ertificate" in stats(new, "replication")["last_error"]
        eventually("without a certificate it is refused", why, CATCH_UP_SECONDS)
        new.stop()
        new.flags += ["--peer-cert", cert, "--peer-key", key]
        new.start()
        caught_up(old, new)
        equal(versions(new, names(b"k", 200), GET_REPLICA), dict.fromkeys(names(b"k", 200), 1), "copy")
    finally:
        for node in nodes:
            node.close()


@suite.test
def passwords_are_in_no_process_list_statistic_or_log():
    secret = "open-sesame-17"
    active = Node("--username", "clerk")
    active.environment["SETTEE_PASSWORD"] = secret
    nodes = [active.start().ready()]
    try:
        at = f"couchbase://clerk@127.0.0.1:{active.kv}/default"
        file = active.home / "secret"
        file.write_text(secret + "\n")
        by_file = Node("--replica-of", at, "--peer-password-file", str(file))
        by_environment = Node("--replica-of", at)
        by_environment.environment["SETTEE_PEER_PASSWORD"] = secret
        nodes += [by_file.start(), by_environment.start()]
        command = [binary(), "stat", "replication", "--connect", at]

        def shown(*more, **environment):
            done = finished([*command, *more], **environment)
            equal(done.returncode, 0, f"settee stat: {done.stderr}")
            return done.stdout

        both = lambda: f":{by_file.kv}" in shown("--password-file", str(file)) and f":{by_environment.kv}" in shown(
            SETTEE_CONNECT_PASSWORD=secret
        )
        eventually("both follow", both, CATCH_UP_SECONDS)
        refused = finished(command)
        if refused.returncode != 64 or "no password" not in refused.stderr:
            raise AssertionError(f"{refused}")
        for node in nodes:
            line = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
            if secret.encode() in line or secret in node.log.read_text():
                raise AssertionError(f"the password is shown: {line}")
        if secret in shown("--password-file", str(file)):
            raise AssertionError("statistics show the password")
    finally:
        for node in nodes:
            node.close()


@suite.test
def a_body_that_never_comes_costs_the_connection():
    with Apart() as pair:
        pair.streams()
        set_param(pair.replica, "dcp_idle_timeout", "8")
        connects = int(stats(pair.replica, "replication")["connects"])
        pair.wire.stall_after(100_000)
        connection = log_in(pair.active)
        large = b"x" * 1_000_000
        equal(key_call(connection, SET, b"large", bytes(8), large).status, SUCCESS, "status of a large document")
        again = lambda: int(stats(pair.replica, "replication")["connects"]) > connects
        eventually("the replica connects again", again, CATCH_UP_SECONDS)
        caught_up(pair.active, pair.replica)


@suite.test
def promotion_of_what_follows_nothing_is_refused():
    node = Node().start().ready()
    try:
        command = [binary(), "promote", "--connect", node.address]
        done = finished(command)
        if done.returncode == 0 or "follows no other node" not in done.stderr:
            raise AssertionError(f"{done}")
    finally:
        node.close()


if __name__ == "__main__":
    suite.main()
