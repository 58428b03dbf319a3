"""`settee replicate` between two nodes of this machine: how many documents of 1 KiB a second, and how late a change is at
the other node while half of the goal of 100,000 a second is written.

    SETTEE_BIN=target/release/settee python3 conformance/bench/replicate.py [DOCUMENTS] [ROUNDS]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, address, begun, binary, equal, eventually  # noqa: E402
from mcbp import GET, SET, SUCCESS, Connection, key_call, vbucket_of  # noqa: E402

VALUE_BYTES = 1024
PROBES = 1000
PROBE_PAUSE = 0.005
LAG_SECONDS = 30
LAG_RATE = 50_000


def started(*words):
    return begun([binary(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ended(process):
    error = process.communicate(timeout=300)[1]
    if process.returncode:
        raise AssertionError(f"{process.args[1]} ended with {process.returncode}: {error.decode()}")


def load(node, documents, *more):
    """A load generator that writes."""
    return started(
        "bench", "--connect", node.address, "--keys", str(documents), "--ratio", "1:0",
        "--value-size", str(VALUE_BYTES), "--warmup", "0", *more,
    )  # fmt: skip


def rate(nodes, documents, state):
    """Documents a second, from the start of the command to its end."""
    ended(load(nodes[0], documents, "--ops", "1"))
    began = time.monotonic()
    ended(started("replicate", "--until-now", "--state", state, *map(address, nodes)))
    return documents / (time.monotonic() - began)


def lags(nodes, documents, state):
    """Milliseconds from the answer to a write here until it is read there, sorted."""
    source, target = (Connection(node.kv).login() for node in nodes)
    replication = started("replicate", "--state", state, *map(address, nodes))
    writes = load(
        nodes[0], documents, "--load-first=false", "--rate", str(LAG_RATE), "--duration", str(LAG_SECONDS),
        "-c", "4", "-d", "64",
    )  # fmt: skip

    def seen(number):
        """How long a change takes."""
        key, value = b"probe%d" % (number % 64), b"%d" % number
        equal(source.call(SET, key, bytes(8), value, vbucket=vbucket_of(key)).status, SUCCESS, "a write")
        began = time.monotonic()
        while key_call(target, GET, key).value != value:
            if time.monotonic() - began > 30:
                raise AssertionError("a change does not arrive")
        took = (time.monotonic() - began) * 1000
        time.sleep(PROBE_PAUSE)
        return took

    eventually("it replicates", lambda: seen(10**6) < 1000)
    took = sorted(seen(number) for number in range(PROBES) if writes.poll() is None)
    if writes.poll() is None:
        writes.terminate()
    writes.communicate(timeout=60)
    # Its position is of no use any more.
    replication.kill()
    replication.wait()
    return took


def measure(kind, documents):
    nodes = [Node("--bucket", f"default:2048:{kind}").start().ready() for _ in range(2)]
    home = tempfile.TemporaryDirectory(prefix="settee-replicate-")
    try:
        state = str(Path(home.name) / "state.json")
        per_second = rate(nodes, documents, state)
        late = lags(nodes, documents, state)
        return per_second, late
    finally:
        for node in nodes:
            node.close()
        home.cleanup()


def main(documents, rounds):
    for kind in ("ephemeral", "couchbase"):
        results = [measure(kind, documents) for _ in range(rounds)]
        rates = [round(one[0]) for one in results]
        # The median of each quantile over the rounds.
        at = lambda share: statistics.median(one[1][int(len(one[1]) * share)] for one in results)
        print(f"{kind}: {statistics.median(rates):.0f} documents/s, {rates} in turn;", end=" ")
        print(f"at {LAG_RATE} written a second a change is there after {at(0.5):.2f} ms, p99 {at(0.99):.1f} ms", end=" ")
        print(f"({[len(one[1]) for one in results]} probes)", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*[*numbers, *[500_000, 3][len(numbers) :]])
