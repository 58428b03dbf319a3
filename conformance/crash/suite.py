"""kill -9 at random moments: what was observed as persisted is there, and nothing is torn.

Writers set and delete documents of their own and, between batches, ask what is persisted: in even
rounds with OBSERVE_SEQNO (the persisted seqno reached the mutation's), in odd rounds with OBSERVE
(the document is persisted with the CAS of the write). Then the node is killed and started again on
the same data directory. Every document must be in a state that a write at or after the last one
observed as persisted left; a value carries its key, its version and a checksum of itself.

In the second half of the rounds the files are encrypted, with keys in turn.

After that the same among collections that come and go: see manifests.py.

usage: suite.py [--rounds N] [--manifest-rounds N] [--seed N]
"""

import argparse
import os
import random
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import manifests
from harness import Node
from mcbp import (
    DELETE,
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_XERROR,
    GET,
    NOT_FOUND,
    OBSERVE,
    OBSERVE_SEQNO,
    SET,
    SUCCESS,
    TEMPORARY_FAILURE,
    Closed,
    Connection,
    frame,
    vbucket_of,
)

WRITERS = 4
KEYS_PER_WRITER = 150
BATCH = 25
ROUND_SECONDS = (0.05, 1.2)
OBSERVED_PERSISTED = 0x01


def value_of(key, version, size):
    """A value that tells whose it is and whether it is whole."""
    filler = zlib.crc32(key + version.to_bytes(8, "big")).to_bytes(4, "big")
    body = struct.pack(">QH", version, len(key)) + key + filler * (size // 4)
    return zlib.crc32(body).to_bytes(4, "big") + body


def version_in(key, value):
    """The version that a value carries; fails when it is torn or another document's."""
    body = value[4:]
    if zlib.crc32(body).to_bytes(4, "big") != value[:4]:
        raise AssertionError(f"{key!r}: the value is torn ({len(value)} bytes)")
    version, key_len = struct.unpack_from(">QH", body)
    if body[10 : 10 + key_len] != key:
        raise AssertionError(f"{key!r}: the value belongs to {body[10:10 + key_len]!r}")
    return version


class Document:
    """What one key went through since the last write that was observed as persisted."""

    def __init__(self, key):
        self.key = key
        self.vbucket = vbucket_of(key)
        self.next_version = 1
        # (version, is deletion), oldest first; the first is persisted, all later ones may be.
        # Version 0 as a deletion is the state before any write.
        self.possible = [(0, True)]
        # Answered writes not yet observed as persisted: (version, uuid, seqno, cas, is deletion).
        self.answered = []

    def persisted(self, version):
        """`version` was observed as persisted: nothing older may be seen again."""
        self.possible = [state for state in self.possible if state[0] >= version]
        self.answered = [write for write in self.answered if write[0] > version]

    def settle(self, found):
        """After a restart: checks what was found, and makes it the known state."""
        matches = [s for s in self.possible if (s[1] if found is None else s == (found, False))]
        if not matches:
            seen = "nothing" if found is None else f"version {found}"
            raise AssertionError(f"{self.key!r}: found {seen}, possible are {self.possible}")
        self.possible = [matches[-1]]
        self.answered = []


class Writer(threading.Thread):
    """Owns some documents and one connection, until the node dies under it."""

    def __init__(self, port, documents, seed, by_seqno):
        super().__init__(daemon=True)
        self.connection = log_in(port)
        self.documents = documents
        self.random = random.Random(seed)
        self.by_seqno = by_seqno
        self.stop = threading.Event()
        self.problem = None
        self.writes = self.observed = 0

    def run(self):
        try:
            while not self.stop.is_set():
                batch = self.random.sample(self.documents, BATCH)
                self.write(batch)
                older = self.documents[:BATCH]
                self.observe({d.key: d for d in batch + older if d.answered}.values())
        except (Closed, TimeoutError, OSError):
            pass  # the node was killed
        except Exception as error:  # noqa: BLE001 - told by the main thread
            self.problem = error

    def write(self, batch):
        sent, data = [], []
        for document in batch:
            version = document.next_version
            document.next_version += 1
            deletes = self.random.random() < 0.15
            if deletes:
                request = frame(DELETE, document.key, vbucket=document.vbucket)
            else:
                size = self.random.choice((16, 200, 3000))
                extras, value = bytes(8), value_of(document.key, version, size)
                request = frame(SET, document.key, extras, value, vbucket=document.vbucket)
            # Noted before it is sent: the node may do it and die before it answers.
            document.possible.append((version, deletes))
            sent.append((document, version, deletes))
            data.append(request)
        self.connection.send(b"".join(data))
        for document, version, deletes in sent:
            reply = self.connection.receive()
            if reply.status == SUCCESS:
                uuid, seqno = struct.unpack(">QQ", reply.extras)
                document.answered.append((version, uuid, seqno, reply.cas, deletes))
                self.writes += 1
            elif reply.status == TEMPORARY_FAILURE or deletes and reply.status == NOT_FOUND:
                document.possible.remove((version, deletes))
            else:
                raise AssertionError(f"{document.key!r}: {reply!r}")

    def observe(self, documents):
        documents = list(documents)
        if self.by_seqno:
            self.observe_seqnos(documents)
        else:
            self.observe_keys(documents)

    def observe_seqnos(self, documents):
        asked = []
        for document in documents:
            for write in document.answered:
                asked.append((document, write))
        uuid_of = lambda write: write[1].to_bytes(8, "big")
        self.connection.send(
            b"".join(
                frame(OBSERVE_SEQNO, b"", b"", uuid_of(write), vbucket=document.vbucket)
                for document, write in asked
            )
        )
        for document, (version, uuid, seqno, _, _) in asked:
            reply = self.connection.receive()
            if reply.status != SUCCESS:
                raise AssertionError(f"OBSERVE_SEQNO: {reply!r}")
            kind, vbucket, answered_uuid, persisted, _ = struct.unpack_from(">BHQQQ", reply.value)
            if (kind, vbucket, answered_uuid) != (0, document.vbucket, uuid):
                raise AssertionError(f"OBSERVE_SEQNO tells of another history: {reply!r}")
            if persisted >= seqno:
                document.persisted(version)
                self.observed += 1

    def observe_keys(self, documents):
        keys = [struct.pack(">HH", d.vbucket, len(d.key)) + d.key for d in documents]
        if not keys:
            return
        reply = self.connection.call(OBSERVE, b"", b"", b"".join(keys))
        if reply.status != SUCCESS:
            raise AssertionError(f"OBSERVE: {reply!r}")
        at = 0
        for document in documents:
            _, key_len = struct.unpack_from(">HH", reply.value, at)
            at += 4 + key_len
            state, cas = struct.unpack_from(">BQ", reply.value, at)
            at += 9
            version, _, _, written_cas, deletes = document.answered[-1]
            # A deletion is observed through its seqno only: "not found" says nothing of the disk.
            if state == OBSERVED_PERSISTED and cas == written_cas and not deletes:
                document.persisted(version)
                self.observed += 1


def log_in(port):
    connection = Connection(port, seconds=20)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET)
    return connection.login()


