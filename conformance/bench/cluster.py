"""A cluster of three nodes and an etcd on this machine: how soon what a killed node served is written again, and what
belonging to a cluster costs a node; what many buckets cost while nothing happens; what clients notice while all of a node
moves; what moves to a node that was away; how soon many clients are told of a new map.

    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py kills [KILLS 10] [LEASE 5]
    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py price [PAIRS 3]
    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py idle [BUCKETS 60] [SECONDS 60]
    (cd conformance/go && go build -o ../../target/pace ./pace)
    SETTEE_BIN=target/release/settee PACE=target/pace python3 conformance/bench/cluster.py move [DOCUMENTS 2000000] [RATE 20000]
    SETTEE_BIN=target/release/settee PACE=target/pace python3 conformance/bench/cluster.py away [DOCUMENTS 200000] [RATE 2000] [SECONDS 60]
    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py told [CLIENTS 10000] [BRIEF 1]
"""

import os
import re
import selectors
import statistics
import subprocess
import threading
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from cluster import Client, Cluster, member_of  # noqa: E402
from etcd import Etcd  # noqa: E402
from harness import Node, address, binary, equal, eventually, finished  # noqa: E402
from manage import must  # noqa: E402
from mcbp import HEADER, SERVER_REQUEST, SET, Closed, Connection  # noqa: E402

BUCKET = "default"
# How long a load lasts.
SECONDS = 5
KEYS = [f"key-{number}".encode() for number in range(2_000)]
MEGABYTE = 1 << 20


def balanced(cluster):
    """Waits until every node is active for its share, and nothing moves."""

    def is_it():
        client = cluster.client()
        client.refresh()
        actives = [sum(row[0] == node.kv for row in client.rows()) for node in cluster.nodes]
        chunks = (chunk for chunk in cluster.look("buckets/").values() if isinstance(chunk, list))
        moving = any("move" in row or "intent" in row for chunk in chunks for row in chunk)
        return min(actives) >= 0.3 * sum(actives) and not moving

    eventually("the copies are where they are to be", is_it, seconds=300)


def killed(cluster, victim):
    """Seconds from the kill to the first write at a vBucket of a node, and to that at each one that was asked."""
    client = cluster.client(BUCKET)
    client.refresh()
    its = {client.row(key)[0]: [] for key in KEYS}
    for key in KEYS:
        its[client.row(key)[0]].append(key)
    wanted, first = its[victim.kv], None
    victim.kill()
    began = time.monotonic()
    survivors = Client([node for node in cluster.nodes if node.alive()], BUCKET)
    while wanted:
        survivors.refresh()
        left = []
        for key in wanted:
            try:
                if survivors.row(key)[0] != victim.kv and survivors.call(SET, key, bytes(8), b"1").status == 0:
                    first = first or time.monotonic() - began
                    continue
            except (OSError, Closed):
                pass
            left.append(key)
        wanted = left
        time.sleep(0.01)
    return first, time.monotonic() - began


def kills(count, lease):
    """Ten kills of each node, then of the next one."""
    with Etcd() as etcd, Cluster(etcd, "bench", lease=lease) as cluster:
        cluster.make_bucket(BUCKET, vbuckets=1024)
        firsts, alls = [], []
        for number in range(count):
            at = number // 10 % len(cluster.nodes)
            victim = cluster.nodes[at]
            first, last = killed(cluster, victim)
            firsts.append(first)
            alls.append(last)
            print(f"kill {number + 1}: first write after {first:.2f} s, all after {last:.2f} s", flush=True)
            began = time.monotonic()
            victim.start()
            eventually("it came back", lambda: "failed" not in cluster.states(), seconds=60)
            cluster.order("recover", chr(ord("a") + at))
            cluster.order("rebalance")
            balanced(cluster)
            print(f"  back with its share after {time.monotonic() - began:.1f} s", flush=True)
        for what, times in (("first", firsts), ("all", alls)):
            print(f"{what}: median {statistics.median(times):.2f} s, most {max(times):.2f} s of {count}, lease {lease} s")


def rate(node):
    """Operations a second of a load generator at a node, and what one takes of the node's processor time, in nanoseconds."""
    command = [
        binary(), "bench", "--connect", address(node.kv, BUCKET),
        "-c", "16", "-d", "16", "--duration", str(SECONDS), "--warmup", "1",
    ]  # fmt: skip
    before = node.processor_ns()
    ran = finished(command, seconds=120)
    equal(ran.returncode, 0, ran.stderr)
    took = node.processor_ns() - before
    rate = float(re.search(r"([\d.,]+)\s*(?:ops/s|operations a second)", ran.stdout).group(1).replace(",", ""))
    return rate, took / (rate * SECONDS)


