"""What a scan by prefix costs: a thousand documents that lie together by key, among many, over all vBuckets.

    SETTEE_BIN=target/release/settee python3 conformance/bench/range_scan.py [DOCUMENTS] [EVICTION] [QUOTA_MIB] [CONNECTIONS]

RANGE_SCAN_CREATE on each vBucket, then RANGE_SCAN_CONTINUE where there is something; pipelined. Documents of 64 bytes.
Scanned twice: while the newest documents are in the log alone, and after a start.
"""

import base64
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, binary, equal  # noqa: E402
from mcbp import FEATURE_JSON, NOT_FOUND, SUCCESS, VBUCKETS, Connection, frame  # noqa: E402

CREATE, CONTINUE, JSON = 0xDA, 0xDB, 1
MORE, COMPLETE = 0xA6, 0xA7
DIGITS, AT_ONCE, SCANS, FOUND = 9, 64, 20, 1000


def load(node, count):
    command = [binary(), "bench", "--connect", node.address, "-k", str(count), "--value-size", "64", "--ratio", "1:0"]
    command += ["-c", "4", "-d", "64", "--ops", "1", "--slices", "1", "--warmup", "0", "--json"]
    subprocess.run(command, capture_output=True, check=True)


def connect(node, at_once):
    connections = [Connection(node.kv) for _ in range(at_once)]
    for connection in connections:
        connection.hello(FEATURE_JSON)
        connection.login()
    return connections


def ask(prefix):
    ends = {"start": prefix, "excl_end": prefix[:-1] + bytes([prefix[-1] + 1])}
    ends = {name: base64.b64encode(key).decode() for name, key in ends.items()}
    return json.dumps({"range": ends, "key_only": False}).encode()


def send(frames):
    """Sends to each connection what is for it at once."""
    sums = {}
    for connection, one in frames:
        sums[connection] = sums.get(connection, b"") + one
    for connection, together in sums.items():
        connection.send(together)


def scan(connections, prefix):
    """Counts the documents whose keys begin with `prefix`."""
    text, found = ask(prefix), 0
    for first in range(0, VBUCKETS, AT_ONCE):
        asked = [(connections[vb % len(connections)], vb) for vb in range(first, min(first + AT_ONCE, VBUCKETS))]
        send((connection, frame(CREATE, value=text, vbucket=vb, datatype=JSON)) for connection, vb in asked)
        opened = []
        for connection, vb in asked:
            reply = connection.receive()
            if reply.status != NOT_FOUND:
                equal(reply.status, SUCCESS, "status of a scan that begins")
                opened.append((connection, vb, reply.value))
        send((connection, frame(CONTINUE, extras=name + bytes(12), vbucket=vb)) for connection, vb, name in opened)
        for connection, vb, _ in opened:
            status = SUCCESS
            while status != COMPLETE:
                reply = connection.receive()
                status = reply.status
                assert status in (SUCCESS, MORE, COMPLETE), hex(status)
                found += reply.value.count(prefix)
    return found


def measure(node, what, connections, count):
    took_ms, processor_ms = [], []
    for number in range(SCANS):
        first = (count // SCANS * number) // FOUND
        prefix = b"settee:%0*d" % (DIGITS - 3, first)
        began, began_ns = time.monotonic(), node.processor_ns()
        found = scan(connections, prefix)
        took_ms.append((time.monotonic() - began) * 1e3)
        processor_ms.append((node.processor_ns() - began_ns) / 1e6)
        equal(found, FOUND, "documents")
    print(
        f"{what}: median {statistics.median(took_ms):.0f} ms, most {max(took_ms):.0f}; "
        f"processor time of the node {statistics.median(processor_ms):.0f} ms"
    )


def main(count, eviction, quota_mib, at_once):
    node = Node("--bucket", f"default:{quota_mib}:couchbase:{eviction}")
    with node.start().ready().watched():
        load(node, count)
        connections = connect(node, at_once)
        measure(node, f"{count} documents, {eviction}, after the load", connections, count)
        node.stop()
        node.start().ready()
        connections = connect(node, at_once)
        measure(node, "after a start", connections, count)


if __name__ == "__main__":
    given = sys.argv[1:]
    words = given + ["10000000", "full", "1024", "1"][len(given) :]
    main(int(words[0]), words[1], int(words[2]), int(words[3]))
