"""memcached's text and meta protocol: an unmodified client, and requests as other clients and attackers write them."""

import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from harness import Node, Suite, equal, eventually, raises
from manage import must
from mcbp import GET, SUCCESS, Connection, key_call, vbucket_of
from pymemcache.client.base import PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError

suite = Suite("text")
MIB = 1 << 20


class World:
    """A node with the port of memcached."""

    def __init__(self):
        self.node = Node("--memcached-port", "0").start().ready()
        self.client = self.connect()

    def connect(self):
        return PooledClient(("127.0.0.1", self.node.ports["memcached"]), timeout=20, default_noreply=False)

    def raw(self):
        return Raw(self.node.ports["memcached"])

    def close(self):
        self.client.close()
        self.node.close()


class Raw:
    """A connection without a client."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")

    def ask(self, request, lines=1):
        self.socket.sendall(request)
        return [self.file.readline() for _ in range(lines)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


@suite.test
def sets_gets_and_deletes(world):
    client = world.client
    equal(client.set("text", b"one"), True)
    equal(client.get("text"), b"one")
    equal(client.replace("text", b"two"), True)
    equal(client.add("text", b"three"), False, "add of what exists")
    equal(client.append("text", b"!"), True)
    equal(client.prepend("text", b"?"), True)
    equal(client.get("text"), b"?two!")
    equal(client.delete("text"), True)
    equal(client.delete("text"), False)
    equal(client.get("text"), None)
    equal(client.replace("text", b"four"), False, "replace of what is missing")


@suite.test
def compares_and_swaps(world):
    client = world.client
    client.set("cas", b"one")
    value, cas = client.gets("cas")
    equal(value, b"one")
    equal(client.cas("cas", b"two", cas), True)
    equal(client.cas("cas", b"three", cas), False, "a stale CAS")
    equal(client.cas("cas-missing", b"three", cas), None, "of a missing key")


@suite.test
def counts(world):
    client = world.client
    client.set("counter", b"10")
    equal(client.incr("counter", 5), 15)
    equal(client.decr("counter", 100), 0)
    client.set("counter", b"18446744073709551615")
    equal(client.incr("counter", 2), 1, "it wraps")
    equal(client.incr("counter-missing", 1), None)
    client.set("counter", b"x")
    raises(MemcacheClientError, lambda: client.incr("counter", 1))


@suite.test
def handles_many_keys(world):
    documents = {f"multi-{n}": b"value %d" % n for n in range(3000)}
    equal(world.client.set_many(documents), [], "keys that were not set")
    equal(world.client.get_many([*documents, "multi-missing"]), documents)
    equal(world.client.delete_many(list(documents)), True)
    equal(world.client.get_many(list(documents)), {})


@suite.test
def a_line_of_many_keys_takes_no_longer_than_lines_of_few(world):
    keys = [b"absent-%d" % number for number in range(16000)]

    def processor_ns(size):
        lines = [b"get " + b" ".join(keys[at : at + size]) + b"\r\n" for at in range(0, len(keys), size)]
        before = world.node.processor_ns()
        with world.raw() as raw:
            equal(raw.ask(b"".join(lines), len(lines)), [b"END\r\n"] * len(lines))
        return world.node.processor_ns() - before

    few, many = processor_ns(10), processor_ns(len(keys))
    assert many < 3 * few, f"{many} ns, in lines of ten keys {few} ns"


@suite.test
def expires(world):
    client = world.client
    client.set("short", b"x", expire=1)
    client.set("touched", b"x")
    equal(client.touch("touched", 1), True)
    client.set("at-once", b"x", expire=-1)
    equal(client.get("at-once"), None)
    eventually("both expire", lambda: client.get_many(["short", "touched"]) == {}, seconds=6)


@suite.test
def shares_documents_with_the_binary_protocol(world):
    world.client.set("shared", b"value", flags=7)
    connection = Connection(world.node.kv).login()
    reply = key_call(connection, GET, b"shared", vbucket=vbucket_of(b"shared"))
    connection.close()
    equal((reply.status, reply.value, reply.extras), (SUCCESS, b"value", b"\0\0\0\7"))


@suite.test
def keeps_large_values_and_refuses_larger_ones(world):
    value = bytes(range(256)) * 4 * 1024 * 4
    equal(world.client.set("large", value), True)
    equal(world.client.get("large"), value)
    raises(MemcacheServerError, lambda: world.client.set("larger", bytes(21 * MIB)))
    equal(world.client.get("large"), value, "after a refusal")


@suite.test
def serves_many_connections_at_once(world):
    wrong = []

    def work(number):
        client = world.connect()
        for step in range(200):
            key, value = f"many-{number}-{step}", b"%d" % step
            client.set(key, value)
            if client.get(key) != value:
                wrong.append(key)
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(wrong, [])


@suite.test
def answers_the_meta_protocol(world):
    with world.raw() as raw:
        equal(raw.ask(b"ms meta 5 T0 F9\r\nhello\r\n"), [b"HD\r\n"])
        equal(raw.ask(b"mg meta v f s Oq1\r\n", 2), [b"VA 5 f9 s5 Oq1\r\n", b"hello\r\n"])
        equal(raw.ask(b"mg missing v\r\n"), [b"EN\r\n"])
        # Misses that are not told, and the end of the pipeline.
        equal(raw.ask(b"mg missing v q\r\nmg meta v q k\r\nmn\r\n", 3), [b"VA 5 kmeta\r\n", b"hello\r\n", b"MN\r\n"])
        equal(raw.ask(b"ma counter-meta N0 J5 v\r\n", 2), [b"VA 1\r\n", b"5\r\n"])
        equal(raw.ask(b"ma counter-meta D2 v\r\n", 2), [b"VA 1\r\n", b"7\r\n"])
        equal(raw.ask(b"md meta q\r\nmd meta\r\nmn\r\n", 2), [b"NF\r\n", b"MN\r\n"])


@suite.test
def bad_input_has_an_answer(world):
    long = b"k" * 251
    cases = [
        (b"nonsense\r\n", b"ERROR"),
        (b"get " + long + b"\r\n", b"CLIENT_ERROR"),
        (b"get\r\n", b"ERROR"),
        (b"set bad x 0 1\r\n", b"CLIENT_ERROR"),
        (b"set bad 0 0 -1\r\n", b"CLIENT_ERROR"),
        (b"set bad 0 0 2\r\nabc\r\n", b"CLIENT_ERROR"),
        (b"incr bad x\r\n", b"CLIENT_ERROR"),
        (b"mg\r\n", b"CLIENT_ERROR"),
        (b"mg " + long + b" v\r\n", b"CLIENT_ERROR"),
        (b"get nul\0byte\r\n", b""),
    ]
    for request, start in cases:
        with world.raw() as raw:
            (answer,) = raw.ask(request)
            assert answer.startswith(start) and answer.endswith(b"\r\n"), (request[:40], answer)
    equal(world.client.set("after", b"1"), True)
    raises(MemcacheIllegalInputError, lambda: world.client.get("with space"))


@suite.test
def endless_lines_are_cut(world):
    before = world.node.resident_bytes()
    with world.raw() as raw:
        try:
            for _ in range(64):
                raw.socket.sendall(b"x" * MIB)
            answer = raw.file.read()
        except ConnectionError:
            answer = b""
        assert answer == b"" or b"ERROR" in answer, answer[:100]
    assert world.node.resident_bytes() - before < 32 * MIB
    equal(world.client.set("after", b"1"), True)


@suite.test
def a_slow_sender_harms_nobody(world):
    with world.raw() as raw:
        raw.socket.sendall(b"set slow 0 0 10\r\n01234")
        equal(world.client.set("other", b"1"), True)
        equal(raw.ask(b"56789\r\n"), [b"STORED\r\n"])
    equal(world.client.get("slow"), b"0123456789")


@suite.test
def flush_all_needs_a_bucket_that_may_be_flushed(world):
    client, bucket = world.client, "/pools/default/buckets/default"
    client.set("kept", b"1")
    refused = raises(MemcacheClientError, client.flush_all)
    assert "Flush is disabled" in str(refused), refused
    equal(client.get("kept"), b"1")
    must(world.node, "POST", bucket, flushEnabled="1")
    with world.raw() as raw:
        (line,) = raw.ask(b"flush_all 60\r\n")
        assert line.startswith(b"CLIENT_ERROR") or line.startswith(b"SERVER_ERROR"), line
        equal(raw.ask(b"set next 0 0 1\r\n1\r\nflush_all\r\nget next\r\nmn\r\n", 4),
              [b"STORED\r\n", b"OK\r\n", b"END\r\n", b"MN\r\n"])  # fmt: skip
    equal(client.get("kept"), None)
    client.set("kept", b"2")
    equal(client.flush_all(), True)
    equal(client.get("kept"), None)
    world.node.kill()
    world.node.start().ready()
    world.client = world.connect()
    equal(world.client.get("kept"), None)
    must(world.node, "POST", bucket, flushEnabled="0")


@suite.test
def tells_statistics_and_version(world):
    stats = world.client.stats()
    for name in (b"pid", b"uptime", b"curr_items", b"curr_connections"):
        assert name in stats, f"{name} is not among {len(stats)}"
    assert world.client.version()


def recorded():
    """Requests with memcached's answers, as bytes."""
    lines = [line for line in (HERE / "memcached.txt").read_text().splitlines() if line[:1] in "<>"]
    bytes_of = lambda line: line[2:].encode().decode("unicode_escape").encode("latin1")
    return [(bytes_of(ask), bytes_of(answer)) for ask, answer in zip(lines[::2], lines[1::2], strict=True)]


