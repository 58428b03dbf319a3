"""Durable writes a second, on one node and on a pair: `SETTEE_BIN=... python3 durable_writes.py`.

One connection with raw frames over 20,000 keys; `window` requests are under way at a time. Larger
documents fill several logs of the store. The client shares the machine with the nodes.
"""

import socket
import struct
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node

KEYS = 20_000
TIMEOUT_MS = 60_000
NAMES = {0: "plain", 1: "majority", 2: "majorityAndPersistToActive", 3: "persistToMajority"}
# Mutation tokens, error bodies, unordered execution, flexible frames, durability, collections.
FEATURES = (0x04, 0x07, 0x08, 0x0E, 0x10, 0x11, 0x12)


def header(magic, opcode, lengths, vbucket, body, opaque):
    infos, extras, key = lengths
    keys = (infos << 8 | key) if magic == 0x08 else key
    return struct.pack(">BBHBBHIIQ", magic, opcode, keys, extras, 0, vbucket, body, opaque, 0)


def set_frame(key, value, level, opaque):
    vbucket = (zlib.crc32(key) >> 16) & 0x3FF
    infos = struct.pack(">BBH", 0x13, level, TIMEOUT_MS) if level else b""
    body = infos + bytes(8) + b"\0" + key + value
    lengths = (len(infos), 8, len(key) + 1)
    return header(0x08 if infos else 0x80, 0x01, lengths, vbucket, len(body), opaque) + body


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.call(0x1F, b"bench", struct.pack(f">{len(FEATURES)}H", *FEATURES))
        self.call(0x21, b"PLAIN", b"\0Administrator\0password")
        self.call(0x89, b"default", b"")

    def call(self, opcode, key, value):
        body = key + value
        self.socket.sendall(header(0x80, opcode, (0, 0, len(key)), 0, len(body), 0) + body)
        [(status, _)] = self.answers(1)
        assert status == 0, f"opcode {opcode:#x}: status {status:#x}"

    def answers(self, least):
        """At least that many answers: status and opaque of each."""
        found = []
        while len(found) < least:
            self.rest += self.socket.recv(1 << 18)
            start = 0
            while len(self.rest) - start >= 24:
                status, length, opaque = struct.unpack_from(">6xHII", self.rest, start)
                if len(self.rest) - start < 24 + length:
                    break
                found.append((status, opaque))
                start += 24 + length
            self.rest = self.rest[start:]
        return found


def run(connection, level, count, window, size):
    frames = [set_frame(b"bench-%d" % (n % KEYS), b"x" * size, level, n) for n in range(count)]
    sent_at, took = [0.0] * count, []
    sent, failed, started = 0, 0, time.monotonic()
    while len(took) < count:
        more = min(window - (sent - len(took)), count - sent)
        if more > 0:
            sent_at[sent : sent + more] = [time.monotonic()] * more
            connection.socket.sendall(b"".join(frames[sent : sent + more]))
            sent += more
        for status, opaque in connection.answers(1):
            failed += status != 0
            took.append(time.monotonic() - sent_at[opaque])
    rate = count / (time.monotonic() - started)
    took.sort()
    p50, p99, p999 = (took[count * part // 1000] * 1e6 for part in (500, 990, 999))
    return f"{rate:9.0f}/s  p50 {p50:6.0f} us  p99 {p99:6.0f} us  p99.9 {p999:6.0f} us  failed {failed}"


def measure(title, port, cases):
    connection = Connection(port)
    for level, count, window, *size in cases:
        size = size[0] if size else 256
        result = run(connection, level, count, window, size)
        print(f"{title:5} {NAMES[level]:26} {size:4} B  window {window:2}  {result}")


def main():
    active = Node("--bucket", "default:2048")
    active.start()
    alone = [(0, 5000, 1), (1, 5000, 1), (0, 60_000, 32), (1, 60_000, 32), (2, 3000, 32)]
    large = [(2, 40_000, 32, 1024), (3, 40_000, 32, 4096)]
    measure("alone", active.kv, [*alone, (3, 3000, 32), *large])
    replica = Node("--bucket", "default:2048", "--replica-of", active.address)
    try:
        replica.start()
        time.sleep(4)  # It catches up: nothing else runs meanwhile.
        measure("pair", active.kv, [(1, 5000, 1), (1, 30_000, 32), (2, 2000, 32), (3, 2000, 32)])
    finally:
        replica.kill()
        active.kill()


if __name__ == "__main__":
    main()
