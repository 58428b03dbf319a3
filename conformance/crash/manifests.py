"""kill -9 while collections come, change and go, with documents in them.

After the restart: what was answered as made is there, what was answered as dropped is not, and what was
asked for and not answered is one or the other. Every document observed as persisted in a collection that is there
is there, whole and no older; nothing of a dropped one is, also not in the next one of its name.
"""

import json
import random
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, eventually
from manage import manage
from mcbp import (
    FEATURE_COLLECTIONS,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_XERROR,
    GET,
    GET_COLLECTION_ID,
    NOT_FOUND,
    OBSERVE_SEQNO,
    SET,
    SUCCESS,
    TEMPORARY_FAILURE,
    UNKNOWN_COLLECTION,
    Closed,
    Connection,
    collection_key,
    frame,
    vbucket_of,
)

NAMES = [f"c{n}" for n in range(5)]
KEYS = 40
BATCH = 12
ROUND_SECONDS = (0.3, 2.0)
ABSENT, PRESENT, EITHER = "absent", "present", "either"


def log_in(port):
    connection = Connection(port, seconds=30)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS)
    return connection.login()


class Collection:
    """One life of a name."""

    def __init__(self, name):
        self.name = name
        self.id = None
        self.state = EITHER
        self.ttl = {0}
        self.next_version = 1
        # Of each key: the newest version observed as persisted, and those sent since.
        self.persisted, self.sent = {}, {}


class Manager(threading.Thread):
    """Changes collections and writes into them until the node dies."""

    def __init__(self, node, chance, lives):
        super().__init__(daemon=True)
        self.node, self.random, self.lives = node, chance, lives
        self.connection = log_in(node.kv)
        self.problem = None
        self.changes = self.observed = 0

    def run(self):
        try:
            while True:
                what = self.random.random()
                name = self.random.choice(NAMES)
                life = self.lives.get(name)
                if what < 0.25:
                    self.drop(life) if life else self.create(name)
                elif what < 0.35 and life:
                    self.change(life)
                elif life:
                    self.write(life)
        except (Closed, OSError):
            pass  # the node was killed
        except Exception as error:  # noqa: BLE001 - told by the main thread
            self.problem = error

    def create(self, name):
        life = Collection(name)
        self.lives[name] = life
        manage(self.node, "POST", "/s/collections", name=name)
        life.state = PRESENT
        reply = self.connection.call(GET_COLLECTION_ID, b"", b"", f"s.{name}".encode())
        if reply.status != SUCCESS:
            raise AssertionError(f"{name} was made and is not there: {reply!r}")
        life.id = struct.unpack(">QI", reply.extras)[1]
        self.changes += 1

    def drop(self, life):
        life.state = EITHER
        manage(self.node, "DELETE", f"/s/collections/{life.name}")
        life.state = ABSENT
        self.lives.pop(life.name)
        self.lives.setdefault("dropped", []).append(life)
        reply = self.connection.call(GET, collection_key(life.id, b"k0"), vbucket=vbucket_of(b"k0"))
        if reply.status != UNKNOWN_COLLECTION:
            raise AssertionError(f"{life.name} was dropped and answers: {reply!r}")
        self.changes += 1

    def change(self, life):
        ttl = self.random.choice((0, 1000, 2000))
        life.ttl.add(ttl)
        manage(self.node, "PATCH", f"/s/collections/{life.name}", maxTTL=ttl)
        life.ttl = {ttl}
        self.changes += 1

    def write(self, life):
        keys = [b"k%d" % n for n in self.random.sample(range(KEYS), BATCH)]
        versions = {}
        for key in keys:
            versions[key] = life.next_version
            life.sent.setdefault(key, set()).add(life.next_version)
            life.next_version += 1
        self.connection.send(
            b"".join(
                frame(SET, collection_key(life.id, key), bytes(8), b"%d:" % life.id + b"%d" % versions[key], vbucket=vbucket_of(key))
                for key in keys
            )
        )
        tokens = {}
        for key in keys:
            reply = self.connection.receive()
            if reply.status == SUCCESS:
                tokens[key] = struct.unpack(">QQ", reply.extras)
            elif reply.status != TEMPORARY_FAILURE:
                raise AssertionError(f"{life.name} {key!r}: {reply!r}")
        # The flusher writes at its own pace: ask until all are there, or something else is due.
        for _ in range(self.random.choice((1, 5000, 5000))):
            asked = list(tokens.items())
            self.connection.send(
                b"".join(
                    frame(OBSERVE_SEQNO, b"", b"", token[0].to_bytes(8, "big"), vbucket=vbucket_of(key)) for key, token in asked
                )
            )
            for key, token in asked:
                reply = self.connection.receive()
                if reply.status != SUCCESS:
                    raise AssertionError(f"OBSERVE_SEQNO: {reply!r}")
                if struct.unpack_from(">BHQQQ", reply.value)[3] >= token[1]:
                    life.persisted[key] = versions[key]
                    life.sent[key] = {sent for sent in life.sent[key] if sent >= versions[key]}
                    del tokens[key]
                    self.observed += 1
            if not tokens:
                break