def price(pairs):
    with Etcd() as etcd, Cluster(etcd, "bench", nodes=1, lease=5) as cluster:
        cluster.make_bucket(BUCKET, replicas=0, vbuckets=1024, quota=256)
        alone = Node("--bucket", f"{BUCKET}:256")
        alone.start()
        try:
            member, ratios = cluster.nodes[0], []
            print(f"resident: {alone.resident_bytes() / MEGABYTE:.1f} MiB alone, ", end="")
            print(f"{member.resident_bytes() / MEGABYTE:.1f} MiB in a cluster")
            for _ in range(pairs):
                pair = rate(alone), rate(member)
                ratios.append([other / one for one, other in zip(*pair, strict=True)])
                told = ", ".join(f"{rate:,.0f} a second at {ns:,.0f} ns" for rate, ns in pair)
                print(f"alone and in a cluster: {told}; ratios {ratios[-1][0]:.3f}, {ratios[-1][1]:.3f}", flush=True)
            for what, column in zip(("operations a second", "processor time of one"), zip(*ratios), strict=True):
                print(f"{what}: median ratio {statistics.median(column):.3f}")
        finally:
            alone.close()


def idle(buckets, seconds):
    flags = [("--buckets-max", str(buckets))] * 3
    with Etcd() as etcd, Cluster(etcd, "bench", lease=5, flags=flags) as cluster:
        for number in range(buckets):
            cluster.make_bucket(f"b{number}", vbuckets=1024)
        # Moves end, and what was made is on disk.
        time.sleep(15)
        before = [node.processor_ns() for node in cluster.nodes]
        time.sleep(seconds)
        taken = [node.processor_ns() - ns for node, ns in zip(cluster.nodes, before, strict=True)]
        told = ", ".join(f"{100 * ns / 1e9 / seconds:.2f} %" for ns in taken)
        print(f"{buckets} buckets of 1,024 vBuckets with a replica: {told} of a core")


