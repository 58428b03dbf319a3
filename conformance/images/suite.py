"""Power cuts under strict POSIX: what was not synced, with its name, may be there or not.

A node's files are recorded (`record.c`) while it takes durable writes, makes runs of its logs and merges them, while
vBuckets, scopes and buckets come and go, and while it is killed and started again. Then images of its disk
are built (`disk.py`) as a power cut at drawn moments may leave them, and a node is started on each: it has every write that had
been answered as durable, and nothing torn or invented. In some lives a sync fails: what it was for never reaches the disk,
though the process goes on to read it.

`--minutes N` draws so long, `--seed N` other lives; `--keep` leaves the images that broke.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import harness
from disk import Disk, record, records
from harness import Node, Suite, binary, eventually
from load import Load, Truth, check_image, connect
from mcbp import Closed

words = argparse.ArgumentParser()
words.add_argument("filter", nargs="?", default="")
words.add_argument("--minutes", type=float, default=0)
words.add_argument("--seed", type=int, default=1)
words.add_argument("--keep", action="store_true")
asked = words.parse_args()
sys.argv[1:] = [asked.filter] if asked.filter else []
suite = Suite("images")

# What a test takes in CI, about.
SECONDS = 35
KINDS = ("none", "all", "names", "content", "some", "some", "some")
WORKERS = int(os.environ.get("WORKERS", "2"))


class Recorded(Node):
    """A node whose files are recorded."""

    def __init__(self, recorder):
        super().__init__("--bucket", "default:256", "--journal", "1")
        self.recorder = recorder
        self.disk = self.home / "disk"
        self.disk.mkdir()
        self.data = self.disk / "data"
        self.tally, self.record = self.home / "tally", self.home / "record"

    def command(self):
        return [self.recorder, self.disk, self.record, self.tally, *super().command()]

    def tell(self, place, number):
        with self.tally.open("r+b") as file:
            file.seek(place * 8)
            file.write(number.to_bytes(8, "little"))

    def told(self, place):
        return int.from_bytes(self.tally.read_bytes()[place * 8 : place * 8 + 8], "little")

    def kill(self):
        """The node, not its recorder."""
        self.process.send_signal(signal.SIGUSR1)
        self.process.wait()


class Image(Node):
    """A node on what a power cut left."""

    def __init__(self, place):
        super().__init__("--bucket", "default:256", "--journal", "1")
        self.data = Path(place) / "data"


class Life:
    """A node's life, and what became of its files."""

    def __init__(self, recorder, seed, fails):
        self.chance, self.seed, self.fails = random.Random(seed), seed, fails
        self.node, self.truth = Recorded(recorder), Truth()
        self.load = Load(self.node, self.truth, self.chance)
        self.disk, self.read = self.replay(), 0
        self.first = 0

    def replay(self):
        """The disk before anything was done to it."""
        return Disk(self.node.disk, random.Random(self.seed))

    def live(self, rounds):
        """Goes through some starts, each with some rounds."""
        node, chance = self.node, self.chance
        starts = 1 + chance.randrange(3) if not self.fails else 2 + chance.randrange(2)
        for number in range(starts):
            self.start()
            fails = self.load.may_fail = self.fails and number < starts - 1
            if fails:
                node.tell(2, node.told(1) + chance.randrange(5, 120))
                node.tell(3, chance.choice((1, 1, 2, 1_000_000)))
            try:
                self.rounds(rounds)
            except (Closed, OSError):
                assert fails, f"the node closed a connection:\n{node.tail()}"
            node.tell(2, 0)
            self.end(kill=number < starts - 1 and chance.random() < 0.7 or fails and chance.random() < 0.5)

    def start(self):
        self.node.ports = {}
        wait_for(self.node)
        self.first = self.first or self.node.told(0)
        self.load.read_all()

    def rounds(self, count):
        connection, chance, load = connect(self.node), self.chance, self.load
        load.refused = failed = 0
        for _ in range(count):
            failed += load.round(connection) == 0
            if failed > (0 if load.may_fail else 2):
                break
            if load.refused or chance.random() < 0.7:
                continue
            chance.choice((lambda: load.remove_vbucket(connection), load.toggle_scope, load.toggle_bucket))()
        connection.close()

    def end(self, kill):
        """Ends the node; takes in what the record says, and what it does not."""
        if kill:
            self.node.kill()
        else:
            self.node.process.send_signal(signal.SIGTERM)
            self.node.process.wait(60)
        for self.read, one in records(self.node.record, self.read):
            self.disk.apply(*one)
        with self.node.record.open("ab") as file:
            for one in self.disk.complete():
                file.write(record(*one))
                self.node.tell(0, self.node.told(0) + 1)
        self.read = self.node.record.stat().st_size

    def images(self, count, pool, place, report):
        """Builds images at drawn moments and looks at each; `report` takes how that went."""
        total, disk = self.node.told(0), self.replay()
        moments = sorted(self.chance.randrange(self.first if self.chance.random() < 0.9 else 1, total + 1)
                         for _ in range(count))  # fmt: skip
        waiting = []
        for number, (_, one) in enumerate(records(self.node.record), 1):
            if not moments:
                break
            disk.apply(*one)
            while moments and moments[0] == number:
                moments.pop(0)
                how, to = self.chance.choice(KINDS), Path(place) / f"{self.seed}-{number}-{len(moments)}"
                disk.image(to, how, self.chance)
                waiting.append(pool.submit(look, to, self.truth, number, (how, self.seed), report))
                if len(waiting) > 2 * WORKERS:
                    waiting.pop(0).result()
        for one in waiting:
            one.result()


