"""How soon a node with many documents in memory serves again after kill -9: the first ones, and all.

    SETTEE_BIN=target/release/settee python3 conformance/bench/start.py [DOCUMENTS] [QUOTA_MIB]

Documents of 256 bytes, eviction `value`; twenty million take 8 GiB of memory, and as much of the disk of the temporary directory.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, binary, eventually  # noqa: E402
from mcbp import GET, NOT_FOUND, Connection  # noqa: E402

STARTS = 3


def load(node, count):
    command = [binary(), "bench", "--connect", node.address, "-k", str(count), "--value-size", "256", "-c", "8", "-d", "32"]
    command += ["--warmup", "0", "--ratio", "1:0", "--ops", "1", "--slices", "1"]
    subprocess.run(command, capture_output=True, check=True)
    stored = Connection(node.kv).login()
    eventually("all is stored", lambda: int(stored.stats()["ep_diskqueue_items"]) == 0, seconds=600)


def first_answer(port, began, answered):
    """When a read in vBucket 0 is first answered."""
    while not answered:
        try:
            connection = Connection(port).login(bucket="default")
            while connection.call(GET, b"no-such-key", vbucket=0).status != NOT_FOUND:
                pass
            answered.append(time.monotonic() - began)
        except OSError:
            pass


def main(count, quota_mib):
    node = Node("--bucket", f"default:{quota_mib}:couchbase:value")
    with node.start().ready().watched():
        load(node, count)
        for _ in range(STARTS):
            node.kill()
            began, answered = time.monotonic(), []
            reader = threading.Thread(target=first_answer, args=(node.kv, began, answered))
            reader.start()
            node.start().ready()
            took = time.monotonic() - began
            reader.join()
            print(f"{count} documents: the first vBucket is read after {answered[0]:.2f} s, all are after {took:.2f}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [20_000_000, 9_500][len(numbers) :]))
