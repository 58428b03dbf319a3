"""What is shown once, of a damage that is known: a quarantine and its end, modes of files, limits of memory."""

import contextlib
import os
import re
import shutil

from harm import change, clone
from harness import equal, eventually
from manage import must
from mcbp import GET, NOT_FOUND, SET, SUCCESS, TEMPORARY_FAILURE, collection_key, key_call, vbucket_of
from world import At, connect, value_of

CHECKSUM_MISMATCH, SET_PARAM, FLUSH_PARAM = 0x27, 0x82, b"\0\0\0\1"
MIB = 1 << 20


def damage_a_large_row(world, data, bucket, key, behind=500_000):
    """Changes some bytes of a value that lies apart from its row; returns the names of its files.

    A file that a node removes meanwhile is left out.
    """
    head = value_of(bucket, key, world.buckets[bucket].now[0, key], 0)[4:]
    damaged = []
    for path in sorted((data / "buckets" / bucket).glob("*-*")):
        with contextlib.suppress(FileNotFoundError):
            # As the row of its key, and as one of the history.
            places = [found.start() for found in re.finditer(re.escape(head), path.read_bytes())]
            if any([change(path, at + behind, b"\xff\x00\xff") for at in places]):
                damaged.append(path.name)
    return damaged


def names_one(names, line):
    return any(name in line for name in names)


def a_damaged_row_costs_its_vbucket_alone(world, place):
    data = place / "data"
    clone(world.data, data, "buckets/shop/*")
    key = b"large"
    names = damage_a_large_row(world, data, "shop", key)
    vb = vbucket_of(key)
    node = At(data, place / "home").start(120)
    try:
        connection = connect(node, "shop")
        for opcode, extras, value in ((GET, b"", b""), (SET, bytes(8), b"1")):
            reply = key_call(connection, opcode, collection_key(0, key), extras, value, vbucket=vb)
            equal(reply.status, CHECKSUM_MISMATCH, "status in quarantine")
            for word in ("settee salvage", "row "):
                assert word in reply.value.decode(), (word, reply.value)
            assert names_one(names, reply.value.decode()), (names, reply.value)
        rows = connection.stats("vbucket-details")
        equal(rows[f"vb_{vb}"], "quarantined")
        assert names_one(names, rows[f"vb_{vb}:quarantine_reason"]), rows[f"vb_{vb}:quarantine_reason"]
        equal(connection.stats()["ep_vb_quarantined"], "1")
        told = [line for line in node.told().splitlines() if " ERROR " in line]
        for word in ('bucket="shop"', f"vb={vb} ", "settee salvage"):
            assert any(word in line for line in told), (word, told)
        assert any(names_one(names, line) for line in told), (names, told)
        others = [k for (c, k), v in world.buckets["shop"].now.items() if c == 0 and vbucket_of(k) != vb]
        for other in others[:50]:
            equal(key_call(connection, GET, collection_key(0, other), vbucket=vbucket_of(other)).status, SUCCESS)
        must(node, "POST", "/pools/default/buckets/shop/controller/doFlush")
        equal(key_call(connection, SET, collection_key(0, key), bytes(8), b"1", vbucket=vb).status, SUCCESS)
        equal(connection.stats()["ep_vb_quarantined"], "0")
        must(node, "DELETE", "/pools/default/buckets/shop")
        assert not (data / "buckets" / "shop").exists(), "the bucket was dropped"
        node.stop()
    finally:
        node.discard()


def with_full_eviction_a_damaged_row_costs_its_reads_alone(world, place):
    """A start does not read documents, so a vBucket with a damaged one is served."""
    data = place / "full"
    clone(world.data, data, "buckets/full/*")
    # The oldest one: the end of a log that was acknowledged must be whole.
    key, *others = [k for (c, k) in world.buckets["full"].now if c == 0]
    names = damage_a_large_row(world, data, "full", key, 6_000)
    node = At(data, place / "home-full").start(120)
    try:
        connection = connect(node, "full")
        for opcode, extras, value in ((GET, b"", b""), (SET, bytes(8), b"1")):
            reply = key_call(connection, opcode, collection_key(0, key), extras, value, vbucket=vbucket_of(key))
            equal(reply.status, TEMPORARY_FAILURE, "a row that cannot be read")
            assert "could not be read" in reply.value.decode(), reply.value
        for other in others[:50]:
            equal(key_call(connection, GET, collection_key(0, other), vbucket=vbucket_of(other)).status, SUCCESS)
        equal(connection.stats()["ep_vb_quarantined"], "0")
        named = [line for line in node.told().splitlines() if " ERROR " in line and "a damaged row" in line]
        equal(len(named), 1, "lines that name row and file")
        assert names_one(names, named[0]), (names, named)
        node.stop()
    finally:
        node.discard()


