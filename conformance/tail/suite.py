"""Change streams for people: `settee tail` and HTTP, also when they or their node are killed.

What it writes is replayed into a view, and the view is compared with what the node holds.
"""

import http.client
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from base64 import b64decode, b64encode, urlsafe_b64encode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, Suite, begun, binary, equal, eventually, finished
from manage import must
from mcbp import DELETE, GET, NOT_FOUND, SET, SUCCESS, Closed, Connection, key_call, vbucket_of
from pair import stats

suite = Suite("tail")

USAGE, DATA, NO_INPUT, UNAVAILABLE = 64, 65, 66, 69
PATIENCE = 40


class World:
    """One node for all tests; each test has keys of its own."""

    def __init__(self):
        self.seed = int(os.environ.get("SETTEE_SEED", "1"))
        print(f"SETTEE_SEED={self.seed}")
        self.random = random.Random(self.seed)
        self.node = Node().start().ready()
        self.home = Path(tempfile.mkdtemp(prefix="settee-conformance-tail-"))
        self.files = 0

    @property
    def at(self):
        return ["--connect", self.node.address]

    def file(self):
        self.files += 1
        return self.home / f"file-{self.files}"

    def close(self):
        self.node.close()
        shutil.rmtree(self.home, ignore_errors=True)


def run(world, *arguments):
    """Runs a tail to its end; returns exit code, lines and standard error."""
    ran = finished([binary(), "tail", *([] if "--connect" in arguments else world.at), *arguments])
    return ran.returncode, ran.stdout.splitlines(), ran.stderr


class Tail:
    """A tail in the background; its lines go to a file, which outlives it."""

    def __init__(self, world, *arguments, out=None):
        self.out = out or world.file()
        with self.out.open("ab") as lines:
            self.process = begun([binary(), "tail", *world.at, *arguments], stdout=lines, stderr=subprocess.PIPE)

    def lines(self):
        """Whole lines so far; a kill may have cut the last one."""
        text = self.out.read_bytes()
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        equal(self.process.wait(PATIENCE), 0, f"exit code ({self.process.stderr.read()})")

    def kill(self):
        self.process.kill()
        self.process.wait()
        # What a kill cut off is told again.
        text = self.out.read_bytes()
        self.out.write_bytes(text[: text.rfind(b"\n") + 1])


def key_of(line):
    return line["key"].encode() if "key" in line else b64decode(line["key_base64"])


def view(lines, prefix=b"", repeats=True):
    """What the lines come to: the last line of each key. Seqnos ascend, but for what is told again
    after a kill."""
    history = {}
    for line in lines:
        changes = history.setdefault(line["vb"], [])
        if line["event"] == "rollback":
            changes[:] = [known for known in changes if known["seqno"] <= line["seqno"]]
            continue
        if changes and line["seqno"] <= changes[-1]["seqno"]:
            assert repeats, f"repeated: {line} after {changes[-1]}"
            known = [told for told in changes if told["seqno"] == line["seqno"]]
            assert known == [] or known == [line], f"told in two ways: {known} and {line}"
            if known:
                continue
        changes.append(line)
    last = {}
    for changes in history.values():
        for line in sorted(changes, key=lambda line: line["seqno"]):
            if key_of(line).startswith(prefix):
                last[key_of(line)] = line
    return last


class Load:
    """Writes and deletes from one thread until it is told to stop, or the node goes away."""

    def __init__(self, world, prefix, keys=2000, pause=0.0):
        self.prefix, self.keys, self.pause = prefix, keys, pause
        self.random = random.Random(world.seed)
        self.port = world.node.kv
        self.count, self.confirmed, self.ending = 0, {}, False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        connection = Connection(self.port).login()
        connection.hello(0x04)
        try:
            while not self.ending:
                key = b"%s-%d" % (self.prefix, self.random.randrange(self.keys))
                value = b'{"n":%d}' % self.random.getrandbits(60)
                if self.random.random() < 0.15 and self.confirmed.get(key):
                    reply, value = key_call(connection, DELETE, key), None
                else:
                    reply = key_call(connection, SET, key, bytes(8), value)
                equal(reply.status, SUCCESS, "status")
                self.confirmed[key] = value
                self.count += 1
                time.sleep(self.pause)
        except Closed:
            pass

    def reach(self, count):
        eventually(f"{count} writes", lambda: self.count >= count, PATIENCE)
        return self

    def stop(self):
        self.ending = True
        self.thread.join()
        return self


