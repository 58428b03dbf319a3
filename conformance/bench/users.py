"""What many users cost: a start with them, memory, a login, and a change of a role until it holds.

    SETTEE_BIN=target/release/settee python3 conformance/bench/users.py [COUNT]

They are put into the file of users, as deriving the keys of a password takes some 30 ms; the bucket has
1,000 collections, and each user one role on one of them.
"""

import json
import statistics
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, equal  # noqa: E402
from manage import BUCKET, call, must  # noqa: E402
from mcbp import FEATURE_XERROR, NO_ACCESS, NOT_FOUND, Connection, key_call  # noqa: E402

MIB = 1 << 20
GET = 0x00
USER = "/settings/rbac/users/local/u0"
CHANGES = 30


def make_collections(node):
    """Ten scopes of a hundred, less what each bucket has."""
    scopes = json.loads(must(node, "GET", BUCKET))["scopes"]
    kept = [{"name": scope["name"], "collections": scope["collections"]} for scope in scopes]
    for scope in kept:
        scope["collections"] = [{"name": one["name"]} for one in scope["collections"]]
    names = [{"name": f"c{number}"} for number in range(99)]
    made = [{"name": f"s{number}", "collections": names} for number in range(10)]
    status, _, text = call(node, "PUT", BUCKET, json.dumps({"scopes": kept + made}).encode())
    equal(status, 200, text)


def put_users(node, count):
    """Copies of one user with the same password."""
    path = node.data / "users.json"
    content = json.loads(path.read_bytes().split(b"\n", 1)[1])
    one = content["users"]["u0"]
    for number in range(1, count):
        role = f"data_reader[default:s{number % 10}:c{number // 10 % 99}]"
        content["users"][f"u{number}"] = {**one, "roles": [role]}
    text = json.dumps(content).encode()
    path.write_bytes(b"settee users 1 %08x %d\n%b" % (zlib.crc32(text), len(text), text))


def timed(work):
    """Milliseconds."""
    began = time.monotonic()
    work()
    return (time.monotonic() - began) * 1000


def held_after(node, connection, role, wanted):
    """Milliseconds from the request that changes the role until an open connection has it."""

    def change():
        must(node, "PUT", USER, roles=role)
        while key_call(connection, GET, b"missing").status != wanted:
            pass

    return timed(change)


def use(node):
    """Logins and changes of a role: the milliseconds of each."""
    logins, changes = [], []
    for _ in range(CHANGES):
        connection = Connection(node.kv)
        # Without it a refusal ends the connection.
        connection.hello(FEATURE_XERROR)
        logins.append(timed(lambda: connection.login("u0", "sesame")))
    for number in range(CHANGES):
        role, wanted = [("data_writer", NO_ACCESS), ("data_reader", NOT_FOUND)][number % 2]
        changes.append(held_after(node, connection, f"{role}[default]", wanted))
    return logins, changes


def main(count):
    node = Node("--bucket", "default:128")
    with node.start().ready().watched():
        make_collections(node)
        must(node, "PUT", USER, password="sesame", roles="data_reader[default]")
        node.stop()
        # What the same takes with one user.
        node.start().ready()
        started = node.resident_bytes()
        use(node)
        used = node.resident_bytes()
        node.stop()
        put_users(node, count)
        took = timed(lambda: node.start().ready())
        loaded = (node.resident_bytes() - started) / MIB
        print(f"{count} users: start {took:.0f} ms, {loaded:.1f} MiB more resident than with one")
        logins, changes = use(node)
        print(f"login (PLAIN): first {logins[0]:.1f} ms, then {statistics.median(logins[1:]):.2f} ms")
        print(f"a role holds after {statistics.median(changes):.1f} ms, at most {max(changes):.1f} ms")
        now = (node.resident_bytes() - used) / MIB
        print(f"after {CHANGES} logins and changes: {now:.1f} MiB more resident than with one")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