class Pace:
    """A client of the Go SDK that reads and writes at a steady rate."""

    def __init__(self, nodes, documents, rate):
        seeds = "couchbase://" + ",".join(f"127.0.0.1:{node.kv}" for node in nodes)
        self.process = subprocess.Popen(
            [os.environ["PACE"], seeds, BUCKET, str(documents), "1024", str(rate)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.seconds = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.seconds.append([int(word) for word in line.split()])

    def tell(self, what, since):
        """What was measured from a second on; returns the 99th percentile, milliseconds, and operations that failed."""
        took = self.seconds[since:]
        operations, failed = (sum(second[at] for second in took) for at in (1, 2))
        middle, p99, most = (statistics.median(second[at] for second in took) / 1000 for at in (3, 4, 5))
        worst = max(second[4] for second in took) / 1000
        print(
            f"{what}: {operations / len(took):,.0f} a second, {failed} failed; median {middle:.2f} ms, 99 % {p99:.2f} ms "
            f"(worst second {worst:.2f}), 99.9 % {most:.2f} ms",
            flush=True,
        )
        return p99, failed

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.reader.join()


def load(node, documents):
    """Writes documents of 1 KiB."""
    command = [
        binary(), "bench", "--connect", address(node.kv, BUCKET),
        "-k", str(documents), "--value-size", "1024", "-c", "16", "-d", "16", "--duration", "1", "--warmup", "0",
    ]  # fmt: skip
    ran = finished(command, seconds=600)
    equal(ran.returncode, 0, ran.stderr)


class Maps:
    """Counts the maps that a node tells a client."""

    def __init__(self, node):
        self.connection = Connection(node.kv, seconds=600)
        self.connection.hello(0x08, DUPLEX, NOTICES)
        self.connection.login(bucket=BUCKET)
        self.count = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while True:
                self.connection.pushed()
                self.count += 1
        except (OSError, Closed):
            pass


def move(documents, rate):
    """All vBuckets of a node move to another one while a client reads and writes."""
    with Etcd() as etcd, Cluster(etcd, "bench", nodes=1, lease=5) as cluster, member_of(etcd, "bench", "b").watched() as late:
        cluster.make_bucket(BUCKET, replicas=0, vbuckets=1024, quota=max(256, documents * 2 // 1000))
        load(cluster.nodes[0], documents)
        late.start()
        eventually("it is known", lambda: cluster.states() == ["active", "new"])
        cluster.order("recover", "b")
        pace = Pace([*cluster.nodes, late], documents, rate)
        try:
            time.sleep(20)
            before, _ = pace.tell("before", 5)
            maps, revision = Maps(late), etcd.revision()
            since, began = len(pace.seconds), time.monotonic()
            cluster.order("drain", "a")

            def moved():
                client = Client([late], BUCKET)
                client.refresh()
                return {port for row in client.rows() for port in row} == {late.kv}

            eventually("all moved", moved, seconds=600, pause=0.2)
            took = time.monotonic() - began
            print(f"{documents:,} documents moved in {took:.1f} s; {etcd.revision() - revision:,} transactions, ", end="")
            print(f"{maps.count:,} maps, {maps.count / took:.1f} a second")
            during, _ = pace.tell("meanwhile", since)
            since = len(pace.seconds)
            time.sleep(10)
            pace.tell("after", since)
            print(f"99 % meanwhile is {during / before:.2f} times that of before")
        finally:
            pace.close()


def written(cluster):
    """Bytes that nodes wrote to connections of the KV protocol, streams to each other among them."""
    total = 0
    for node in cluster.nodes:
        if node.alive():
            connection = Connection(node.kv)
            total += int(connection.login(bucket=BUCKET).stats()["bytes_written"])
            connection.close()
    return total


def away(documents, rate, seconds):
    """A node is away for some time, and comes back."""
    with Etcd() as etcd, Cluster(etcd, "bench", nodes=1, lease=2) as cluster:
        cluster.make_bucket(BUCKET, replicas=1, vbuckets=1024, quota=max(256, documents * 2 // 1000))
        load(cluster.nodes[0], documents)
        for name in "bc":
            cluster.nodes.append(member_of(etcd, "bench", name))
            cluster.nodes[-1].start()
        eventually("all are known", lambda: cluster.states() == ["active", "new", "new"])
        cluster.order("rebalance")
        balanced(cluster)
        pace = Pace(cluster.nodes, documents, rate)
        cluster.nodes[2].kill()
        eventually("it is failed over", lambda: cluster.states()[2] == "failed", seconds=30)
        time.sleep(seconds)
        pace.close()
        writes = sum(second[1] for second in pace.seconds) // 10
        before = written(cluster)
        cluster.nodes[2].start()
        eventually("it came back", lambda: "failed" not in cluster.states(), seconds=60)
        began = time.monotonic()
        cluster.order("recover", "c")
        cluster.order("rebalance")
        balanced(cluster)
        took, moved = time.monotonic() - began, written(cluster) - before
        print(f"{writes:,} writes of 1 KiB while a node was away; {moved / MEGABYTE:.1f} MiB sent in {took:.1f} s, ", end="")
        print(f"{moved / (writes * 1024):.2f} times what changed; its documents are {documents * 2 // 3 * 1024 / MEGABYTE:.0f} MiB")


# Maps are told to connections that ask for it: whole, or their version alone.
DUPLEX, NOTICES, BRIEF_NOTICES = 0x0C, 0x0D, 0x1F


def await_notices(connections):
    """Waits until each connection was told of a map; bytes that came."""
    got, received = selectors.DefaultSelector(), 0
    frames = dict.fromkeys(connections, b"")
    for connection in connections:
        connection.socket.setblocking(False)
        got.register(connection.socket, selectors.EVENT_READ, connection)
    while frames:
        for key, _ in got.select(60):
            connection = key.data
            frames[connection] += connection.socket.recv(1 << 16)
            notice = frames[connection]
            if len(notice) >= HEADER.size and len(notice) >= HEADER.size + HEADER.unpack(notice[: HEADER.size])[6]:
                equal(notice[0], SERVER_REQUEST, "magic")
                received += len(frames.pop(connection))
                got.unregister(connection.socket)
    return received


def told(clients, brief):
    """Clients are told of a new collection."""
    with Etcd() as etcd, Cluster(etcd, "bench", lease=5) as cluster:
        cluster.make_bucket(BUCKET, vbuckets=1024, quota=256)
        balanced(cluster)
        connections = []
        for at in range(clients):
            connections.append(Connection(cluster.nodes[at % 3].kv))
            connections[-1].hello(0x08, DUPLEX, BRIEF_NOTICES if brief else NOTICES)
            connections[-1].login()
        took, bytes_told = [], 0
        for number in range(5):
            began = time.monotonic()
            scope = f"/pools/default/buckets/{BUCKET}/scopes"
            asked = threading.Thread(target=must, args=(cluster.nodes[0], "POST", scope), kwargs={"name": f"s{number}"})
            asked.start()
            bytes_told = await_notices(connections)
            took.append((time.monotonic() - began) * 1e3)
            asked.join()
        memory = max(node.most_resident_bytes() for node in cluster.nodes) // MEGABYTE
        print(f"{clients:,} clients told {'of' if brief else 'all of'} a map: median {statistics.median(took):.0f} ms, ", end="")
        print(f"most {max(took):.0f}; {bytes_told // clients:,} bytes each; a node takes {memory} MiB at most")


MEASUREMENTS = {
    "kills": (kills, [10, 5]),
    "price": (price, [3]),
    "idle": (idle, [60, 60]),
    "move": (move, [2_000_000, 20_000]),
    "away": (away, [200_000, 2_000, 60]),
    "told": (told, [10_000, 1]),
}

if __name__ == "__main__":
    function, defaults = MEASUREMENTS[sys.argv[1]]
    numbers = [int(word) for word in sys.argv[2:]]
    function(*(numbers + defaults[len(numbers):]))
