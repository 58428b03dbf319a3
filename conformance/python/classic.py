"""A classic memcached client, unmodified: it knows neither buckets nor vBuckets."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import bmemcached
from bmemcached.exceptions import MemcachedException
from harness import Node, Suite, equal, eventually, raises
from mcbp import GET, SUCCESS, Connection, key_call

suite = Suite("classic")
TOUCH, APPEND, PREPEND = 0x1C, 0x0E, 0x0F


class World:
    """A node with the port for clients that do not authenticate."""

    def __init__(self):
        self.node = Node("--memcached-port", "0").start().ready()
        self.clients = {
            "with SASL": self.client(self.node.kv, "Administrator", "password"),
            "without SASL": self.client(self.node.ports["memcached"]),
        }

    @staticmethod
    def client(port, user=None, password=None):
        address = f"127.0.0.1:{port}"
        return bmemcached.Client((address,), user, password, socket_timeout=10)

    def each(self, check):
        for name, client in self.clients.items():
            try:
                check(client)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error

    def close(self):
        self.node.close()


@suite.test
def sets_gets_and_deletes(world):
    def check(client):
        equal(client.set("classic", "one"), True)
        equal(client.get("classic"), "one")
        equal(client.replace("classic", "two"), True)
        equal(client.get("classic"), "two")
        equal(client.add("classic", "three"), False, "add of what exists")
        equal(client.delete("classic"), True)
        equal(client.get("classic"), None)
        equal(client.replace("classic", "four"), False, "replace of what is missing")
        equal(client.add("classic", "five"), True)

    world.each(check)


@suite.test
def sees_one_bucket_on_both_ports(world):
    world.clients["with SASL"].set("shared", "value")
    equal(world.clients["without SASL"].get("shared"), "value")
    connection = Connection(world.node.kv).login()
    reply = key_call(connection, GET, b"shared")
    equal((reply.status, reply.value), (SUCCESS, b"value"), "the key's own vBucket")
    connection.close()


@suite.test
def compares_and_swaps(world):
    def check(client):
        client.set("cas", "one")
        value, cas = client.gets("cas")
        equal(value, "one")
        equal(client.cas("cas", "two", cas), True)
        equal(client.cas("cas", "three", cas), False, "a stale CAS")
        equal(client.get("cas"), "two")

    world.each(check)


@suite.test
def counts(world):
    def check(client):
        client.delete("counter")
        equal(client.incr("counter", 5, default=10), 10)
        equal(client.incr("counter", 5), 15)
        equal(client.decr("counter", 6), 9)
        equal(client.decr("counter", 100), 0)

    world.each(check)


@suite.test
def handles_many_keys(world):
    def check(client):
        documents = {f"multi-{n}": f"value {n}" for n in range(300)}
        equal(client.set_multi(documents), [], "keys that were not set")
        equal(client.get_multi([*documents, "multi-missing"]), documents)
        client.delete_multi(list(documents))
        equal(client.get_multi(list(documents)), {})

    world.each(check)


@suite.test
def keeps_objects_and_large_values(world):
    def check(client):
        for value in (b"\x00\xff raw", 12, {"a": [1, 2]}, "x" * 300_000):
            client.set("object", value)
            equal(client.get("object"), value)

    world.each(check)


@suite.test
def appends_prepends_and_touches(world):
    """The client has no call for these; they go out as it frames its other commands: vBucket 0."""
    connection = Connection(world.node.ports["memcached"])
    world.clients["without SASL"].set("joined", b"b")
    equal(connection.call(APPEND, b"joined", b"", b"c").status, SUCCESS)
    equal(connection.call(PREPEND, b"joined", b"", b"a").status, SUCCESS)
    equal(connection.call(GET, b"joined").value, b"abc")
    equal(connection.call(TOUCH, b"joined", b"\x00\x00\x00\x01").status, SUCCESS)
    connection.close()
    gone = lambda: world.clients["with SASL"].get("joined") is None
    eventually("the touched document expires", gone, seconds=6)


@suite.test
def expires(world):
    world.each(lambda client: client.set("short", "x", time=1))
    client = world.clients["with SASL"]
    eventually("the document expires", lambda: client.get("short") is None, seconds=6)


@suite.test
def reads_statistics(world):
    def check(client):
        (server,) = client.stats().values()
        for name in ("pid", "uptime", "version", "curr_items", "curr_connections"):
            assert name in server or name.encode() in server, f"{name} is not among {len(server)}"

    world.each(check)


@suite.test
def refuses_a_wrong_password(world):
    client = world.client(world.node.kv, "Administrator", "wrong")
    # The client knows another number for this than memcached and we send, so it tells the number.
    error = raises(MemcachedException, lambda: client.get("classic"))
    assert "32" in str(error), error


@suite.test
def finds_all_after_a_restart(world):
    documents = {f"kept-{n}": f"value {n}" for n in range(100)}
    world.clients["with SASL"].set_multi(documents)
    world.node.stop()
    world.node.start().ready()
    client = world.client(world.node.kv, "Administrator", "password")
    equal(client.get_multi(list(documents)), documents)


if __name__ == "__main__":
    suite.main(World())
