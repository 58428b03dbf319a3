"""Active compression: how many documents stay in memory, and what readers beside it notice, to those of `off`.

    SETTEE_BIN=target/release/settee python3 conformance/bench/compression.py [ROUNDS]

JSON documents of 1 KiB are written at a steady rate into a bucket of 128 MiB, which they fill almost three times,
while `settee bench` reads a thousand others. Both modes take turns.
"""

import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, binary, clean_environment, eventually  # noqa: E402
from manage import must  # noqa: E402
from mcbp import FEATURE_MUTATION_SEQNO, FEATURE_XERROR, NOOP, SETQ, SUCCESS, Connection, frame, vbucket_of  # noqa: E402

FEATURE_JSON = 0x0B
DOCUMENTS = 300_000
BYTES = 1024
A_SECOND = 10_000
BATCH = 100
READS_A_SECOND = 2000
# Several hundred words, as people and products have them.
WORDS = [a + b for a in "ka lo mi ne pu ra so ti vu wa".split() for b in "den lar mok nis per quo rim sun tal ver".split()]


def document(number):
    """An order: about as repetitive as such documents are."""
    some = random.Random(number)
    words = lambda count: " ".join(some.choice(WORDS) for _ in range(count))
    order = {
        "type": "order", "id": some.getrandbits(64), "customer": words(2), "email": f"{words(1)}@{words(1)}.example",
        "address": {"street": words(2), "number": some.randrange(200), "city": words(1), "country": "NL"},
        "created": f"2026-{some.randrange(1, 13):02}-{some.randrange(1, 29):02}T10:{some.randrange(60):02}:00Z",
        "lines": [
            {"product": words(1), "quantity": some.randrange(9), "price": some.randrange(99999) / 100, "currency": "EUR"}
            for _ in range(9)
        ],
    }  # fmt: skip
    order["note"] = ""
    order["note"] = words(100)[: BYTES - len(json.dumps(order))]
    return json.dumps(order).encode()


def write(connection, numbers):
    """Those documents, and again those that the node has no memory for."""
    while numbers:
        frames = []
        for number in numbers:
            key = b"order-%d" % number
            frames.append(frame(SETQ, key, bytes(8), document(number), vbucket=vbucket_of(key), opaque=number))
        connection.send(b"".join(frames) + frame(NOOP))
        refused = []
        while (reply := connection.receive()).opcode != NOOP:
            if reply.status != SUCCESS:
                refused.append(reply.opaque)
        numbers = refused
        if numbers:
            time.sleep(0.01)


def fill(node):
    """Writes all documents on schedule; returns how long it took."""
    connection = Connection(node.kv, seconds=60)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_JSON)
    connection.login()
    began = time.monotonic()
    for first in range(0, DOCUMENTS, BATCH):
        time.sleep(max(0, began + first / A_SECOND - time.monotonic()))
        write(connection, range(first, first + BATCH))
    return time.monotonic() - began, connection


def read_beside(node, seconds):
    """`settee bench`, started: reads of a thousand documents that are used all the time."""
    return subprocess.Popen(
        [
            binary(), "bench", "--json", "--connect", node.address,
            "-c", "4", "-k", "1000", "--ratio", "0:1", "--rate", str(READS_A_SECOND), "--duration", str(seconds),
        ],
        stdout=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip


def measure(mode):
    """Documents that stay in memory, and microseconds below which 99 % of the reads were answered."""
    node = Node("--bucket", "default:128")
    with node.start().ready().watched(mode):
        must(node, "POST", "/pools/default/buckets/default", compressionMode=mode)
        reader = read_beside(node, DOCUMENTS // A_SECOND)
        took, connection = fill(node)
        bench = json.loads(reader.communicate()[0])

        def figures():
            return connection.stats()

        eventually("all is on disk", lambda: figures()["ep_queue_size"] == "0", 60)
        rows = figures()
        resident = int(rows["curr_items"]) - int(rows["vb_active_num_non_resident"])
        used = int(rows["mem_used"]) / (1 << 20)
        p99 = bench["servers"][0]["latency_us"]["p99"]
        print(f"{mode}: {resident} of {rows['curr_items']} documents resident, {used:.0f} MiB used, p99 {p99:.0f} us, {took:.0f} s")
        return resident, p99


def main(rounds):
    found = {"off": [], "active": []}
    for _ in range(rounds):
        for mode, results in found.items():
            results.append(measure(mode))
    medians = {mode: [statistics.median(column) for column in zip(*results)] for mode, results in found.items()}
    resident, p99 = (active / off for active, off in zip(medians["active"], medians["off"]))
    print(f"resident to off {resident:.2f}, p99 of readers to off {p99:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
