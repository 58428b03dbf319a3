"""As many collections as there may be: they and their documents outlive kills, and are streamed and replicated exactly.

Most are made by one manifest (a group of events in each vBucket), some one by one. Documents lie in some of them,
under the same few keys, so that a vBucket has documents of many collections. Checked are the manifest, the number
of every name, every document, that nothing else is there, and what a change stream tells of the vBuckets of
those keys and of one without documents.

usage: suite.py [name of a test]
"""

import json
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import dcp
from harness import Node, Suite, equal, eventually
from manage import BUCKET, asked, call, manage
from mcbp import (
    DELETE,
    FEATURE_ALT_REQUEST,
    FEATURE_COLLECTIONS,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_SYNC_REPLICATION,
    FEATURE_XERROR,
    GET,
    GET_COLLECTION_ID,
    GET_REPLICA,
    NOT_FOUND,
    SET,
    SUCCESS,
    UNKNOWN_COLLECTION,
    Connection,
    collection_key,
    frame,
    vbucket_of,
)
from pair import CATCH_UP_SECONDS, Pair, caught_up, promote, stats

PERSIST_TO_MAJORITY = bytes([0x11, 3])

MOST = 1000
# What every bucket has besides; the system scope counts against no limit.
OWN = [("_default", "_default"), ("_system", "_mobile"), ("_system", "_query")]
GROUPED = 970
KEYS = [b"k%d" % n for n in range(4)]
# Every so many collections have documents.
USED = 9

suite = Suite("collections")


def log_in(node):
    connection = Connection(node.kv, seconds=30)
    connection.hello(
        FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS,
        FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION,
    )  # fmt: skip
    return connection.login()


def all_of(node, requests):
    """The responses to requests that are sent together."""
    connection = log_in(node)
    connection.send(b"".join(requests))
    replies = [connection.receive() for _ in requests]
    connection.close()
    return replies


def collections_of(node):
    """Number of each collection by scope and name."""
    scopes = json.loads(manage(node, "GET", ""))["scopes"]
    return {(scope["name"], one["name"]): int(one["uid"], 16) for scope in scopes for one in scope["collections"]}


class World:
    """What there must be."""

    def __init__(self, node):
        self.node = node
        # By scope and name, the number; values by number and key; numbers that ended.
        self.collections, self.documents, self.ended = {}, {}, set()
        self.version = 0

    def put(self, names):
        """Makes these the collections besides the default one, with one manifest."""
        scopes = {"_default": ["_default"]}
        for scope, name in names:
            scopes.setdefault(scope, []).append(name)
        scopes = [{"name": s, "collections": [{"name": n} for n in names]} for s, names in scopes.items()]
        status, _, body = call(self.node, "PUT", BUCKET, json.dumps({"scopes": scopes}).encode())
        equal(status, 200, f"status of a manifest ({body[:200]})")
        self.learn(names)

    def post(self, names):
        """Makes these one by one."""
        for scope, name in names:
            manage(self.node, "POST", f"/{scope}/collections", name=name)
        self.learn([*self.names(), *names])

    def drop(self, names):
        """Drops these one by one."""
        for scope, name in names:
            manage(self.node, "DELETE", f"/{scope}/collections/{name}")
        self.learn([name for name in self.names() if name not in set(names)])

    def names(self):
        return [name for name in self.collections if name not in OWN]

    def learn(self, names):
        """Takes the numbers of what was made, and forgets what was dropped."""
        found = collections_of(self.node)
        equal(sorted(found), sorted([*OWN, *names]), "collections")
        self.ended |= set(self.collections.values()) - set(found.values())
        equal(self.ended & set(found.values()), set(), "numbers that were given again")
        for name, number in self.collections.items():
            if name in found and number not in self.ended:
                equal(found[name], number, f"number of {name}")
        self.collections = found
        here = set(found.values())
        self.documents = {place: value for place, value in self.documents.items() if place[0] in here}

    def used(self):
        """The collections with documents: the default one, and some of every scope, of any age."""
        return [number for at, number in enumerate(self.collections.values()) if at % USED == 0]

    def write(self, durably=False):
        """Writes a document under each key into each used collection, then deletes some."""
        self.version += 1
        framing = PERSIST_TO_MAJORITY if durably else None
        value = lambda number, key: b"%d:%d:%s" % (self.version, number, key)
        # Durable writes of a connection are made one after the other, so there are few.
        numbers = self.used()[::4] if durably else self.used()
        places = [(number, key) for number in numbers for key in KEYS]
        requests = [
            frame(SET, collection_key(number, key), bytes(8), value(number, key), vbucket=vbucket_of(key), framing=framing)
            for number, key in places
        ]
        removed = places[:: 2 * len(KEYS) + 1]
        requests += [
            frame(DELETE, collection_key(number, key), vbucket=vbucket_of(key), framing=framing) for number, key in removed
        ]
        for reply in all_of(self.node, requests):
            equal(reply.status, SUCCESS, f"status of a write ({reply!r})")
        self.documents.update({place: value(*place) for place in places})
        for place in removed:
            del self.documents[place]

    def check(self, node, opcode=GET):
        """Whether a node has all of this and nothing else."""
        equal(collections_of(node), self.collections, "collections")
        asked_for = [frame(GET_COLLECTION_ID, b"", b"", f"{s}.{n}".encode()) for s, n in self.collections]
        numbers = [struct.unpack(">QI", reply.extras)[1] for reply in all_of(node, asked_for)]
        equal(numbers, list(self.collections.values()), "numbers of the names")
        places = [(number, key) for number in [*self.collections.values(), *self.ended] for key in KEYS]
        replies = all_of(node, [frame(opcode, collection_key(n, key), vbucket=vbucket_of(key)) for n, key in places])
        for place, reply in zip(places, replies):
            wanted = (UNKNOWN_COLLECTION, None) if place[0] in self.ended else (NOT_FOUND, None)
            if place in self.documents:
                wanted = (SUCCESS, self.documents[place])
            equal((reply.status, reply.value if reply.status == SUCCESS else None), wanted, f"document {place}")

    def persisted(self, node):
        eventually("all is in the store", lambda: stats(node, "")["ep_queue_size"] == "0", 30)


