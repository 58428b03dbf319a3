"""Disk for a byte of live documents: while ten times the quota is loaded, while three quarters are replaced, and at rest.

    SETTEE_BIN=target/release/settee python3 conformance/bench/space.py [VALUE_SIZE 1024] [QUOTA_MIB 128]
"""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, binary  # noqa: E402

MIB = 1 << 20
KEY_BYTES = 20
REST_SECONDS = 20


def bench(node, count, size, *flags):
    command = [binary(), "bench", "--connect", node.address, "-k", str(count), "--value-size", str(size)]
    subprocess.run([*command, "-c", "16", "-d", "4", "--warmup", "0", *flags], capture_output=True, check=True)


def on_disk(folder):
    """Bytes that the files of a folder take, without those that go meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


@contextmanager
def most_on_disk(what, node, live):
    """Prints the most that a node takes meanwhile, and at the end, for a live byte."""
    seen, over = [on_disk(node.data)], threading.Event()

    def watch():
        while not over.wait(0.1):
            seen.append(on_disk(node.data))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    print(f"{what}: at most {max(seen) / live:.2f}, at the end {on_disk(node.data) / live:.2f}", flush=True)


def main(size, quota_mib):
    count = 10 * quota_mib * MIB // size
    live = count * (size + KEY_BYTES)
    with Node("--bucket", f"default:{quota_mib}:couchbase:full").start().ready().watched() as node:
        with most_on_disk("loaded", node, live):
            bench(node, count, size, "--ratio", "1:0", "--ops", "1", "--slices", "1")
        with most_on_disk("replaced", node, live):
            replaced = ["--ratio", "1:0", "--load-first=false", "--ops", str(count * 3 // 4)]
            bench(node, count, size, *replaced)
        with most_on_disk("at rest", node, live):
            time.sleep(REST_SECONDS)


if __name__ == "__main__":
    main(*(int(given) for given in (sys.argv[1:] + ["1024", "128"][len(sys.argv) - 1 :])))
