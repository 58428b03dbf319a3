"""One damaged place in one file of a data directory: nothing that is missing is missing unsaid.

A data directory is made by a node as users run one (see world.py). Each damage is done to a copy of it: one bit,
byte, page or run of bytes of one file, or the file is cut, emptied, deleted, or as it was at an earlier stop. Then a node
starts on it, and everything is read. What may come of it:

  ok       everything is there
  told     the node refuses to start with a documented exit code and a line that names the damaged file or store, or it
           starts and a line of its log names the bucket and the vBucket or file of each difference

and what may not:

  silent     something is missing or older, and no line tells
  invented   something is there that was never written
  destroyed  a file is gone or changed after a refusal
  nameless   the refusal does not name the damaged file
  broken     the node crashed, hangs, or ended with an exit code that is not documented

After some refusals `settee salvage` copies what it can, and a node serves the copy.

usage: suite.py [--seed N] [--count N] [--minutes N] [--only KIND] [--keep]
"""

import argparse
import collections
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import stories
from harm import clone, files_of, harm
from harness import binary, finished
from world import BUCKETS, LIVES, At, World, copy_sparse

DEFAULT_SEED = 18
START_SECONDS = 120
# After every second refusal the damage is mended, or what can be read is copied, in turn.
FOLLOW_EVERY = 2
# EX_DATAERR, EX_UNAVAILABLE, EX_OSERR, EX_CANTCREAT, EX_CONFIG.
DATA, REFUSALS = 65, {65, 69, 71, 73, 78}
BAD = ("silent", "invented", "destroyed", "nameless", "broken")


class Verdict:
    """What came of a damage; the worst counts."""

    def __init__(self):
        self.kind = "ok"
        self.lines = []

    def add(self, kind, line):
        order = ("ok", "told", *BAD)
        if order.index(kind) > order.index(self.kind):
            self.kind = kind
        self.lines.append(f"{kind}: {line}")


def listing(data):
    """Every file with a checksum of what is in it."""
    found = {}
    for folder, _, names in os.walk(data):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, data)] = checksum(path)
    return found


def checksum(path):
    if not os.path.exists(path):
        return None
    digest = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def may_change(path):
    """Whether a start may take a file of an undamaged store away, or replace it, before it is refused: stores that were
    opened work on. That nothing is missing without it is looked at when the damage is mended.
    """
    return bool(re.search(r"^buckets/[^/]+/(LOCK|TAIL|MANIFEST|(log|run|values)-\d+)$", path))


def lines_that_tell(text):
    return [line for line in text.splitlines() if " ERROR " in line or " WARN " in line or line.startswith("settee: ")]