class View:
    """What a consumer knows of the collections and documents of some vBuckets."""

    def __init__(self, vbuckets=None):
        vbuckets = vbuckets or [*sorted(map(vbucket_of, KEYS)), 0]
        self.positions = {vb: dcp.Position() for vb in vbuckets}
        self.collections = {vb: {} for vb in vbuckets}
        self.documents = {}

    def follow(self, node):
        """Takes what is new; gives the number of events."""
        consumer = dcp.Consumer(node)
        found = consumer.changes(self.positions)
        consumer.close()
        return sum(self.take(vb, change) for vb, changes in found.items() for change in changes)

    def take(self, vb, change):
        known, name = self.collections[vb], change.name
        if change.what == dcp.BEGIN:
            if change.collection in known:
                raise AssertionError(f"vb {vb}: {change.collection} begins twice: {change}")
            known[change.collection] = name
        elif change.what == dcp.END:
            known.pop(change.collection, None)
            gone = [place for place in self.documents if place[0] == change.collection and vbucket_of(place[1]) == vb]
            for place in gone:
                del self.documents[place]
        elif change.what == dcp.SET:
            equal(vbucket_of(name), vb, f"vBucket of {change}")
            self.documents[change.collection, name] = change.value
        elif change.what == dcp.DELETE:
            self.documents.pop((change.collection, name), None)
        return change.what not in (dcp.SET, dcp.DELETE)

    def check(self, world):
        wanted = {number: name for (_, name), number in world.collections.items() if number}
        for vb, known in self.collections.items():
            equal(known, wanted, f"collections that the stream of vb {vb} tells of")
        equal(self.documents, world.documents, "documents that streams tell of")


def whole(node, world):
    """Checks what a consumer sees from nothing on."""
    view = View()
    view.follow(node)
    view.check(world)
    return view


def grouped():
    """Most of the names, in ten scopes."""
    return [(f"s{at % 10}", f"grouped-{at:03}") for at in range(GROUPED)]


def single(prefix="single"):
    """What is left of them."""
    return [(f"s{at % 10}", f"{prefix}-{at:03}") for at in range(MOST - GROUPED - 1)]


def fill(node):
    """A node with as many collections as there may be, and documents."""
    world = World(node)
    world.put(grouped())
    world.post(single())
    equal(len(world.names()), MOST - 1, "collections")
    equal(asked(node, "POST", "/s0/collections", name="one-too-many")[0], 400, "status of one more")
    world.write()
    return world