def wait_for(node):
    """Starts a node, however slow the machine is."""
    node.start(120)
    url = f"http://127.0.0.1:{node.ports['http']}/readyz"
    eventually("the node is ready", lambda: urllib.request.urlopen(url).status == 200, seconds=120)


def look(place, truth, number, which, report):
    """Starts a node on an image and looks at what it has."""
    node, problem = Image(place), None
    try:
        wait_for(node)
        check_image(node, truth, number)
    except Exception as error:  # noqa: BLE001 - each image is told by itself
        problem = f"{which}, record {number}, {place}: {type(error).__name__}: {error}\n{node.tail(8)}"
    if node.alive():
        node.kill()
    shutil.rmtree(node.home, ignore_errors=True)
    if not (problem and asked.keep):
        shutil.rmtree(place, ignore_errors=True)
    report(problem)


class World:
    """The recorder, and a place for images."""

    def __init__(self):
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.place = Path(tempfile.mkdtemp(prefix="settee-images-", dir=shared))
        self.recorder = self.place / "recorder"
        source = Path(__file__).with_name("record.c")
        subprocess.run(["gcc", "-O1", "-o", self.recorder, source], check=True)

    def close(self):
        if not asked.keep:
            shutil.rmtree(self.place, ignore_errors=True)


def draw(world, fails):
    """Lives and images until the time is over."""
    seconds = asked.minutes * 60 or SECONDS
    harness.TEST_SECONDS = 2 * seconds + 300
    harness.faulthandler.dump_traceback_later(harness.TEST_SECONDS, exit=True)
    until, problems, images, lives, failed = time.monotonic() + seconds, [], 0, 0, 0

    def report(problem):
        nonlocal images
        images += 1
        if problem:
            problems.append(problem)
            print(f"     broken: {problem}", flush=True)

    with ThreadPoolExecutor(WORKERS) as pool:
        while (time.monotonic() < until or fails and not failed) and len(problems) < 20:
            life = Life(world.recorder, asked.seed * 1_000_003 + lives, fails)
            try:
                life.live(10 if not asked.minutes else 10 + life.chance.randrange(60))
                failed += life.disk.syncs_failed
                life.images(100 if asked.minutes else 30, pool, world.place, report)
            finally:
                if life.node.alive():
                    life.node.kill()
                shutil.rmtree(life.node.home, ignore_errors=True)
            lives += 1
            if asked.minutes:
                print(f"     {images} images of {lives} lives so far, {len(problems)} broken", flush=True)
    print(f"     {images} images of {lives} lives, {len(problems)} broken; {failed} syncs failed; seed {asked.seed}")
    assert not problems, f"{len(problems)} of {images} images are broken, the first: {problems[0]}"
    assert images > 10, f"{images} images only"
    assert failed > 0 or not fails, "no sync failed"


@suite.test
def a_record_is_completed_with_what_a_kill_hid(world):
    place = world.place / "hidden"
    place.mkdir()
    disk = Disk(place, random.Random(1))

    def make(name, told=True):
        path = place / name
        path.write_bytes(name.encode())
        if told:
            disk.apply("c", str(path), "", path.stat().st_ino, 0, b"")
            disk.apply("w", str(path), "", path.stat().st_ino, 0, name.encode())

    for name in ("stays", "moves", "goes", "is-replaced", "was-removed"):
        make(name)
    # A file system gives the inode of a file that was removed to the next one.
    disk.apply("u", str(place / "was-removed"), "", 0, 0, b"")
    (place / "was-removed").rename(place / "has-its-inode")
    (place / "goes").unlink()
    (place / "moves").rename(place / "is-replaced")
    make("is-new", told=False)

    told = [(operation, os.path.basename(path)) for operation, path, *_ in disk.complete()]
    assert ("r", "moves") in told and ("u", "goes") in told, told
    assert {("c", "has-its-inode"), ("c", "is-new")} <= set(told), told
    disk.image(world.place / "whole", "all", random.Random(1))
    whole = {entry.name: Path(entry).read_bytes() for entry in os.scandir(world.place / "whole")}
    assert whole == {entry.name: Path(entry).read_bytes() for entry in os.scandir(place)}, whole


@suite.test
def a_power_cut_keeps_what_was_durable(world):
    draw(world, False)


@suite.test
def a_power_cut_after_a_failed_sync_and_a_restart_keeps_it_too(world):
    draw(world, True)


if __name__ == "__main__":
    binary()
    suite.main(World())