def same(told, confirmed):
    """Compares a view with what the node confirmed."""
    for key, value in confirmed.items():
        assert key in told, f"{key} is missing"
        line = told[key]
        equal(line["event"] == "deletion", value is None, f"{key} deleted")
        if value is not None:
            equal(line["value"], json.loads(value), f"{key}")


def same_as_node(world, told):
    """Compares a view with what the node holds."""
    connection = Connection(world.node.kv).login()
    for key, line in told.items():
        reply = key_call(connection, GET, key)
        if line["event"] == "mutation":
            equal((reply.status, reply.cas), (SUCCESS, int(line["cas"])), f"{key}")
        else:
            equal(reply.status, NOT_FOUND, f"{key}, deleted in the view")
    connection.close()


@suite.test
def tells_what_there_is_and_ends(world):
    connection = Connection(world.node.kv).login()
    documents = {
        b"there-json": (b'{ "a" : [1.50,\n 12345678901234567890] }', "value", {"a": [1.50, 12345678901234567890]}),
        b"there-text": ("caf\u00e9".encode(), "value", "caf\u00e9"),
        b"there-bytes": (b"\xff\xfe", "value_base64", "//4="),
        b"there-\xff": (b"1", "value", 1),
    }
    stored = {}
    for key, (value, _, _) in documents.items():
        reply = key_call(connection, SET, key, struct.pack(">II", 0x2000006, 2_000_000_000), value)
        equal(reply.status, SUCCESS)
        stored[key] = reply.cas
    equal(key_call(connection, SET, b"there-gone", bytes(8), b"1").status, SUCCESS)
    equal(key_call(connection, DELETE, b"there-gone").status, SUCCESS)
    code, lines, err = run(world, "--from", "beginning", "--until-now")
    equal(code, 0, f"exit code ({err})")
    told = view(map(json.loads, lines), b"there-", repeats=False)
    equal(set(told), {*documents, b"there-gone"}, "keys")
    equal(told[b"there-gone"]["event"], "deletion")
    assert "value" not in told[b"there-gone"]
    for key, (_, member, value) in documents.items():
        line = told[key]
        equal((line["event"], line[member]), ("mutation", value), f"{key}")
        equal((line["cas"], line["flags"], line["expiry"]), (str(stored[key]), 0x2000006, 2_000_000_000))
        equal((line["scope"], line["collection"], line["rev"]), ("_default", "_default", 1))
    code, lines, err = run(world, "default._default._default", "--from", "beginning", "--until-now")
    equal((code, view(map(json.loads, lines), b"there-") == told), (0, True), f"of the collection ({err})")
    equal(run(world, "--until-now")[:2], (0, []), "from now until now")
    connection.close()


@suite.test
def follows_what_happens_from_now_on(world):
    connection = Connection(world.node.kv).login()
    tail = Tail(world)
    numbers = iter(range(1_000_000))

    def write():
        key = b"now-%d" % next(numbers)
        equal(key_call(connection, SET, key, bytes(8), b"1").status, SUCCESS)
        return key

    # The streams begin at some moment before the first line: nothing after it is left out. Streams of
    # different vBuckets tell their changes in any order.
    eventually("the first line", lambda: write() and tail.lines(), PATIENCE)
    wanted = {write() for _ in range(100)}
    eventually("each key", lambda: wanted <= set(view(tail.lines())), PATIENCE)
    tail.interrupt()
    connection.close()