class Case:
    """One damage and what a node makes of it."""

    def __init__(self, world, place, path):
        self.world, self.place, self.path = world, place, path
        self.data = place / "data"
        clone(world.data, self.data, path)
        self.verdict = Verdict()

    def judge(self):
        """Starts a node on what is there; tells whether it served."""
        before = {**self.world.listing, self.path: checksum(self.data / self.path)}
        node = At(self.data, self.place / "home")
        try:
            node.start(START_SECONDS)
            self.compare(node)
            self.lines = lines_that_tell(node.told())
            return True
        except AssertionError as error:
            if node.alive() or node.process is None:
                self.verdict.add("broken", str(error))
                return False
            self.refused(node, before)
            return False
        except (OSError, Exception) as error:  # noqa: BLE001 - a node that ends while it is asked
            self.verdict.add("broken", f"{type(error).__name__}: {error}: {node.tail(5)}")
            return False
        finally:
            node.discard()

    def refused(self, node, before):
        code = node.process.returncode
        lines = lines_that_tell(node.told())
        last = lines[-1] if lines else node.tail(3)
        if code not in REFUSALS:
            return self.verdict.add("broken", f"exit code {code}: {last}")
        self.verdict.add("told", f"exit code {code}: {last}")
        if not any(self.names(line) for line in lines):
            self.verdict.add("nameless", last)
        after = listing(self.data)
        store = "/".join(self.path.split("/")[:2]) + "/"
        for path, digest in before.items():
            if digest is None or not path.startswith(store) and may_change(path):
                continue
            if path not in after:
                self.verdict.add("destroyed", f"{path} is gone")
            elif after[path] != digest:
                self.verdict.add("destroyed", f"{path} is another one")

    def names(self, line):
        """Whether a line names the damaged file, or what holds it."""
        store, _, name = self.path.rpartition("/")
        return self.path in line or (store != "" and os.path.join(self.data, store) in line and name in line)

    def compare(self, node):
        truth, found = self.world.truth, self.world.look(node)
        lines = lines_that_tell(node.told())

        def differs(what, *words):
            """A difference, which a line must tell that has one word of each of `words`."""
            for line in lines:
                if all(any(word in line for word in either) for either in words):
                    return self.verdict.add("told", f"{what}: {line}")
            return self.verdict.add("silent", what)

        for name in ("node", "buckets"):
            if truth[name] != found[name]:
                differs(f"{name}: {found[name]}", ("node.json",))
        if truth["authority"] != found["authority"]:
            differs(f"authority: {found['authority']}", ("tls/",))
        for bucket in BUCKETS:
            if bucket not in found["settings"]:
                continue
            # A line about several buckets has their names.
            of_names = (f'names="{bucket}', f", {bucket}")
            of_bucket = (f'bucket="{bucket}"', f"buckets/{bucket}", f"bucket={bucket}", *of_names)
            for name, value in truth["settings"][bucket].items():
                now = found["settings"][bucket]
                now = now.get(name) if isinstance(now, dict) else now
                if now != value:
                    differs(f"{bucket}: {name}: {now}", (*of_bucket, "node.json"))
            self.compare_documents(bucket, of_bucket, found["documents"][bucket], differs)

    def compare_documents(self, bucket, of_bucket, found, differs):
        documents, vbuckets = self.world.truth["documents"][bucket]
        known = self.world.buckets[bucket]
        from mcbp import vbucket_of

        for key, value in documents.items():
            now = found[0][key]
            if now == value:
                continue
            vb = vbucket_of(key[1])
            of_vb = (f"vb={vb} ", f"vb_{vb}:", f"vb_{vb})", self.path)
            if isinstance(now, tuple) and (now[0] is None or now[0] > known.version):
                self.verdict.add("invented", f"{bucket}: {key}: {now}")
            differs(f"{bucket}: {key} (vb {vb}): {now} instead of {value}", of_bucket, of_vb)
        for vb, fields in vbuckets.items():
            now = found[1].get(vb)
            if now != fields:
                of_vb = (f"vb={vb} ", f"vb_{vb}:", f"vb_{vb})", self.path)
                only_uuid = now and {**now, "uuid": 0} == {**fields, "uuid": 0}
                words = (of_bucket,) if only_uuid else (of_bucket, of_vb)
                differs(f"{bucket}: vb {vb}: {now} instead of {fields}", *words)


def mend(case):
    """Puts the file back as it was: everything must be there, so the refused start took nothing away."""
    copy_sparse(case.world.data / case.path, case.data / case.path)
    node = At(case.data, case.place / "home2")
    try:
        node.start(START_SECONDS)
        found = case.world.look(node)
        lines = lines_that_tell(node.told())
        if {**found, "authority": True} != case.world.truth or lines:
            case.verdict.add("destroyed", f"with the file mended not all is there: {lines}")
    except Exception as error:  # noqa: BLE001 - told
        case.verdict.add("destroyed", f"with the file mended: {error}")
    finally:
        node.discard()


