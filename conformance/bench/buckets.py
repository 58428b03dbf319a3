"""What many empty buckets cost: making them, memory, processor time of an idle node, a restart.

    SETTEE_BIN=target/release/settee python3 conformance/bench/buckets.py [COUNT]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node  # noqa: E402
from manage import must  # noqa: E402

MIB = 1 << 20
IDLE_SECONDS = 10


def state(node, what, took):
    """Memory, and the processor time of a node that nobody uses."""
    resident, most = node.resident_bytes() / MIB, node.most_resident_bytes() / MIB
    before = node.processor_ns()
    time.sleep(IDLE_SECONDS)
    idle = (node.processor_ns() - before) / 1e9 / IDLE_SECONDS * 100
    print(f"{what} in {took:.2f} s: resident {resident:.0f} MiB, most {most:.0f}; idle {idle:.1f} %")


def main(count):
    node = Node("--buckets-max", str(count + 1))
    with node.start().ready().watched():
        began = time.monotonic()
        for number in range(count):
            place = "/pools/default/buckets"
            must(node, "POST", place, name=f"b{number}", ramQuota="100", replicaNumber="0")
        state(node, f"{count} buckets made", time.monotonic() - began)
        node.stop()
        began = time.monotonic()
        node.start().ready()
        state(node, "ready after a clean stop", time.monotonic() - began)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
