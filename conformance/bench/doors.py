"""What neighbours notice of strangers and of long answers: `SETTEE_BIN=... python3 doors.py [SECONDS]`.

One connection reads a document all the time, while other processes send wrong passwords (over the KV
protocol and HTTP), ask for long statistics, or send HTTP bodies without an end. One line for each: p50
and p99 of the reader, bytes of log, and the most memory that the node took. The others run at a lower
priority, so that the reader waits for the node and not for them.
"""

import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node
from mcbp import GET, SASL_AUTH, SET, STAT, Closed, Connection, frame, key_call

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
LOGIN = b"Host: localhost\r\nAuthorization: Basic QWRtaW5pc3RyYXRvcjp%s\r\n"
RIGHT, WRONG = LOGIN % b"wYXNzd29yZA==", LOGIN % b"3cm9uZw=="


def again_and_again(port, seconds, converse):
    """Opens a connection, lets `converse` have it, and opens another one when it ends."""
    os.nice(10)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
                while time.monotonic() < until:
                    converse(one)
        except OSError:
            pass


def ask(data):
    """Sends this and reads what comes, until the node ends the connection."""

    def converse(one):
        one.sendall(data)
        if not one.recv(1 << 20):
            raise ConnectionResetError

    return converse


def statistics(one):
    login = frame(SASL_AUTH, b"PLAIN", b"", b"\0Administrator\0password")
    one.sendall(login + frame(STAT, b"vbucket-details") * 20)
    while one.recv(1 << 20):
        pass


def endless(one):
    one.sendall(b"POST /pools/default/buckets HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + RIGHT + b"\r\n")
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    while True:
        one.sendall(chunk)


LOADS = (
    ("nothing", "kv", 0, None),
    ("wrong passwords, KV", "kv", 16, ask(frame(SASL_AUTH, b"PLAIN", b"", b"\0Administrator\0wrong") * 20)),
    ("wrong passwords, HTTP", "http", 16, ask((b"GET /pools/default HTTP/1.1\r\n" + WRONG + b"\r\n") * 20)),
    ("vbucket-details", "kv", 8, statistics),
    ("bodies without an end", "http", 16, endless),
)


def main():
    multiprocessing.set_start_method("fork")
    node = Node().start().ready()
    reader = Connection(node.kv).login()
    key_call(reader, SET, b"read", bytes(8), b"x" * 100)
    print(f"{'beside':24} {'p50, us':>8} {'p99, us':>8} {'log, B':>8} {'most, MiB':>9}")
    for name, door, count, converse in LOADS:
        arguments = (node.ports[door], SECONDS, converse)
        others = [multiprocessing.Process(target=again_and_again, args=arguments) for _ in range(count)]
        before = node.log.stat().st_size
        for other in others:
            other.start()
        times = []
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            began = time.perf_counter()
            key_call(reader, GET, b"read")
            times.append(time.perf_counter() - began)
        for other in others:
            other.kill()
            other.join()
        times.sort()
        p50, p99 = (times[int(len(times) * part)] * 1e6 for part in (0.5, 0.99))
        log, most = node.log.stat().st_size - before, node.most_resident_bytes() >> 20
        print(f"{name:24} {p50:8.0f} {p99:8.0f} {log:8} {most:9}", flush=True)
        # Who guessed has an address with the reader: a right login ends the wait for it.
        for _ in range(20):
            try:
                Connection(node.kv).login().close()
                break
            except (AssertionError, Closed, OSError):
                continue
    stop_after_a_flood(node)
    node.close()


def stop_after_a_flood(node):
    """Prints how long a stop takes once many who asked for changes of buckets have gone."""
    for number in range(60):
        form = b"name=b%d&ramQuota=100&flushEnabled=1" % number
        head = b"POST /pools/default/buckets HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        with socket.create_connection(("127.0.0.1", node.ports["http"]), timeout=5) as one:
            one.sendall(head + b"Content-Length: %d\r\n" % len(form) + RIGHT + b"\r\n" + form)
    began = time.monotonic()
    node.stop()
    print(f"stop behind 60 new buckets of clients that have gone: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
