"""What many more documents cost than fit: a load with full eviction, memory, reads, replacing, a start after kill -9.

    SETTEE_BIN=target/release/settee python3 conformance/bench/full_eviction.py [DOCUMENTS] [QUOTA_MIB]

Documents of 256 bytes; ten million take 3 GiB of the disk of the temporary directory.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, binary, eventually  # noqa: E402
from mcbp import Connection  # noqa: E402

MIB = 1 << 20


def bench(node, count, *flags):
    """What `settee bench` prints."""
    command = [binary(), "bench", "--connect", node.address, "-k", str(count), "--value-size", "256"]
    command += ["-c", "8", "-d", "32", "--warmup", "0", "--json", *flags]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def statistic(node, name):
    return int(Connection(node.kv).login().stats()[name])


def memory(node):
    return f"resident {node.resident_bytes() // MIB} MiB, most {node.most_resident_bytes() // MIB}"


def main(count, quota_mib):
    node = Node("--bucket", f"default:{quota_mib}:couchbase:full")
    with node.start().ready().watched():
        began = time.monotonic()
        bench(node, count, "--ratio", "1:0", "--ops", "1", "--slices", "1")
        took = time.monotonic() - began
        print(f"{count} documents loaded: {count / took:.0f} a second; {memory(node)}")
        for what, ratio, *flags in (
            ("reads, uniform", "0:1"),
            ("reads, zipf", "0:1", "--distribution", "zipf"),
            ("replaced, uniform", "1:0"),
        ):
            figures = bench(node, count, "--ratio", ratio, "--load-first=false", "--duration", "8", *flags)
            print(f"{what}: {figures['servers'][0]['ops_per_second']:.0f} a second; {memory(node)}")
        node.kill()
        began = time.monotonic()
        node.start().ready()
        took = time.monotonic() - began
        print(f"ready after kill -9: {took:.2f} s, {statistic(node, 'curr_items')} documents; {memory(node)}")
        refilled = lambda: Connection(node.kv).login().stats()["ep_warmup_refill"] == "done"  # noqa: E731
        eventually("memory is refilled", refilled, seconds=600)
        took = time.monotonic() - began
        print(f"refilled: {took:.2f} s, {statistic(node, 'ep_warmup_value_count')} documents; {memory(node)}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [10_000_000, 256][len(numbers) :]))
