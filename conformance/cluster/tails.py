"""Readers of the changes of a cluster's bucket, while copies move and nodes die."""

import base64
import http.client
import json
import os
import signal
import tempfile
import threading
from pathlib import Path

from cluster import Client, member_of
from failures import FAILOVER_SECONDS, KEYS, fill, recovered, settled, three_nodes
from harness import Node, address, begun, binary, equal, eventually
from mcbp import GET, Connection, key_call
from moves import share
from world import suite


class Writer:
    """Durable writes of keys that are each written once, until it is told to stop."""

    def __init__(self, nodes, prefix):
        self.client = Client(nodes, "safe")
        self.prefix, self.written, self.failure, self.ends = prefix, {}, None, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.ends:
                number = len(self.written)
                key, value = b"%s-%d" % (self.prefix, number), b"%d" % number
                self.client.add_once(key, value, seconds=2 * FAILOVER_SECONDS)
                self.written[key] = value
        except Exception as error:  # noqa: BLE001 - told by the story
            self.failure = error

    def more(self, count=20):
        """Waits until so many more were acknowledged."""
        wanted = len(self.written) + count
        eventually("writes go on", lambda: self.failure or len(self.written) >= wanted, seconds=3 * FAILOVER_SECONDS)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()
        if self.failure:
            raise self.failure