@suite.test
def tells_keys_only_to_who_wants_it_so(world):
    connection = Connection(world.node.kv).login()
    equal(key_call(connection, SET, b"only-key", bytes(8), b"unseen").status, SUCCESS)
    connection.close()
    code, lines, err = run(world, "--from", "beginning", "--until-now", "--keys-only")
    equal(code, 0, err)
    told = [json.loads(line) for line in lines]
    events = Events(world, "?since=beginning&keys=only")
    events.read(lambda e: "only-key" in e.keys)
    for told in told, events.lines + events.unnamed:
        line = next(line for line in told if line.get("key") == "only-key")
        equal((line["event"], "value" in line), ("mutation", False))
        assert not any("value" in line or "value_base64" in line for line in told), told
    events.close()
    equal(http_status(world, query="?keys=some"), 400, "no such form")


@suite.test
def tells_expirations(world):
    connection = Connection(world.node.kv).login()
    equal(key_call(connection, SET, b"expiring", struct.pack(">II", 0, 1), b"1").status, SUCCESS)
    eventually("it expires", lambda: key_call(connection, GET, b"expiring").status == NOT_FOUND, PATIENCE)
    code, lines, err = run(world, "--from", "beginning", "--until-now")
    equal(code, 0, err)
    line = view(map(json.loads, lines))[b"expiring"]
    equal(line["event"], "expiration")
    assert abs(line["delete_time"] - time.time()) < 3600, line
    connection.close()


@suite.test
def goes_on_from_its_state_without_a_repeat(world):
    state, out = world.file(), world.file()
    load = Load(world, b"state", pause=0.0005)
    for round_number in range(3):
        tail = Tail(world, "--from", "beginning", "--state", str(state), out=out)
        load.reach(load.count + 300)
        tail.interrupt()
        load.reach(load.count + 100)
    load.stop()
    code, lines, err = run(world, "--state", str(state), "--until-now")
    equal(code, 0, err)
    lines = tail.lines() + [json.loads(line) for line in lines]
    same(view(lines, b"state-", repeats=False), load.confirmed)
    equal(run(world, "--state", str(state), "--until-now")[:2], (0, []), "nothing is left")


@suite.test
def loses_nothing_when_it_is_killed(world):
    state, out = world.file(), world.file()
    load = Load(world, b"killed")
    for _ in range(10):
        tail = Tail(world, "--from", "beginning", "--state", str(state), out=out)
        size = out.stat().st_size + world.random.randrange(1, 120_000)
        eventually("some lines", lambda: out.stat().st_size >= size, PATIENCE)
        tail.kill()
    load.stop()
    code, lines, err = run(world, "--from", "beginning", "--state", str(state), "--until-now")
    equal(code, 0, err)
    told = view(tail.lines() + [json.loads(line) for line in lines])
    same({key: line for key, line in told.items() if key.startswith(b"killed-")}, load.confirmed)
    same_as_node(world, told)


@suite.test
def outlives_a_restart_of_its_node(world):
    state = world.file()
    load = Load(world, b"restart").reach(500)
    tail = Tail(world, "--from", "beginning", "--state", str(state))
    eventually("some lines", lambda: len(tail.lines()) > 100, PATIENCE)
    load.stop()
    world.node.stop()
    world.node.start().ready()
    more = Load(world, b"restart").reach(500).stop()
    wanted = {**load.confirmed, **more.confirmed}
    last = list(more.confirmed.items())[-1]
    eventually("the last change", lambda: view(tail.lines()).get(last[0]), PATIENCE)
    tail.interrupt()
    code, lines, err = run(world, "--state", str(state), "--until-now")
    equal(code, 0, err)
    same(view(tail.lines() + [json.loads(line) for line in lines], b"restart-", repeats=False), wanted)


@suite.test
def takes_back_what_its_node_lost(world):
    state, out = world.file(), world.file()
    tail = Tail(world, "--from", "beginning", "--state", str(state), out=out)
    for _ in range(10):
        load = Load(world, b"lost")
        size = out.stat().st_size + 40_000
        eventually("lines of the load", lambda: out.stat().st_size >= size, PATIENCE)
        world.node.kill()
        load.stop()
        world.node.start().ready()
    # What the tail has not told yet is what the node holds now.
    time_out = time.monotonic() + PATIENCE
    while True:
        tail_lines = tail.lines()
        code, lines, err = run(world, "--from", "beginning", "--until-now")
        equal(code, 0, err)
        there = view(map(json.loads, lines))
        if view(tail_lines) == there:
            break
        assert time.monotonic() < time_out, difference(view(tail_lines), there)
        time.sleep(0.1)
    same_as_node(world, there)
    tail.interrupt()


