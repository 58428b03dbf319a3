"""A long load on many more documents than fit into memory, with a kill -9 every minute: nothing is lost, nothing invented.

    SETTEE_BIN=target/release/settee python3 conformance/bench/soak.py [MINUTES] [QUOTA_MIB] [TIMES]

Documents of 256 bytes to 16 KiB, TIMES as many bytes as the quota, eviction `full`. Workers write all of them, then replace
and read random ones. A quarter of the writes asks for `persistToMajority`: once acknowledged, no kill takes it back. What a
read finds is no older than that, and has been sent; within one life of the node it is what was acknowledged last.
"""

import random
import sys
import time
from multiprocessing import Process, RawArray, Value
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node  # noqa: E402
from mcbp import (  # noqa: E402
    FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION, FEATURE_XERROR, GET, NOT_FOUND, OUT_OF_MEMORY, SET, SUCCESS,
    SYNC_WRITE_AMBIGUOUS, TEMPORARY_FAILURE, Closed, Connection, frame, vbucket_of,
)  # fmt: skip

MIB = 1 << 20
SIZES = [256 << step for step in range(7)]
BATCH, WORKERS, BETWEEN_KILLS_S = 64, 3, 60
ON_DISK = bytes([0x11, 3])
REFUSED = (TEMPORARY_FAILURE, OUT_OF_MEMORY, SYNC_WRITE_AMBIGUOUS)


def document(number, version):
    return (b"%08x%08x" % (number, version)) * (SIZES[number % len(SIZES)] // 16)


class World:
    """What all processes know: of each document the version that was sent last, and that which is on disk."""

    def __init__(self, count):
        self.count = count
        self.sent, self.kept = RawArray("I", count), RawArray("I", count)
        self.ends = Value("b", 0)
        self.figures = {name: RawArray("Q", WORKERS) for name in ("written", "read", "refused", "wrong")}

    def total(self, name):
        return sum(self.figures[name])


class Worker:
    """Writes and reads the documents of its share, and knows what must be there."""

    def __init__(self, world, index, port):
        self.world, self.index, self.port = world, index, port
        self.random = random.Random(index)
        self.share = range(index, world.count, WORKERS)
        # What was acknowledged in this life of the node.
        self.acknowledged, self.connection = {}, None

    def add(self, name, count=1):
        self.world.figures[name][self.index] += count

    def connect(self):
        while self.connection is None:
            try:
                connection = Connection(self.port, seconds=60).login()
                connection.hello(FEATURE_XERROR, FEATURE_ALT_REQUEST, FEATURE_SYNC_REPLICATION)
                self.connection = connection
            except (OSError, Closed, AssertionError):
                time.sleep(0.02)

    def exchange(self, frames):
        """The answers, as many as came."""
        self.connect()
        answers = []
        try:
            self.connection.send(b"".join(frames))
            for _ in frames:
                answers.append(self.connection.receive())
        except (OSError, Closed):
            self.connection = None
            self.acknowledged.clear()
        return answers

    def write(self, numbers, durable):
        world, frames = self.world, []
        for number in numbers:
            world.sent[number] += 1
            key, value = b"doc-%d" % number, document(number, world.sent[number])
            more = {"framing": ON_DISK} if durable else {}
            frames.append(frame(SET, key, bytes(8), value, vbucket=vbucket_of(key), **more))
        for number, answer in zip(numbers, self.exchange(frames)):
            version = world.sent[number]
            if answer.status == SUCCESS:
                self.add("written")
                # Answers that came before the connection was lost are of a life that ended.
                if self.connection:
                    self.acknowledged[number] = version
                if durable:
                    world.kept[number] = version
            else:
                assert answer.status in REFUSED, answer
                self.add("refused")
                self.acknowledged.pop(number, None)

    def read(self, numbers):
        keys = [b"doc-%d" % number for number in numbers]
        known = [(self.world.kept[number], self.acknowledged.get(number)) for number in numbers]
        answers = self.exchange([frame(GET, key, vbucket=vbucket_of(key)) for key in keys])
        for number, (kept, acknowledged), answer in zip(numbers, known, answers):
            if answer.status in REFUSED:
                self.add("refused")
                continue
            self.add("read")
            there = 0
            if answer.status == SUCCESS:
                there = int(answer.value[8:16], 16)
            allowed = kept <= there <= self.world.sent[number]
            allowed &= acknowledged is None or there == acknowledged
            whole = answer.value == document(number, there) if there else answer.status == NOT_FOUND
            if not (allowed and whole):
                self.add("wrong")
                print(f"document {number}: {answer!r}, kept {kept}, acknowledged {acknowledged}", flush=True)

    def run(self):
        for at in range(0, len(self.share), BATCH):
            if self.world.ends.value:
                return
            self.write(self.share[at : at + BATCH], durable=at // BATCH % 4 == 0)
        while not self.world.ends.value:
            numbers = self.random.sample(self.share, BATCH)
            if self.random.random() < 0.5:
                self.read(numbers)
            else:
                self.write(numbers, durable=self.random.random() < 0.5)

    def check_all(self):
        left = list(self.share)
        for at in range(0, len(left), BATCH):
            self.read(left[at : at + BATCH])


def in_all(world, port, what):
    processes = [Process(target=lambda worker: what(worker), args=(Worker(world, at, port),)) for at in range(WORKERS)]
    for process in processes:
        process.start()
    return processes


def main(minutes, quota_mib, times):
    count = quota_mib * times * MIB * len(SIZES) // sum(SIZES)
    world = World(count)
    node = Node("--bucket", f"default:{quota_mib}:couchbase:full")
    with node.start().ready().watched():
        print(f"{count} documents, {quota_mib * times} MiB", flush=True)
        processes = in_all(world, node.kv, Worker.run)
        ends, kills, longest = time.monotonic() + minutes * 60, 0, 0.0
        while time.monotonic() < ends and all(process.is_alive() for process in processes):
            time.sleep(BETWEEN_KILLS_S)
            most = node.most_resident_bytes() // MIB
            node.kill()
            began = time.monotonic()
            node.start().ready()
            took = time.monotonic() - began
            kills, longest = kills + 1, max(longest, took)
            disk = sum(file.stat().st_size for file in node.data.rglob("*") if file.is_file()) // MIB
            so_far = ", ".join(f"{world.total(name)} {name}" for name in world.figures)
            print(f"{kills} kills: ready after {took:.2f} s, most resident {most} MiB, {disk} MiB of disk; {so_far}", flush=True)
        world.ends.value = 1
        for process in processes:
            process.join()
        checked = in_all(world, node.kv, Worker.check_all)
        for process in checked:
            process.join()
        failed = [process for process in processes + checked if process.exitcode]
        print(f"all documents read after {kills} kills, ready after {longest:.2f} s at most; {world.total('wrong')} wrong")
        return 1 if failed or world.total("wrong") else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(numbers + [30, 128, 100][len(numbers) :])))