class Command:
    """A command in the background that goes on until it is interrupted."""

    def __init__(self, *words):
        self.out, self.err = (tempfile.NamedTemporaryFile(prefix=f"settee-{words[0]}-") for _ in range(2))
        self.process = begun([binary(), *words], stdout=self.out, stderr=self.err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def runs(self):
        assert self.process.poll() is None, Path(self.err.name).read_text()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        equal(self.process.wait(20), 0, Path(self.err.name).read_text())


class Tail(Command):
    """`settee tail` of a bucket."""

    def __init__(self, node):
        super().__init__("tail", "--connect", address(node.kv, "safe"), "--from", "beginning")

    def changes(self):
        """What was told and not taken back, of each vBucket in order; nothing is told twice."""
        text, told = Path(self.out.name).read_bytes(), {}
        for line in map(json.loads, text[: text.rfind(b"\n") + 1].splitlines()):
            changes = told.setdefault(line["vb"], [])
            if line["event"] == "rollback":
                changes[:] = [known for known in changes if known["seqno"] <= line["seqno"]]
                continue
            assert not changes or line["seqno"] > changes[-1]["seqno"], f"{line} after {changes[-1]}"
            changes.append(line)
        return [line for changes in told.values() for line in changes]

    def values(self, prefix):
        """The documents that were told, each of them once."""
        lines = [line for line in self.changes() if line["key"].startswith(prefix.decode())]
        values = {line["key"].encode(): str(line["value"]).encode() for line in lines}
        equal(len(values), len(lines), "documents")
        return values

    def has(self, written, prefix):
        """Waits until all of it was told, and ends the tail."""

        def all_told():
            self.runs()
            return self.values(prefix).items() >= written.items()

        eventually("all is told", all_told, seconds=30)
        self.interrupt()
        equal(self.values(prefix), written, "documents")


class Replication(Command):
    """`settee replicate` of a bucket to another one; each is a node and a name."""

    def __init__(self, source, target, state, *flags):
        buckets = [address(node.kv, name) for node, name in (source, target)]
        super().__init__("replicate", "--state", str(state), *flags, *buckets)


class Copy(Replication):
    """That of the bucket `safe` of a cluster to a node that is in none."""

    def __init__(self, node, apart):
        self.apart = apart.ready()
        super().__init__((node, "safe"), (apart, "default"), apart.home / "state")

    def has(self, written):
        """Waits until all of it is there, and ends the replication."""
        connection = Connection(self.apart.kv).login()

        def all_there():
            self.runs()
            return {key: key_call(connection, GET, key).value for key in written} == written

        eventually("all is there", all_there, seconds=30)
        self.interrupt()


@suite.test
def readers_have_each_durable_write_while_copies_move(world):
    with (
        three_nodes(world.etcd, world.name()) as cluster,
        member_of(world.etcd, cluster.name, "d").watched() as late,
        Node().watched() as apart,
    ):
        cluster.make_bucket("safe", replicas=2)
        first = cluster.nodes[0]
        client = cluster.client("safe")
        fill(client, durable=False)
        with Tail(first) as tail, Copy(first, apart.start()) as copied:
            eventually("it tells what there is", lambda: len(tail.values(b"key-")) == len(KEYS), seconds=30)
            with Writer(cluster.nodes, b"tail") as writer:
                late.start()
                eventually("it is known", lambda: len(cluster.states()) == 4, seconds=30)
                cluster.order("rebalance")
                share(cluster, late, lambda part: part >= 0.2, "safe")
                writer.more()
                cluster.order("drain", "d")
                share(cluster, late, lambda part: part == 0, "safe")
                writer.more()
            tail.has(writer.written, b"tail")
            copied.has(writer.written)


@suite.test
def readers_have_each_durable_write_when_a_node_dies(world):
    cluster = settled(world)
    first, killed = cluster.nodes[:2]
    with Node().watched() as apart, Tail(first) as tail, Tail(killed) as another, Copy(first, apart.start()) as copied:
        with Writer(cluster.nodes, b"dead") as writer:
            writer.more()
            eventually("they tell", lambda: tail.values(b"dead") and another.values(b"dead"), seconds=30)
            killed.kill()
            eventually("all is served", lambda: cluster.client("safe").everywhere(), seconds=FAILOVER_SECONDS)
            writer.more()
        tail.has(writer.written, b"dead")
        another.has(writer.written, b"dead")
        copied.has(writer.written)
    killed.start()
    recovered(cluster, "b")


@suite.test
def a_tail_goes_on_beside_a_node_that_was_stopped(world):
    cluster = settled(world)
    stopped, others = cluster.nodes[2], cluster.nodes[:2]
    with Tail(stopped) as tail:
        with Writer(others, b"stop") as writer:
            writer.more()
            eventually("it tells", lambda: tail.values(b"stop"), seconds=30)
            os.kill(stopped.process.pid, signal.SIGSTOP)
            try:
                served = Client(others, "safe")
                eventually("all is served", served.everywhere, seconds=FAILOVER_SECONDS)
                writer.more()
                eventually("it goes on", lambda: len(tail.values(b"stop")) >= len(writer.written) - 5, seconds=30)
            finally:
                os.kill(stopped.process.pid, signal.SIGCONT)
        tail.has(writer.written, b"stop")
    recovered(cluster, "c")


class Events:
    """`GET /changes` of a bucket at one node, read in the background."""

    def __init__(self, node):
        self.connection = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=60)
        login = base64.b64encode(b"Administrator:password").decode()
        self.connection.request("GET", "/changes/default?since=beginning", headers={"Authorization": f"Basic {login}"})
        self.answer = self.connection.getresponse()
        equal(self.answer.status, 200, "status")
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.answer:
            if line.startswith(b"data: {"):
                self.lines.append(json.loads(line[len(b"data: ") :]))

    def keys(self):
        return {line["key"].encode() for line in list(self.lines) if line.get("key", "").startswith("key-")}


@suite.test
def changes_over_http_are_those_of_the_node_and_what_moves_there(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        fill(client, durable=False)
        events = [Events(node) for node in cluster.nodes]
        for node, told in zip(cluster.nodes, events, strict=True):
            its = {key for key in KEYS if client.row(key)[0] == node.kv}
            eventually("its own are told", lambda told=told, its=its: told.keys() >= its)
            equal(told.keys(), its, "keys")
        cluster.order("drain", "c")
        share(cluster, cluster.nodes[2], lambda part: part == 0)
        eventually("what moved is told there", lambda: events[0].keys() | events[1].keys() == set(KEYS), seconds=30)
        client.refresh()
        for node, told in zip(cluster.nodes[:2], events[:2], strict=True):
            its = {key for key in KEYS if client.row(key)[0] == node.kv}
            eventually("it tells all that it has", lambda told=told, its=its: told.keys() >= its)