def damage_met_by_a_read_names_its_file(world, place):
    data = place / "read"
    clone(world.data, data, "buckets/default/*")
    node = At(data, place / "home-read").start(120)
    try:
        key, names = b"large0", []
        connection = connect(node, "default")
        for mark, low in ((b"mem_low_wat", b"1000000"), (b"mem_high_wat", b"2000000")):
            equal(key_call(connection, SET_PARAM, mark, FLUSH_PARAM, low).status, SUCCESS, mark)

        def get(one):
            return key_call(connection, GET, collection_key(0, one), vbucket=vbucket_of(one)).status

        def has_left():
            rows = connection.stats("vbucket-details")
            items, away = (int(rows[f"vb_{vbucket_of(key)}:{field}"]) for field in ("num_items", "num_non_resident"))
            return items == away

        def is_refused():
            """A merge may have moved the row before its file was damaged: then the read finds it whole."""
            names.extend(damage_a_large_row(world, data, "default", key))
            eventually("the value leaves memory", has_left, 60)
            return get(key) not in (SUCCESS, NOT_FOUND)

        eventually("a read meets the damage", is_refused, 120)
        for _ in range(2):
            assert get(key) not in (SUCCESS, NOT_FOUND)
        named = [line for line in node.told().splitlines() if " ERROR " in line and "a damaged row" in line]
        equal(len(named), 1, "lines that name row and file")
        assert names_one(names, named[0]), (names, named)
        for word in ('bucket="default"', f"vb={vbucket_of(key)} ", "settee salvage", "row "):
            assert word in named[0], (word, named)
        node.stop()
    finally:
        node.discard()


def all_files_are_for_their_user_alone(world, place):
    for folder, _, names in os.walk(world.data):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            mode = os.stat(path).st_mode & 0o777
            private = mode & 0o077 == 0 or path.endswith("/tls/ca.pem")
            assert private, f"{path} has mode {mode:o}"


def a_limit_of_memory_is_told(world, place):
    for mib in (120, 156, 174, 200, 288, 300, 366, 900):
        node = At(place / f"data{mib}", place / f"home{mib}")
        command = node.command
        node.command = lambda: ["prlimit", f"--as={mib * MIB}", *command()]
        try:
            node.start(60)
        except AssertionError:
            assert node.process.returncode not in (None, 0), f"{mib} MiB: it neither serves nor ends"
            told = node.told()
            words = "ulimit -v" in told or re.search(r"memory allocation of \d+ bytes failed", told)
            assert words, (mib, node.process.returncode, told[-600:])
        else:
            assert "ulimit -v" in node.told(), (mib, node.told()[-600:])
        finally:
            node.discard()


STORIES = (
    a_damaged_row_costs_its_vbucket_alone,
    with_full_eviction_a_damaged_row_costs_its_reads_alone,
    damage_met_by_a_read_names_its_file,
    all_files_are_for_their_user_alone,
    a_limit_of_memory_is_told,
)


def tell(world, place):
    """Tells all of them; returns how many went wrong."""
    failed = 0
    for story in STORIES:
        home = place / story.__name__
        home.mkdir()
        try:
            story(world, home)
        except Exception as error:  # noqa: BLE001 - one that fails does not stop the others
            failed += 1
            print(f"FAIL damage: {story.__name__}: {type(error).__name__}: {str(error)[:900]}")
        else:
            print(f"ok   damage: {story.__name__}")
        shutil.rmtree(home, ignore_errors=True)
    return failed