def salvage(case):
    """Copies what can be read, and looks whether what is missing then is told."""
    to = case.place / "salvaged"
    done = finished([binary(), "salvage", "--data-dir", case.data, "--to", to], seconds=300)
    told = done.stdout + done.stderr
    if done.returncode not in (0, DATA):
        return case.verdict.add("broken", f"salvage ended with {done.returncode}: {told}")
    verdict = case.verdict
    node = At(to, case.place / "home2")
    try:
        node.start(START_SECONDS)
        found = case.world.look(node)
    except Exception as error:  # noqa: BLE001 - told
        return verdict.add("broken", f"the salvaged copy (exit {done.returncode}): {error}: {told}")
    finally:
        node.discard()
    truth = case.world.truth
    for name, file in (("node", "node.json"), ("authority", "authority")):
        if found[name] != truth[name] and file not in told:
            verdict.add("silent", f"salvage: {name}: {found[name]}")
    for bucket in BUCKETS:
        if bucket not in found["settings"]:
            if done.returncode == 0 or (bucket not in told and "node.json" not in told):
                verdict.add("silent", f"salvage: bucket {bucket} is not served")
            continue
        now = found["settings"][bucket]
        for name, value in truth["settings"][bucket].items():
            if now.get(name) != value and (done.returncode == 0 or not ("node.json" in told or bucket in told)):
                verdict.add("silent", f"salvage: {bucket}: {name}: {now.get(name)} instead of {value}")
        for key, value in truth["documents"][bucket][0].items():
            seen = found["documents"][bucket][0][key]
            if seen != value and (done.returncode == 0 or f"{bucket}: " not in told):
                verdict.add("silent", f"salvage: {bucket}: {key}: {seen} instead of {value}")
            if isinstance(seen, tuple) and seen[0] is None:
                verdict.add("invented", f"salvage: {bucket}: {key}: {seen}")
    return None


def run(world, place, options):
    """Damages one after the other; returns how many there were of each verdict."""
    kinds = files_of(world.data)
    if options.only:
        kinds = {kind: paths for kind, paths in kinds.items() if options.only in kind}
    until = time.monotonic() + options.minutes * 60 if options.minutes else None
    counts, number, refused = collections.Counter(), 0, 0
    by_kind = collections.defaultdict(collections.Counter)
    while (number < options.count) if until is None else (time.monotonic() < until):
        # Each damage has a seed of its own, so that one can be made again alone.
        seed = options.seed * 1_000_000 + options.first + number
        number += 1
        chance = random.Random(seed)
        kind = chance.choice(list(kinds))
        path = chance.choice(kinds[kind])
        home = place / f"case-{number}"
        home.mkdir()
        case = Case(world, home, path)
        what = harm(case.data, path, world.older, chance)
        if what is None:
            shutil.rmtree(home)
            continue
        served = case.judge()
        if not served and case.verdict.kind == "told":
            refused += 1
            if refused % FOLLOW_EVERY == 0:
                (salvage if refused % (2 * FOLLOW_EVERY) else mend)(case)
        counts[case.verdict.kind] += 1
        by_kind[kind][case.verdict.kind] += 1
        bad = case.verdict.kind in BAD
        if bad or options.verbose:
            print(f"{'FAIL' if bad else 'ok  '} damage: {number} ({case.verdict.kind}): {path} {what}")
            for line in case.verdict.lines[:6]:
                print(f"     {line[:600]}")
        if not (bad and options.keep):
            shutil.rmtree(home)
    for kind, found in by_kind.items():
        print(f"     {kind}: " + ", ".join(f"{count} {name}" for name, count in sorted(found.items())))
    return counts


def main():
    parser = argparse.ArgumentParser(description="one damaged place in one file")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--first", type=int, default=0, help="number of the first damage")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--only", default="", help="kinds of files that have this in their name")
    parser.add_argument("--keep", action="store_true", help="keep what went wrong")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="settee-conformance-damage-", dir=in_memory))
    print(f"damage: seed {options.seed}, in {place}")
    try:
        started = time.monotonic()
        world = World(place)
        world.listing = listing(world.data)
        kinds = files_of(world.data)
        print(f"damage: {LIVES} lives made it in {time.monotonic() - started:.0f} s: "
              + ", ".join(f"{len(paths)} {kind}" for kind, paths in kinds.items()))  # fmt: skip
        wrong = stories.tell(world, place) if options.first == 0 and not options.only else 0
        counts = run(world, place, options)
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
    failed = sum(counts[kind] for kind in BAD) + wrong
    total = sum(counts.values()) + wrong
    print("damage: " + ", ".join(f"{counts[kind]} {kind}" for kind in ("ok", "told", *BAD)))
    print(f"{total - failed} passed, {failed} failed", flush=True)
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
