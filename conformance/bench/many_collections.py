"""What a thousand collections cost: time, resident memory, processor time, and a restart with them.

    SETTEE_BIN=target/release/settee python3 conformance/bench/many_collections.py once|each [COUNT]

`once` makes them with one manifest (`PUT` of the bucket's scopes), `each` one after the other
(`POST`), over one connection. Then it makes 20 more, each one when the store has the one before.
"""

import json
import sys
import time
from base64 import b64encode
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, eventually  # noqa: E402
from manage import BUCKET  # noqa: E402
from pair import stats  # noqa: E402

MIB = 1 << 20
AUTHORIZATION = "Basic " + b64encode(b"Administrator:password").decode()
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ONE_SCOPE = f"{BUCKET}/_default/collections"
MORE = 20


def state(node):
    """Memory, processor time and disk, in words."""
    files = [file for file in node.data.rglob("*") if file.is_file()]
    disk = sum(file.stat().st_blocks * 512 for file in files) / MIB
    resident, most = node.resident_bytes() / MIB, node.most_resident_bytes() / MIB
    cpu = node.processor_ns() / 1e9
    return f"resident {resident:.1f} MiB, most {most:.1f}; CPU {cpu:.2f} s; disk {disk:.1f} MiB"


def timed(connection, method, path, body, headers=None):
    """Milliseconds until the answer, which must be a success."""
    began = time.monotonic()
    connection.request(method, path, body, {"Authorization": AUTHORIZATION, **(headers or {})})
    answer = connection.getresponse()
    text = answer.read()
    took = (time.monotonic() - began) * 1000
    if answer.status != 200:
        raise AssertionError(f"{method} {path}: {answer.status} {text}")
    return took


def at_once(connection, count):
    """One manifest with all, then one more collection."""
    names = ["_default", *(f"collection-{index:04}" for index in range(count))]
    scope = {"name": "_default", "collections": [{"name": name} for name in names]}
    return timed(connection, "PUT", BUCKET, json.dumps({"scopes": [scope]}))


def one_by_one(connection, count):
    """The same, one after the other: all times, sorted."""
    names = (f"collection-{index:04}" for index in range(count))
    return sorted(timed(connection, "POST", ONE_SCOPE, f"name={name}", FORM) for name in names)


def stored(node):
    """Waits until the store has all that was made."""
    eventually("all is in the store", lambda: stats(node, "")["ep_queue_size"] == "0", 60)


def restarts(node, label, rounds=3):
    """Times from the start of the process until it is ready."""
    for _ in range(rounds):
        node.stop()
        began = time.monotonic()
        node.start().ready()
        print(f"{label}: ready after {(time.monotonic() - began) * 1000:.0f} ms; {state(node)}")


def main():
    way = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 999 - MORE
    node = Node().start().ready()
    try:
        restarts(node, "without collections")
        connection = HTTPConnection("127.0.0.1", node.ports["http"])
        before = node.processor_ns()
        if way == "once":
            print(f"at once: {at_once(connection, count):.1f} ms; {state(node)}")
        else:
            took = one_by_one(connection, count)
            cpu = (node.processor_ns() - before) / 1e6 / count
            middle, slow = took[count // 2], took[count * 99 // 100]
            print(f"each: {middle:.1f} ms, p99 {slow:.1f}, CPU {cpu:.2f}; {state(node)}")
        stored(node)
        print(f"in the store: {state(node)}")
        more = []
        for index in range(MORE):
            more.append(timed(connection, "POST", ONE_SCOPE, f"name=more-{index}", FORM))
            stored(node)
        print(f"{MORE} more: median {median(more):.1f} ms, most {max(more):.1f}; {state(node)}")
        restarts(node, "with collections")
    finally:
        node.close()


if __name__ == "__main__":
    main()
