"""A cluster of three nodes and an etcd on this machine: how soon what a killed node served is written again, and what
belonging to a cluster costs a node.

    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py kills [KILLS 10] [LEASE 5]
    SETTEE_BIN=target/release/settee python3 conformance/bench/cluster.py price [PAIRS 3]
"""

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from cluster import Client, Cluster  # noqa: E402
from etcd import Etcd  # noqa: E402
from harness import Node, binary, clean_environment, equal, eventually  # noqa: E402
from mcbp import SET, Closed  # noqa: E402

# For so long a node that began to watch fails nothing over.
SETTLE_SECONDS = 32
BUCKET = "default"
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
    with Etcd() as etcd, Cluster(etcd, "bench", lease=lease) as cluster:
        cluster.make_bucket(BUCKET, vbuckets=1024)
        time.sleep(SETTLE_SECONDS)
        firsts, alls = [], []
        for number in range(count):
            victim = cluster.nodes[number % len(cluster.nodes)]
            first, last = killed(cluster, victim)
            firsts.append(first)
            alls.append(last)
            print(f"kill {number + 1}: first write after {first:.2f} s, all after {last:.2f} s", flush=True)
            started = time.monotonic()
            victim.start()
            name = chr(ord("a") + number % len(cluster.nodes))
            eventually("it came back", lambda: "failed" not in cluster.states(), seconds=60)
            cluster.order("recover", name)
            cluster.order("rebalance")
            balanced(cluster)
            print(f"  back with its share after {time.monotonic() - started:.1f} s", flush=True)
            time.sleep(max(0.0, started + SETTLE_SECONDS - time.monotonic()))
        for what, times in (("first", firsts), ("all", alls)):
            print(f"{what}: median {statistics.median(times):.2f} s, most {max(times):.2f} s of {count}, lease {lease} s")


def rate(node):
    """Operations a second of a load generator at a node."""
    command = [
        binary(), "bench", "--connect", f"couchbase://Administrator:password@127.0.0.1:{node.kv}/{BUCKET}",
        "-c", "16", "-d", "16", "--duration", "5", "--warmup", "1",
    ]  # fmt: skip
    ran = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=120)
    equal(ran.returncode, 0, ran.stderr)
    return float(re.search(r"([\d.,]+)\s*(?:ops/s|operations a second)", ran.stdout).group(1).replace(",", ""))


def price(pairs):
    with Etcd() as etcd, Cluster(etcd, "bench", nodes=1, lease=5) as cluster:
        cluster.make_bucket(BUCKET, replicas=0, vbuckets=1024)
        alone = Node("--bucket", f"{BUCKET}:100")
        alone.start()
        try:
            member, ratios = cluster.nodes[0], []
            print(f"resident: {alone.resident_bytes() / MEGABYTE:.1f} MiB alone, ", end="")
            print(f"{member.resident_bytes() / MEGABYTE:.1f} MiB in a cluster")
            for _ in range(pairs):
                rates = rate(alone), rate(member)
                ratios.append(rates[1] / rates[0])
                print(f"{rates[0]:,.0f} alone, {rates[1]:,.0f} in a cluster: {ratios[-1]:.3f}", flush=True)
            print(f"median ratio {statistics.median(ratios):.3f}")
        finally:
            alone.close()


if __name__ == "__main__":
    what, numbers = sys.argv[1], [int(word) for word in sys.argv[2:]]
    if what == "kills":
        kills(*(numbers + [10, 5][len(numbers):]))
    else:
        price(*(numbers or [3]))