@suite.test
def answers_as_memcached_does_byte_by_byte(_):
    """Keys that one request leaves are there for the next ones, so the node is a new one."""
    pairs = recorded()
    assert len(pairs) >= 70, len(pairs)
    with Node("--memcached-port", "0").start().ready().watched() as node:
        different = []
        for request, expected in pairs:
            with Raw(node.ports["memcached"]) as raw:
                raw.socket.sendall(request + b"mn\r\n")
                answer = b""
                while not answer.endswith(b"MN\r\n") and (more := raw.file.readline()):
                    answer += more
            if answer != expected:
                different.append((request[:80], expected[:120], answer[:120]))
        assert not different, different


@suite.test
def gomemcache_does_all_that_it_can(world):
    address = f"127.0.0.1:{world.node.ports['memcached']}"
    with tempfile.TemporaryDirectory() as home:
        program = Path(home) / "gomemcache"
        build = ["go", "build", "-mod=readonly", "-o", str(program), "."]
        subprocess.run(build, cwd=HERE / "gomemcache", check=True, timeout=80)
        ran = subprocess.run([program, address], capture_output=True, text=True, timeout=60)
    equal((ran.returncode, ran.stderr), (0, ""))


@suite.test
def its_version_is_three_numbers(world):
    """Some clients end with an exception where anything follows the third number."""
    with world.raw() as raw:
        (line,) = raw.ask(b"version\r\n")
    words = line.split()
    assert len(words) == 2 and [part.isdigit() for part in words[1].split(b".")] == [True] * 3, line


if __name__ == "__main__":
    suite.main(World())
