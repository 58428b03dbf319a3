"""A node that was stopped, and nodes that come and go under load."""

import os
import signal
import threading

from cluster import Client, member_of
from failures import KEYS, fill, go_on, has_all, is_served, recovered, settled, three_nodes
from harness import equal, eventually
from mcbp import GET, SET, SUCCESS, frame, vbucket_of
from world import suite

# Moves of all vBuckets of a node, on a machine that does much else.
MOVES_SECONDS = 60


@suite.test
def f2_a_node_that_was_stopped_serves_nothing_old(world):
    cluster = settled(world)
    stopped, others = cluster.nodes[2], cluster.nodes[:2]
    client = cluster.client()

    def whole():
        client.refresh()
        return cluster.states() == ["active"] * 3 and not any(None in row for row in client.rows())

    eventually("all copies are there", whole, seconds=MOVES_SECONDS)
    its = [key for key in KEYS if client.row(key)[0] == stopped.kv]
    assert its, client.rows()
    for key in its:
        client.set(key, b"old")
    connection, rows = client.connection(stopped.kv), client.rows()
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        other = Client(others, "default")
        is_served(other)
        for key in its:
            other.set(key, b"new")
        asked = 0
        for key in its:
            at = {"vbucket": vbucket_of(key, len(rows))}
            connection.send(frame(GET, b"\0" + key, **at) + frame(SET, b"\0" + key, bytes(8), b"zombie", **at))
            asked += 2
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    answers = [connection.receive().status for _ in range(asked)]
    assert SUCCESS not in answers, answers
    eventually("it came back", lambda: cluster.states()[2] == "new", seconds=30)
    client = cluster.client()
    equal({client.get(key) for key in its}, {b"new"}, "values")
    recovered(cluster, "c")


class Load:
    """Durable writes of its own keys, until it is told to stop; none of them is lost, and none is refused for long."""

    def __init__(self, cluster):
        self.client = cluster.client()
        self.keys = [f"load-{number}".encode() for number in range(100)]
        self.written, self.failure, self.ends = {}, None, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        number = 0
        try:
            while not self.ends:
                key, value = self.keys[number % len(self.keys)], f"{number}".encode()
                self.client.set(key, value, durable=True, seconds=10)
                self.written[key] = value
                number += 1
        except Exception as error:  # noqa: BLE001 - told by the test
            self.failure = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()

    def check(self, cluster):
        if self.failure:
            raise self.failure
        client = cluster.client()
        equal({key: client.get(key) for key in self.written}, self.written, "values")


@suite.test
def a_node_takes_its_share_and_leaves_again_under_load(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        fill(client)
        with Load(cluster) as load:
            fourth = member_of(world.etcd, cluster.name, "d")
            cluster.nodes.append(fourth)
            fourth.start()
            eventually("it is known", lambda: len(cluster.states()) == 4, seconds=30)
            cluster.order("rebalance")
            share(cluster, fourth, lambda part: part >= 0.2)
            cluster.order("drain", "d")
            share(cluster, fourth, lambda part: part == 0)
            cluster.order("remove", "d")
            eventually("it is forgotten", lambda: len(cluster.states()) == 3, seconds=30)
        fourth.kill()
        cluster.nodes.remove(fourth)
        fourth.process = None
        fourth.close()
        load.check(cluster)
        client = cluster.client()
        has_all(client)


def share(cluster, node, enough, bucket="default"):
    """Waits until a node is active for so much of all vBuckets, and nothing moves any more."""

    def there():
        client = cluster.client(bucket)
        client.refresh()
        rows = client.rows()
        part = sum(row[0] == node.kv for row in rows) / len(rows)
        copies = sum(node.kv in row for row in rows)
        moving = any("move" in row for chunk in cluster.look("buckets/").values() if isinstance(chunk, list) for row in chunk)
        return enough(part) and not moving and (copies == 0) == (part == 0)

    eventually("the node has its share", there, seconds=MOVES_SECONDS)


@suite.test
def all_nodes_die_at_once_and_come_back_with_what_is_on_disk(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        for key in KEYS:
            client.until(0, SET, key, bytes(8), key, framing=bytes([0x11, 0x03]))
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        client = cluster.client()
        is_served(client)
        has_all(client)
        go_on(client, 1)