def replace_some(world, rounds):
    """Drops some of each kind and makes them again: with one manifest each, in odd rounds one by one."""
    names = world.names()
    some = [*names[rounds :: 5 * USED], *names[-rounds - 2 : -rounds]]
    if rounds % 2:
        world.drop(some)
        world.post(some)
    else:
        world.put([name for name in names if name not in set(some)])
        world.put([*world.names(), *some])
    world.write()


@suite.test
def a_thousand_collections_outlive_kills_and_restarts():
    node = Node().start().ready()
    try:
        world = fill(node)
        world.persisted(node)
        for rounds, end in enumerate((node.kill, node.stop, node.kill)):
            world.write(durably=True)
            end()
            node.start().ready()
            world.check(node)
            whole(node, world)
            replace_some(world, rounds)
            world.persisted(node)
        # Changes of collections are durable once they are answered.
        world.drop(single()[:3])
        world.post([("s1", f"last-{at}") for at in range(3)])
        node.kill()
        node.start().ready()
        world.check(node)
        whole(node, world)
    finally:
        node.close()


@suite.test
def a_consumer_is_told_of_a_thousand_collections_exactly():
    node = Node().start().ready()
    try:
        view = View()
        view.follow(node)
        world = World(node)
        world.put(grouped())
        equal(view.follow(node), (GROUPED + 10) * len(view.positions), "events of one manifest")
        view.check(world)
        world.post(single())
        world.write()
        equal(view.follow(node), (MOST - 1 - GROUPED) * len(view.positions), "events of collections made one by one")
        view.check(world)
        for rounds in range(3):
            replace_some(world, rounds)
            if rounds == 1:
                node.stop()
                node.start().ready()
            view.follow(node)
            view.check(world)
            whole(node, world)
        filters(node, world)
    finally:
        node.close()


def filters(node, world):
    """Streams about one collection of the group, one made alone, one made again, and a scope."""
    vb = vbucket_of(KEYS[0])
    names = world.names()
    for name in (names[USED - 1], names[-1], names[0], single()[-1]):
        number = world.collections[name]
        found = dcp.Consumer(node).changes({vb: dcp.Position()}, json.dumps({"collections": [f"{number:x}"]}).encode())[vb]
        events = [(c.what, c.collection, c.name) for c in found if c.what not in (dcp.SET, dcp.DELETE)]
        equal(events, [(dcp.BEGIN, number, name[1])], f"events about {name}")
        values = {c.name: c.value for c in found if c.what == dcp.SET}
        value = world.documents.get((number, KEYS[0]))
        equal(values, {KEYS[0]: value} if value else {}, f"documents of {name}")
    scopes = json.loads(manage(node, "GET", ""))["scopes"]
    uid = next(scope["uid"] for scope in scopes if scope["name"] == "s3")
    found = dcp.Consumer(node).changes({vb: dcp.Position()}, json.dumps({"scope": uid}).encode())[vb]
    known = {}
    for change in found:
        if change.what == dcp.BEGIN:
            known[change.collection] = change.name
        elif change.what == dcp.END:
            known.pop(change.collection, None)
    wanted = {number: name for (scope, name), number in world.collections.items() if scope == "s3"}
    equal(known, wanted, "collections of a scope")


@suite.test
def a_replica_follows_a_thousand_collections_over_its_own_kill():
    with Pair() as pair:
        world = fill(pair.active)

        def follows():
            caught_up(pair.active, pair.replica)
            same = lambda: collections_of(pair.replica) == world.collections
            eventually("the replica knows the collections", same, CATCH_UP_SECONDS)
            world.check(pair.replica, GET_REPLICA)
            whole(pair.replica, world)

        follows()
        pair.replica.kill()
        replace_some(world, 0)
        replace_some(world, 1)
        pair.replica.start()
        follows()
        equal(stats(pair.replica, "replication")["rollbacks"], "0", "rollbacks")
        pair.streams()
        world.write(durably=True)
        pair.active.kill()
        promote(pair.replica)
        world.node = pair.replica
        world.check(pair.replica)
        replace_some(world, 1)
        world.check(pair.replica)
        whole(pair.replica, world)


if __name__ == "__main__":
    suite.main()