def difference(told, there):
    keys = [key for key in {*told, *there} if told.get(key) != there.get(key)]
    return f"{len(keys)} differ, such as {keys[0]}: {told.get(keys[0])} and {there.get(keys[0])}"


@suite.test
def waits_for_whoever_reads_it(world):
    load = Load(world, b"slow", keys=20_000)
    command = [binary(), "tail", *world.at, "--from", "beginning", "--window", "16384"]
    process = begun(command, stdout=subprocess.PIPE)
    first = process.stdout.readline()
    assert json.loads(first), first
    # The pipe is full now or soon; the node's clients do not feel it.
    load.reach(load.count + 3000).stop()
    resident = Path(f"/proc/{process.pid}/status").read_text().split("VmRSS:")[1].split()[0]
    assert int(resident) < 128 * 1024, f"{resident} kB resident"
    last, missing, line = {}, dict(load.confirmed), first
    while missing:
        told = json.loads(line)
        last[key_of(told)] = told
        strike(missing, told)
        line = process.stdout.readline() if missing else b""
    same({key: line for key, line in last.items() if key in load.confirmed}, load.confirmed)
    process.send_signal(signal.SIGINT)
    equal(process.wait(PATIENCE), 0, "exit code")
    process.stdout.close()


def strike(missing, *lines):
    """Takes off what the lines tell as it was confirmed; whether nothing is missing then."""
    for line in lines:
        key = key_of(line)
        if key in missing and told_as(line, missing[key]):
            del missing[key]
    return not missing


def told_as(line, value):
    return line["event"] == "deletion" if value is None else line.get("value") == json.loads(value)


