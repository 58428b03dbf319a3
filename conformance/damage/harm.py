"""One damage to one place of one file."""

import fnmatch
import os
import re
import shutil

from world import copy_sparse, runs

PAGE = 4096
# Where a manifest names the first log of which not all is in runs.
MANIFEST_FIRST_LOG = 88
# What files are called in verdicts; the first that matches.
KINDS = [
    ("node.json", r"node\.json$"),
    ("tls", r"tls/"),
    ("log", r"/log-\d+$"),
    ("run", r"/run-\d+$"),
    ("values", r"/values-\d+$"),
    ("manifest", r"/MANIFEST$"),
    ("tail", r"/TAIL$"),
    ("lock", r"/LOCK$"),
    ("", r""),
]


def files_of(data):
    """Every file below a data directory, by its kind: kind to paths, both sorted."""
    found = {}
    for folder, _, names in os.walk(data):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), data)
            kind = next(kind or name for kind, pattern in KINDS if re.search(pattern, path))
            if kind == "log" and is_flushed(data, path):
                kind = "log of values"
            found.setdefault(kind, []).append(path)
    return {kind: sorted(found[kind]) for kind in sorted(found)}


def is_flushed(data, path):
    """Whether all rows of a log are in runs: it is there for values that they refer to."""
    folder, _, number = os.path.join(data, path).rpartition("/log-")
    try:
        with open(os.path.join(folder, "MANIFEST"), "rb") as manifest:
            manifest.seek(MANIFEST_FIRST_LOG)
            return int(number) < int.from_bytes(manifest.read(8), "big")
    except OSError:
        return False


def clone(data, to, damaged):
    """Copies a data directory cheaply: what is never written again in its place is linked.

    What the pattern `damaged` matches is a copy, whatever it is.
    """
    for folder, _, names in os.walk(data):
        below = os.path.relpath(folder, data)
        os.makedirs(os.path.join(to, below), exist_ok=True)
        shutil.copystat(folder, os.path.join(to, below))
        for name in names:
            path = os.path.normpath(os.path.join(below, name))
            source, target = os.path.join(folder, name), os.path.join(to, path)
            if not fnmatch.fnmatch(path, damaged) and re.search(r"/(run|values)-\d+$", path):
                os.link(source, target)
            else:
                copy_sparse(source, target)


def place_in(path, chance):
    """A random place among the bytes that a file has, holes left out; None when it has none."""
    with open(path, "rb") as file:
        parts = list(runs(file.fileno(), os.fstat(file.fileno()).st_size))
    total = sum(end - start for start, end in parts)
    if not total:
        return None
    # Half of the damages near the ends, where small headers and trailers are.
    at = chance.randrange(total)
    if chance.random() < 0.25:
        at = min(at, chance.randrange(1, 4096), total - 1)
    elif chance.random() < 0.25:
        at = max(total - chance.randrange(1, 4096), 0)
    for start, end in parts:
        if at < end - start:
            return start + at
        at -= end - start
    return None


def change(path, at, new):
    """Writes bytes over what is there, within the file; tells whether that changed anything."""
    size = os.path.getsize(path)
    new = new[: size - at]
    with open(path, "r+b") as file:
        file.seek(at)
        before = file.read(len(new))
        file.seek(at)
        file.write(new)
    return before != new


def harm(data, path, older, chance):
    """Does one random damage to a file; returns what it was, or None when it changed nothing."""
    file = os.path.join(data, path)
    size = os.path.getsize(file)
    kind = chance.choice(("bit", "bit", "byte", "page", "cut", "empty", "delete", "garbage", "older"))
    at = place_in(file, chance)
    if kind == "delete":
        os.remove(file)
        return "deleted"
    if kind == "older":
        before = os.path.join(older, path)
        if not os.path.exists(before) or same(before, file):
            return None
        copy_sparse(before, file)
        return "as it was at an earlier stop"
    if kind == "empty":
        os.truncate(file, 0)
        return "emptied" if size else None
    if at is None:
        return None
    if kind == "cut":
        os.truncate(file, at)
        return f"cut from {size} to {at} bytes"
    if kind == "page":
        start = at - at % PAGE
        return f"zeros from {start} to {start + PAGE}" if change(file, start, bytes(PAGE)) else None
    if kind == "garbage":
        length = chance.choice((8, 64, 512, 4096))
        return f"{length} random bytes at {at}" if change(file, at, chance.randbytes(length)) else None
    with open(file, "rb") as read:
        read.seek(at)
        was = read.read(1)[0]
    if kind == "bit":
        bit = chance.randrange(8)
        change(file, at, bytes([was ^ 1 << bit]))
        return f"bit {bit} of byte {at} flipped"
    now = chance.choice([value for value in (0, 1, 0x30, 0x31, 0xFF, chance.randrange(256)) if value != was])
    change(file, at, bytes([now]))
    return f"byte {at} set from {was:#x} to {now:#x}"


def same(one, other):
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        while block := first.read(1 << 20):
            if second.read(1 << 20) != block:
                return False
    return True