def check(node, lives):
    """What is there against what may be; gives the lives that go on."""
    manifest = json.loads(manage(node, "GET", ""))
    scope = next(scope for scope in manifest["scopes"] if scope["name"] == "s")
    there = {one["name"]: one for one in scope["collections"]}
    dropped = lives.pop("dropped", [])
    documents = 0
    connection = log_in(node.kv)
    for life in list(lives.values()):
        found = there.pop(life.name, None)
        other = found is None or life.id not in (None, int(found["uid"], 16))
        if life.state == PRESENT and other:
            raise AssertionError(f"{life.name} ({life.id}) is lost: {found}")
        if found is None:
            dropped.append(lives.pop(life.name))
            continue
        if found["maxTTL"] not in life.ttl:
            raise AssertionError(f"{life.name}: maxTTL {found['maxTTL']}, possible are {life.ttl}")
        life.id, life.state, life.ttl = int(found["uid"], 16), PRESENT, {found["maxTTL"]}
        documents += check_documents(connection, life)
    if there:
        raise AssertionError(f"nobody made {list(there)}")
    for life in dropped:
        if life.id is None:
            continue
        for key in life.sent:
            reply = connection.call(GET, collection_key(life.id, key), vbucket=vbucket_of(key))
            if reply.status != UNKNOWN_COLLECTION:
                raise AssertionError(f"{life.name} ({life.id}) is gone, and {key!r} answers {reply!r}")
    eventually(f"{documents} documents and no more are counted", lambda: items(node) == documents, 30)
    connection.close()


def check_documents(connection, life):
    """The documents of a collection that is there; gives how many there are."""
    found = 0
    for n in range(KEYS):
        key = b"k%d" % n
        reply = connection.call(GET, collection_key(life.id, key), vbucket=vbucket_of(key))
        persisted, possible = life.persisted.get(key), life.sent.get(key, set())
        if reply.status == NOT_FOUND:
            if persisted is not None:
                raise AssertionError(f"{life.name} {key!r}: version {persisted} was persisted and is lost")
            life.sent.pop(key, None)
            continue
        if reply.status != SUCCESS:
            raise AssertionError(f"{life.name} {key!r}: {reply!r}")
        of, version = map(int, reply.value.split(b":"))
        if of != life.id or version not in possible:
            raise AssertionError(f"{life.name} ({life.id}) {key!r}: found {reply.value}, possible are {possible}")
        life.sent[key] = {version}
        life.persisted[key] = version
        found += 1
    return found


def items(node):
    connection = log_in(node.kv)
    found = int(connection.stats()["curr_items"])
    connection.close()
    return found


def rounds(count, chance):
    """Runs; gives how many rounds failed."""
    node = Node().start().ready()
    failed = changes = observed = 0
    lives = {}
    try:
        manage(node, "POST", "", name="s")
        for number in range(count):
            manager = Manager(node, random.Random(chance.random()), lives)
            manager.start()
            time.sleep(chance.uniform(*ROUND_SECONDS))  # the random moment itself
            node.kill()
            manager.join(30)
            manager.connection.close()
            node.start().ready()
            problem = manager.problem
            if problem is None:
                try:
                    check(node, lives)
                except AssertionError as error:
                    problem = error
            changes += manager.changes
            observed += manager.observed
            outcome = "FAIL" if problem else "ok  "
            print(f"{outcome} crash: collections, round {number}: {manager.changes} changes, {manager.observed} times observed as persisted")
            if problem:
                failed += 1
                print(f"     {problem!r}")
                break
        if not failed and not (changes and observed):
            failed = 1
            print("FAIL crash: no collection was changed, or nothing persisted: nothing was proven")
    finally:
        node.close()
    return failed