@suite.test
def ends_when_its_reader_is_gone(world):
    command = [binary(), "tail", *world.at, "--from", "beginning"]
    process = begun(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    Load(world, b"gone").reach(200).stop()
    equal(process.wait(PATIENCE), 0, "exit code")
    equal(process.stderr.read(), b"", "standard error")


@suite.test
def counts_and_writes_cloud_events(world):
    state = world.file()
    Load(world, b"event").reach(100).stop()
    first = run(world, "--from", "beginning", "--count", "5", "--format", "cloudevents", "--state", str(state))
    rest = run(world, "--until-now", "--format", "cloudevents", "--state", str(state))
    whole = run(world, "--from", "beginning", "--until-now", "--format", "cloudevents")
    equal((first[0], len(first[1]), rest[0]), (0, 5, 0), f"first ({first[2]}), rest ({rest[2]})")
    events = [json.loads(line) for line in first[1] + rest[1]]
    ids = [event["id"] for event in events]
    equal(len(ids), len(set(ids)), "ids, each once")
    # The later run may leave out what was written over meanwhile.
    missing = {json.loads(line)["id"] for line in whole[1]} - set(ids)
    equal(missing, set(), "ids of the first two runs that are not in the third")
    for event in events:
        equal((event["specversion"], event["source"]), ("1.0", "/buckets/default"))
        assert event["type"].startswith("settee.document."), event


@suite.test
def refuses_what_cannot_be(world):
    other = world.file()
    other.write_text('{"settee_tail":1,"target":"travel","position":"s1.AAAAAAA"}')
    broken = world.file()
    broken.write_text("no state")
    cases = [
        (["a.b.c.d"], USAGE, "BUCKET"),
        (["--from", "yesterday"], USAGE, "beginning"),
        (["--from", "s1.AAAA"], USAGE, "damaged"),
        (["--state", str(other)], USAGE, "travel"),
        (["--state", str(broken)], DATA, "state"),
        (["--state", "/no/such/folder/state", "--until-now"], 73, "/no/such/folder"),
        (["default.nope"], NO_INPUT, "scope"),
        (["default._default.nope"], NO_INPUT, "collection"),
        (["--connect", "memcached://127.0.0.1:1"], USAGE, "memcached"),
        (["--connect", "couchbase://127.0.0.1:1"], UNAVAILABLE, "127.0.0.1:1"),
    ]  # fmt: skip
    for arguments, code, word in cases:
        got, lines, err = run(world, *arguments)
        equal((got, lines), (code, []), f"{arguments} ({err})")
        assert word in err, f"{arguments}: `{word}` is not in `{err}`"


class Events:
    """A client of the HTTP stream; the position is the last id that came, as browsers keep it."""

    def __init__(self, world, query="", headers=None, path="/changes/default", password="password"):
        self.connection = http.client.HTTPConnection("127.0.0.1", world.node.ports["http"], timeout=PATIENCE)
        login = b64encode(f"Administrator:{password}".encode()).decode()
        self.connection.request("GET", path + query, headers={"Authorization": f"Basic {login}", **(headers or {})})
        self.answer = self.connection.getresponse()
        self.id, self.lines, self.unnamed, self.keys, self.newest = None, [], [], set(), None

    def read(self, until):
        """Reads events until the condition holds; lines up to the last id are in `lines`."""
        name, data, position = None, None, None
        while data or position or not until(self):
            line = self.answer.readline().decode()
            assert line, "the stream ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif field == "id":
                position = value
            elif line == "\n":
                if data:
                    equal(name, data["event"], "name of the event")
                    self.unnamed.append(data)
                    self.keys.add(data.get("key"))
                    self.newest = data
                if position:
                    self.id = position
                    self.lines += self.unnamed
                    self.unnamed = []
                name = data = position = None
        return self

    def close(self):
        self.answer.close()
        self.connection.close()


def http_status(world, **how):
    events = Events(world, **how)
    status = events.answer.status
    events.close()
    return status


@suite.test
def streams_over_http_and_resumes(world):
    load = Load(world, b"http", pause=0.0005)
    lines, position = [], None
    for round_number in range(3):
        headers = {"Last-Event-ID": position} if position else {}
        events = Events(world, "?since=beginning", headers)
        equal((events.answer.status, events.answer.getheader("Content-Type")), (200, "text/event-stream"))
        goal = world.random.randrange(200, 600)
        events.read(lambda e: e.id and len(e.lines) + len(e.unnamed) >= goal)
        # What came after the last id comes again.
        lines += events.lines
        position = events.id
        events.close()
    load.stop()
    events = Events(world, "?since=beginning", {"Last-Event-ID": position})
    missing = dict(load.confirmed)
    for line in lines:
        strike(missing, line)
    events.read(lambda e: strike(missing, *filter(None, [e.newest])))
    told = view(lines + events.lines + events.unnamed, repeats=False)
    same({key: line for key, line in told.items() if key.startswith(b"http-")}, load.confirmed)
    events.close()


@suite.test
def waits_for_whoever_reads_over_http(world):
    events = Events(world, "?since=beginning")
    load = Load(world, b"idle", keys=20_000).reach(3000).stop()
    missing = dict(load.confirmed)
    events.read(lambda e: strike(missing, *filter(None, [e.newest])))
    events.close()


@suite.test
def takes_back_over_http_what_its_node_lost(world):
    """A position of a history that the node does not know goes back to the beginning."""
    other = Node().start().ready()
    connection = Connection(other.kv).login()
    for number in range(50):
        equal(key_call(connection, SET, b"other-%d" % number, bytes(8), b"1").status, SUCCESS)
    connection.close()
    there = type("Other", (), {"node": other})
    keys = {f"other-{number}" for number in range(50)}
    events = Events(there, "?since=beginning")
    events.read(lambda e: keys <= e.keys)
    events.read(lambda e: e.id and not e.unnamed)
    position = events.id
    events.close()
    other.close()
    events = Events(world, "", {"Last-Event-ID": position})
    touched = {vbucket_of(key.encode()) for key in keys}
    events.read(lambda e: {line["vb"] for line in e.lines + e.unnamed if line["event"] == "rollback"} >= touched)
    events.close()


@suite.test
def tells_every_version_of_a_bucket_with_history(world):
    """All of them on demand, also from the store; otherwise the newest one at least."""
    bucket = {"name": "past", "ramQuotaMB": "100", "numVBuckets": "128", "storageBackend": "magma"}
    must(world.node, "POST", "/pools/default/buckets", **bucket, historyRetentionSeconds="3600")
    connection = Connection(world.node.kv).login(bucket="past")
    wanted = [str(number).encode() for number in range(50)]
    for value in wanted:
        equal(key_call(connection, SET, b"chair", bytes(8), value, vbucket=vbucket_of(b"chair", 128)).status, SUCCESS)
    connection.close()

    def told(*arguments):
        code, lines, error = run(world, "past", "--from", "beginning", "--until-now", *arguments)
        equal((code, error), (0, ""), "tail")
        return [str(json.loads(line)["value"]).encode() for line in lines]

    equal(told("--all-versions"), wanted, "versions")
    # Without it, changes that are still in memory come as well.
    equal(told()[-1], wanted[-1], "the last one without versions")
    events = Events(world, "?since=beginning&versions=all", path="/changes/past")
    events.read(lambda e: e.id and not e.unnamed and len(e.lines) >= len(wanted))
    equal([str(line["value"]).encode() for line in events.lines], wanted, "versions over HTTP")
    events.close()
    must(world.node, "DELETE", "/pools/default/buckets/past")


@suite.test
def narrows_what_it_streams_over_http(world):
    """By vBucket, scope and collection; a position goes on for the same part."""
    connection = Connection(world.node.kv).login()
    numbers = {}
    for number in range(300):
        key = b"narrow-%d" % number
        equal(key_call(connection, SET, key, bytes(8), b"1").status, SUCCESS)
        numbers.setdefault(vbucket_of(key) < 512, []).append(key.decode())
    events = Events(world, "?since=beginning&scope=_default&collection=_default&vbuckets=0-500,501,502-511")
    feeds = [name for name in stats(world.node, "dcp") if name.startswith("eq_dcpq:http-changes:")]
    assert feeds, "statistics do not list it"
    wanted = set(numbers[True])
    events.read(lambda e: e.id and not e.unnamed and wanted <= e.keys)
    assert all(line["vb"] < 512 for line in events.lines + events.unnamed), "a vBucket that was left out"
    position = events.id
    events.close()
    # Everything from that position: what was left out comes now, and nothing of the rest again.
    events = Events(world, "", {"Last-Event-ID": position})
    wanted = set(numbers[False])
    events.read(lambda e: wanted <= e.keys)
    equal(events.keys & set(numbers[True]), set(), "told again")
    events.close()
    connection.close()


@suite.test
def refuses_over_http_what_cannot_be(world):
    vbuckets = ("", "9-1", "1024", "a", "1,,2")
    for query in (*(f"?vbuckets={text}" for text in vbuckets), "?keys=all", "?versions=1"):
        equal(http_status(world, query=query), 400, query)
    for query in ("?scope=nope", "?scope=_default&collection=nope", "?collection=nope"):
        equal(http_status(world, query=query), 404, query)
    equal(http_status(world, password="wrong"), 401, "a wrong password")
    equal(http_status(world, path="/changes/nope"), 404, "an unknown bucket")
    equal(http_status(world, query="?since=yesterday"), 400, "no position")
    equal(http_status(world, headers={"Last-Event-ID": "s1.AAAA"}), 400, "a damaged position")
    wrong = struct.pack(">B", 0) + struct.pack(">I", zlib.crc32(b"\0"))
    wrong = "s1." + urlsafe_b64encode(wrong).decode().rstrip("=")
    equal(http_status(world, headers={"Last-Event-ID": wrong}), 400, "a position of another bucket")
    streams = []
    while len(streams) < 1000:
        events = Events(world)
        streams.append(events)
        if events.answer.status != 200:
            break
    equal(streams[-1].answer.status, 503, f"stream {len(streams)}")
    for events in streams:
        events.close()
    eventually("there is room again", lambda: http_status(world) == 200, PATIENCE)


if __name__ == "__main__":
    suite.main(World())
