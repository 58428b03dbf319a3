"""Durable writes at a cluster of three nodes whose nodes are killed, stopped and killed all at once: how many were lost.

    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster_faults.py [FAULTS 20] [SEED 1] [REPLICAS 2]

Each key has one writer, which counts upwards; half of the writes asks for `majority`, half for `persistToMajority`. After
each fault every key is read: it must not be older than what was acknowledged at a level that the fault leaves whole, and
must have been sent. The next fault waits until all nodes are counted on and have their copies again.
"""

import random
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from cluster import Client, Cluster  # noqa: E402
from etcd import Etcd  # noqa: E402
from harness import eventually  # noqa: E402
from mcbp import SET, Closed  # noqa: E402

LEASE_SECONDS = 2
WRITERS, KEYS_EACH, PAUSE_SECONDS = 4, 100, 0.005
MEMORY, DISK = bytes([0x11, 1]), bytes([0x11, 3])


class Writer(threading.Thread):
    """Writes its keys until it is told to stop."""

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.cluster, self.random = cluster, random.Random(number)
        self.keys = [f"w{number}-{key}".encode() for key in range(KEYS_EACH)]
        self.sent = dict.fromkeys(self.keys, 0)
        self.in_memory, self.on_disk = dict(self.sent), dict(self.sent)
        self.written, self.ends = 0, False
        self.client = Client(cluster.nodes, "default")

    def run(self):
        while not self.ends:
            key = self.random.choice(self.keys)
            self.sent[key] += 1
            number, level = self.sent[key], self.random.choice((MEMORY, DISK))
            try:
                answer = self.client.call(SET, key, bytes(8), str(number).encode(), framing=level)
            except (OSError, Closed, TypeError, AssertionError):
                answer = None
            time.sleep(PAUSE_SECONDS)
            if answer is None or answer.status != 0:
                self.refresh()
                continue
            self.written += 1
            self.in_memory[key] = number
            if level == DISK:
                self.on_disk[key] = number

    def refresh(self):
        time.sleep(0.02)
        try:
            self.client.refresh()
        except (OSError, AssertionError, ValueError, TypeError):
            pass

    def check(self, floor):
        """Reads each key; returns what is wrong."""
        wrong = []
        client = Client(self.cluster.nodes, "default")
        for key in self.keys:
            least = floor[key]
            if least == 0:
                continue
            found = int(client.get(key, seconds=60))
            if not least <= found <= self.sent[key]:
                wrong.append((key, least, found, self.sent[key]))
        return wrong


def well(cluster):
    """Every node is counted on, has its share of active copies, and nothing moves; rebalances if need be."""
    client = cluster.client()
    client.refresh()
    rows = client.rows()
    actives = [sum(row[0] == node.kv for row in rows) for node in cluster.nodes]
    chunks = [chunk for chunk in cluster.look("buckets/").values() if isinstance(chunk, list)]
    busy = any("move" in row or "intent" in row for chunk in chunks for row in chunk)
    whole = all(None not in row for row in rows)
    if cluster.states() == ["active"] * 3 and min(actives) >= 0.3 * sum(actives) and whole and not busy:
        return True
    if all(entry.get("rebalance") == "idle" for entry in cluster.look("orders").values()):
        cluster.order("rebalance")
    return False


def heal(cluster):
    for node in cluster.nodes:
        if not node.alive():
            node.start()
    eventually("nodes came back", lambda: "failed" not in cluster.states(), seconds=60)
    for number in range(len(cluster.nodes)):
        eventually("recovered", lambda at=number: ordered(cluster, "recover", chr(ord("a") + at)), seconds=60)
    eventually("rebalance", lambda: ordered(cluster, "rebalance"), seconds=60)
    try:
        eventually("all is well", lambda: well(cluster), seconds=120)
    except AssertionError as error:
        told = cluster.order("status", "--json")
        raise AssertionError(f"{error}\n{told}\n" + "\n".join(node.tail() for node in cluster.nodes)) from None


def ordered(cluster, *words):
    cluster.order(*words)
    return True


def hurt(cluster, dice):
    """One fault; returns its name, and whether memory of all copies may be gone."""
    what = dice.choice(("kill", "kill", "kill and start", "stop", "all at once"))
    node = dice.choice(cluster.nodes)
    if what == "all at once":
        for one in cluster.nodes:
            one.kill()
        for one in cluster.nodes:
            one.start()
    elif what == "stop":
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.5, 4 * LEASE_SECONDS))
        node.process.send_signal(signal.SIGCONT)
    else:
        node.kill()
        time.sleep(dice.uniform(0, 3 * LEASE_SECONDS) if what == "kill" else 0)
        if what == "kill and start":
            node.start()
    return what, what == "all at once"


def main(faults=20, seed=1, replicas=2):
    dice = random.Random(seed)
    with Etcd() as etcd, Cluster(etcd, "faults", lease=LEASE_SECONDS) as cluster:
        cluster.make_bucket(replicas=replicas, vbuckets=128)
        writers = [Writer(cluster, number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        lost = 0
        for number in range(faults):
            disk = {writer: dict(writer.on_disk) for writer in writers}
            what, memory_gone = hurt(cluster, dice)
            since = time.monotonic()
            if memory_gone:
                for writer in writers:
                    writer.in_memory = disk[writer]
            floors = {writer: dict(writer.in_memory) for writer in writers}
            heal(cluster)
            for writer in writers:
                wrong = writer.check(floors[writer])
                lost += len(wrong)
                for one in wrong:
                    print(f"  WRONG: {one}", flush=True)
            total = sum(writer.written for writer in writers)
            took = time.monotonic() - since
            print(f"{number + 1}: {what}, well again and read after {took:.1f} s; {total:,} written", flush=True)
        for writer in writers:
            writer.ends = True
        for writer in writers:
            writer.join(30)
        last = sum(len(writer.check(writer.on_disk)) for writer in writers)
        print(f"{faults} faults, {sum(one.written for one in writers):,} durable writes, {lost + last} lost or invented")
        return lost + last


if __name__ == "__main__":
    sys.exit(1 if main(*(int(word) for word in sys.argv[1:])) else 0)