def check(port, documents):
    """Reads every document and compares it with what it may be."""
    connection = log_in(port)
    problems = []
    for start in range(0, len(documents), 100):
        chunk = documents[start : start + 100]
        connection.send(b"".join(frame(GET, d.key, vbucket=d.vbucket) for d in chunk))
        for document in chunk:
            reply = connection.receive()
            try:
                if reply.status == NOT_FOUND:
                    document.settle(None)
                elif reply.status == SUCCESS:
                    document.settle(version_in(document.key, reply.value))
                else:
                    raise AssertionError(f"{document.key!r}: {reply!r}")
            except AssertionError as error:
                problems.append(str(error))
                document.possible = document.possible[-1:]
    connection.close()
    return problems


def encrypt(node, number):
    """From the next start on the files are encrypted, with the one or the other of two keys."""
    keys = ["one:" + "5e" * 32, "two:" + "77" * 32]
    node.environment["SETTEE_ENCRYPTION_KEYS"] = ",".join(keys[:: 1 if number % 4 < 2 else -1])


def one_round(node, number, documents, chance):
    """Writes, kills, starts again, checks; returns what was wrong."""
    groups = [documents[i::WRITERS] for i in range(WRITERS)]
    writers = [
        Writer(node.kv, group, chance.random(), number % 2 == 0) for group in groups
    ]
    for writer in writers:
        writer.start()
    life = chance.uniform(*ROUND_SECONDS)
    time.sleep(life)  # the random moment itself, not a wait for a condition
    node.kill()
    for writer in writers:
        writer.stop.set()
        writer.join(30)
        writer.connection.close()
    problems = [repr(writer.problem) for writer in writers if writer.problem]
    started = time.monotonic()
    node.start().ready()
    back = time.monotonic() - started
    problems += check(node.kv, documents)
    writes = sum(writer.writes for writer in writers)
    observed = sum(writer.observed for writer in writers)
    outcome = "FAIL" if problems else "ok  "
    print(
        f"{outcome} crash: round {number}: killed after {life:.2f} s, {writes} writes, "
        f"{observed} times observed as persisted, back after {back:.2f} s"
    )
    for problem in problems[:10]:
        print(f"     {problem}")
    return problems, writes, observed


def main():
    parser = argparse.ArgumentParser(description="kill -9 at random moments")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--manifest-rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SETTEE_SEED", "1")))
    options = parser.parse_args()
    print(f"crash: seed {options.seed}")
    chance = random.Random(options.seed)
    documents = [Document(b"crash-%d" % n) for n in range(WRITERS * KEYS_PER_WRITER)]
    node = Node().start().ready()
    failed = writes = observed = 0
    try:
        for number in range(options.rounds):
            if number >= options.rounds // 2:
                encrypt(node, number)
            problems, round_writes, round_observed = one_round(node, number, documents, chance)
            failed += bool(problems)
            writes += round_writes
            observed += round_observed
        if not observed:
            failed += 1
            print("FAIL crash: nothing was ever observed as persisted, so nothing was proven")
        print(f"crash: {writes} writes, {observed} observations of persistence")
        node.stop()
    finally:
        node.close()
    failed += manifests.rounds(options.manifest_rounds, chance)
    total = options.rounds + options.manifest_rounds
    print(f"{total - min(failed, total)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
