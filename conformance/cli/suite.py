"""The command line as a person meets it: refusals name the key, the value and what is allowed;
a data directory that cannot be opened is left exactly as it was.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from base64 import b64encode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from certificates import client_certificate
from harness import Node, Suite, address, binary, clean_environment, equal, eventually
from manage import BUCKET, call, must
from mcbp import DELETE, GET, NOT_FOUND, SEQNO_PERSISTENCE, SET, SUCCESS, Connection, key_call

suite = Suite("cli")

GET_META, COMPACT_DB = 0xA0, 0xB3

USAGE, DATA, NO_INPUT, UNAVAILABLE, OS, PROTOCOL, NO_ACCESS, CONFIG = 64, 65, 66, 69, 71, 76, 77, 78


class World:
    """A node for the client commands, and a folder for everything else."""

    def __init__(self):
        self.node = Node().start().ready()
        self.home = Path(tempfile.mkdtemp(prefix="settee-conformance-cli-"))

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.home))

    @property
    def connect(self):
        return self.node.address

    def close(self):
        self.node.close()
        shutil.rmtree(self.home, ignore_errors=True)


def run(*arguments, environment=None, stdin="", program=None, user=None):
    """Runs the program to its end; returns exit code, standard output and standard error."""
    ran = subprocess.run(
        [program or binary(), *arguments],
        user=user,
        input=stdin,
        env={**clean_environment(), **(environment or {})},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    return ran.returncode, ran.stdout, ran.stderr


def refused(arguments, codes, *words, **how):
    """The program must not start, and must say why in one line that holds all `words`."""
    code, out, err = run(*arguments, **how)
    told = f"`settee {' '.join(arguments)}`: {code} {err!r}"
    assert code in codes, f"expected exit code {codes}: {told}"
    equal(out, "", f"standard output of {told}")
    equal(len(err.strip().splitlines()), 1, f"lines of {told}")
    for word in words:
        assert word in err, f"`{word}` is not named: {told}"


def serve(world, *flags):
    """A `serve` with a data directory of its own, on free ports unless `flags` say otherwise."""
    ports = [f"{flag}=0" for flag in ("--kv-port", "--http-port") if flag not in flags]
    return ["serve", "--data-dir", str(world.folder()), *ports, *flags]


@suite.test
def tells_about_itself(world):
    for arguments in (["--help"], ["serve", "--help"], ["stat", "--help"], ["bench", "--help"]):
        code, out, _ = run(*arguments)
        equal(code, 0, " ".join(arguments))
        assert "Usage" in out or "usage" in out, out
    code, out, _ = run("--version")
    equal((code, out.startswith("settee ")), (0, True))
    code, out, _ = run("completion", "bash")
    assert code == 0 and "settee" in out, "completion bash"


@suite.test
def refuses_unknown_words(world):
    for arguments in (["frobnicate"], ["serve", "--frobnicate"], ["stat", "--frobnicate"]):
        code, out, err = run(*arguments)
        equal(code, USAGE, f"exit code of {arguments}")
        equal(out, "")
        assert "frobnicate" in err, err


@suite.test
def refuses_bad_flags(world):
    for flag, value in (
        ("--kv-port", "65536"), ("--kv-port", "-1"), ("--kv-port", "abc"), ("--kv-port", ""),
        ("--http-port", "99999"), ("--memcached-port", "x"), ("--listen", "nowhere"),
        ("--threads", "0"), ("--threads", "many"), ("--log-level", "loud"),
        ("--bucket", ""), ("--bucket", "a:b"), ("--bucket", "a:0"), ("--bucket", "a:100:tape"),
        ("--bucket", "a b"), ("--bucket", "a:100:couchbase:x"), ("--bucket", "x" * 101),
        ("--username", ""),
    ):  # fmt: skip
        # With an equals sign, so that a value may begin with a dash.
        arguments = ["serve", "--data-dir", str(world.folder()), f"{flag}={value}"]
        refused(arguments, (USAGE,), flag, value)


@suite.test
def refuses_bad_environment(world):
    arguments = ["serve", "--data-dir", str(world.folder())]
    for key, value in (("SETTEE_KV_PORT", "abc"), ("SETTEE_BUCKET", "a:b"), ("SETTEE_MEMORY", "maybe")):
        refused(arguments, (USAGE, CONFIG), key, value, environment={key: value})


@suite.test
def refuses_bad_files(world):
    file = world.folder() / "settee.toml"
    arguments = ["serve", "--data-dir", str(world.folder()), "--config"]
    for text, words in (
        ("kv-prot = 1\n", ("kv-prot", "kv-port")),
        ('kv-port = "abc"\n', ("kv-port", "abc")),
        ("kv-port = 70000\n", ("kv-port", "70000")),
        ("memory = 7\n", ("memory", "7")),
        ("kv-port = \n", ()),
        ("= = =\n", ()),
    ):
        file.write_text(text)
        refused([*arguments, str(file)], (CONFIG, USAGE, DATA), str(file), *words)
    file.write_bytes(b"\xff\xfe\x00")
    refused([*arguments, str(file)], (66, CONFIG, USAGE, DATA), str(file))
    refused([*arguments, "/no/such/file.toml"], (66, CONFIG, USAGE), "/no/such/file.toml")


@suite.test
def keeps_to_the_loopback_without_a_password(world):
    refused(serve(world, "--listen", "0.0.0.0"), (USAGE, CONFIG), "password", "0.0.0.0")


@suite.test
def prefers_flag_to_environment_to_file(world):
    folder = world.folder()
    file = folder / "settee.toml"
    file.write_text('bucket = ["from-file"]\nusername = "from-file"\n')
    node = Node("--config", str(file), "--bucket", "from-flag")
    try:
        node.start().ready()
        connection = Connection(node.kv).login(user="from-file", bucket="from-flag")
        connection.close()
    finally:
        node.close()


@suite.test
def says_when_it_is_ready(world):
    log = world.node.log.read_text()
    ready = [line for line in log.splitlines() if line.startswith("settee ready ")]
    equal(len(ready), 1, "ready lines")
    for word in (f"kv=127.0.0.1:{world.node.kv}", "http=http://127.0.0.1:", "bucket=default", "data="):
        assert word in ready[0], f"`{word}` is not in `{ready[0]}`"
    equal(set(world.node.ports), {"kv", "http"}, "keys of the ports file")


@suite.test
def quotas_above_the_memory_of_the_machine_are_logged(world):
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for mib, is_logged in ((pages >> 20, True), (200, False)):
        node = Node("--bucket", f"default:{mib}")
        try:
            node.start().ready()
            equal("may need more memory than" in node.log.read_text(), is_logged, f"logged with {mib} MiB")
        finally:
            node.close()


@suite.test
def connections_above_the_limit_are_closed_and_logged(world):
    node = Node()
    command = node.command
    node.command = lambda: ["prlimit", "--nofile=200:200", *command()]
    crowd = []
    try:
        node.start().ready()
        crowd = [socket.create_connection(("127.0.0.1", node.kv)) for _ in range(201)]
        eventually("the refusal is logged", lambda: "too many connections (ulimit -n)" in node.log.read_text())
    finally:
        for one in crowd:
            one.close()
        node.close()


@suite.test
def serves_where_its_output_cannot_be_written(world):
    ports = world.folder() / "ports.json"
    with open("/dev/full", "w") as full:
        arguments = [binary(), *serve(world, "--ports-file", str(ports))]
        process = subprocess.Popen(arguments, stdout=full, stderr=full, env=clean_environment())
    try:
        eventually("the node serves", ports.exists)
    finally:
        process.terminate()
        code = process.wait(30)
    equal(code, 0, "exit code")


@suite.test
def answers_probes_over_http(world):
    def status(path, password=None):
        request = urllib.request.Request(f"http://127.0.0.1:{world.node.ports['http']}{path}")
        if password:
            login = b64encode(f"Administrator:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    eventually("ready", lambda: status("/readyz") == 200)
    equal(status("/livez"), 200)
    equal(status("/pools"), 200, "health checks ask for it without credentials")
    equal(status("/pools", "wrong"), 401)
    equal(status("/pools", "password"), 200)
    for path in ("/pools/default", "/pools/default/buckets", "/metrics", "/whoami"):
        equal(status(path), 401, f"{path} without password")
        equal(status(path, "wrong"), 401, f"{path} with a wrong password")
        equal(status(path, "password"), 200, path)
    equal(status("/no/such/path", "password"), 404)


@suite.test
def names_the_port_that_is_taken(world):
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    refused(serve(world, "--kv-port", port), (UNAVAILABLE,), port, "kv")
    refused(serve(world, "--http-port", port), (UNAVAILABLE,), port, "http")
    refused(serve(world, "--memcached-port", port), (UNAVAILABLE,), port, "memcached")
    taken.close()


def fingerprint(folder):
    """Names, sizes and content of everything below `folder`."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stopped_node():
    """A node with a few documents on disk, at rest."""
    node = Node().start().ready()
    connection = Connection(node.kv).login()
    for number in range(200):
        key = b"kept-%d" % number
        equal(key_call(connection, SET, key, bytes(8), b"value").status, SUCCESS)
    connection.close()
    node.stop()
    return node


def refused_untouched(node, codes, *words):
    before = fingerprint(node.data)
    arguments = ["serve", "--data-dir", str(node.data), "--kv-port", "0", "--http-port", "0"]
    refused(arguments, codes, *words)
    equal(fingerprint(node.data), before, "the data directory")


@suite.test
def refuses_a_data_directory_in_use(world):
    arguments = ["serve", "--data-dir", str(world.node.data), "--kv-port", "0", "--http-port", "0"]
    refused(arguments, (UNAVAILABLE,), str(world.node.data), "in use")
    connection = Connection(world.node.kv).login()
    equal(key_call(connection, SET, b"still", bytes(8), b"here").status, SUCCESS)
    connection.close()


@suite.test
def refuses_a_newer_format(world):
    node = stopped_node()
    try:
        # The version lies behind the magic of each file; a checksum ends the header.
        for path in node.data.glob("buckets/default/*"):
            with path.open("r+b") as file:
                header = bytearray(file.read(64))
                if header[:6] == b"SETTEE" and path.name != "TAIL":
                    header[8:12] = (999).to_bytes(4, "big")
                    header[60:] = zlib.crc32(header[:60]).to_bytes(4, "big")
                    file.seek(0)
                    file.write(header)
        refused_untouched(node, (DATA,), str(node.data), "999")
    finally:
        node.close()


@suite.test
def refuses_a_store_of_a_release_before(world):
    node = stopped_node()
    try:
        (node.data / "buckets" / "default" / "FORMAT").write_text("settee 3\n")
        refused_untouched(node, (DATA,), str(node.data), "settee replicate")
    finally:
        node.close()


@suite.test
def refuses_damaged_data(world):
    node = stopped_node()
    try:
        for path in node.data.rglob("*"):
            if path.is_file() and path.parent != node.data and path.stat().st_size > 64:
                with path.open("r+b") as file:
                    file.write(b"\x5a" * 64)
        refused_untouched(node, (DATA,), str(node.data))
    finally:
        node.close()


@suite.test
def encrypts_at_rest(world):
    """Keys from a file and from the environment, one after the other; without them nothing opens."""
    keys = world.folder() / "keys"
    first, second = (run("encryption", "new-key", name)[1] for name in ("one", "two"))
    keys.write_text("# the first one\n" + first)
    keys.chmod(0o640)
    node = stopped_node()
    bucket = node.data / "buckets" / "default"

    def status():
        code, out, err = run("encryption", "status", str(node.data), "--json")
        equal((code, err), (0, ""))
        return {one["key"]: one["files"] for one in json.loads(out)["buckets"][0]["keys"]}

    try:
        equal(set(status()), {None}, "nothing is encrypted")
        flags = ["--encryption-key-file", str(keys)]
        refused(serve(world, *flags), (NO_INPUT,), str(keys), "640", "chmod 600")
        keys.chmod(0o600)
        node.flags += flags
        node.start().ready()
        connection = Connection(node.kv).login()
        equal(key_call(connection, SET, b"hushed", bytes(8), b"a secret value").status, SUCCESS)
        equal(run("compact", "--vbucket", "0", "--connect", node.address)[0], 0, "settee compact")
        eventually("all is encrypted", lambda: set(status()) == {"one"})
        connection.close()
        node.stop()
        refused_untouched(node, (CONFIG,), "one", "not given", "--encryption-key-file")
        code, _, err = run("check", str(node.data))
        assert code != 0 and "one" in err, f"a check without the key: {code} {err!r}"
        code, out, err = run("check", str(node.data), *flags)
        equal((code, err), (0, ""), f"a check with the key: {out}")
        given = {"SETTEE_ENCRYPTION_KEYS": second.strip() + "," + first.strip()}
        copy = world.folder()
        code, out, err = run("salvage", "--data-dir", str(node.data), "--to", str(copy), environment=given)
        equal((code, err), (0, ""), f"a copy: {out}")
        code, out, _ = run("encryption", "status", str(copy))
        equal((code, "key two" in out, "key one" in out), (0, True, False), out)
        keys.write_text("one:" + "00" * 32)
        again = ["serve", "--data-dir", str(node.data), "--kv-port", "0", "--http-port", "0", *flags]
        refused(again, (CONFIG,), "one", "not the one")
        keys.write_text(second + first)
        node.start().ready()
        equal(run("compact", "--vbucket", "0", "--connect", node.address)[0], 0, "settee compact")
        eventually("the new key took over", lambda: set(status()) == {"two"})
        node.stop()
        keys.write_text(second)
        node.start().ready()
        connection = Connection(node.kv).login()
        equal(key_call(connection, GET, b"hushed").value, b"a secret value")
        equal(key_call(connection, GET, b"kept-7").value, b"value")
        connection.close()
        node.stop()
        for path in bucket.iterdir():
            content = path.read_bytes()
            assert b"hushed" not in content and b"a secret" not in content, path
    finally:
        node.close()
    for text, word in (("one", "ID:KEY"), ("one:12", "64"), ("", "no key")):
        keys.write_text("\n" + text)
        line = "line 2" if text else "no key"
        refused(serve(world, *flags), (USAGE,), "encryption-key-file", line, word)
    refused(["encryption", "new-key", "no:name"], (USAGE,), "letters")


@suite.test
def refuses_a_foreign_directory(world):
    folder = world.folder()
    (folder / "holiday.jpg").write_bytes(b"\xff\xd8")
    (folder / "default").mkdir()
    (folder / "default" / "letter.txt").write_text("dear")
    before = fingerprint(folder)
    arguments = ["serve", "--data-dir", str(folder), "--kv-port", "0", "--http-port", "0"]
    refused(arguments, (DATA, 73), str(folder))
    equal(fingerprint(folder), before, "the foreign directory")


@suite.test
def refuses_a_file_as_data_directory(world):
    file = world.folder() / "file"
    file.write_text("x")
    arguments = ["serve", "--data-dir", str(file), "--kv-port", "0", "--http-port", "0"]
    refused(arguments, (73, 71, DATA), str(file))
    equal(file.read_text(), "x")


@suite.test
def refuses_an_unreadable_directory(world):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        folder = Path(place) / "data"
        folder.mkdir()
        how = {}
        if os.geteuid() == 0:
            # Nothing is unreadable for root: somebody else runs a copy that is in reach.
            program = Path(place) / "settee"
            shutil.copy(binary(), program)
            program.chmod(0o755)
            how = {"program": program, "user": 65534}
        folder.chmod(0)
        arguments = ["serve", "--data-dir", str(folder), "--kv-port", "0", "--http-port", "0"]
        refused(arguments, (73,), str(folder), "ermission denied", **how)
        folder.chmod(0o700)


@suite.test
def reads_and_writes_by_hand(world):
    at = ["--connect", world.connect]
    equal(run("set", "hand", "value", *at)[0], 0, "set")
    code, out, err = run("get", "hand", *at)
    equal((code, out.rstrip("\n")), (0, "value"), f"get ({err})")
    equal(run("set", "piped", "-", *at, stdin="from standard input")[0], 0, "set from a pipe")
    equal(run("get", "piped", *at)[1].rstrip("\n"), "from standard input")
    code, out, _ = run("get", "hand", "--json", *at)
    equal((code, json.loads(out)["value"]), (0, "value"), "get --json")
    equal(run("del", "hand", *at)[0], 0, "del")
    code, out, err = run("get", "hand", *at)
    equal((code, out, len(err.splitlines())), (66, "", 1), f"get of a missing key ({err})")


@suite.test
def manages_collections_by_hand(world):
    at = ["--connect", world.connect]
    code, out, err = run("collections", "create", "hands.left", "--max-ttl", "1000", *at)
    equal((code, out.startswith("manifest ")), (0, True), f"create ({err})")
    equal(run("collections", "create", "hands", *at)[0], 65, "create what is there")
    equal(run("set", "k", "there", "--collection", "hands.left", *at)[0], 0, "set")
    code, out, err = run("get", "k", "--collection", "hands.left", *at)
    equal((code, out.rstrip("\n")), (0, "there"), f"get ({err})")
    equal(run("get", "k", *at)[0], 66, "get from the default collection")
    code, out, _ = run("collections", "list", *at)
    lines = [line.split() for line in out.splitlines()]
    assert ["hands.left", "max-ttl", "1000"] in [[name, *more] for name, _, *more in lines if more], out
    code, out, _ = run("collections", "list", "--json", *at)
    equal([scope["name"] for scope in json.loads(out)["scopes"]], ["_default", "_system", "hands"], "list --json")
    equal(run("collections", "drop", "hands", *at)[0], 0, "drop")
    assert run("get", "k", "--collection", "hands.left", *at)[0] != 0, "a dropped collection"
    equal(run("collections", "drop", "hands", *at)[0], 66, "drop what is gone")


@suite.test
def manages_users_by_hand(world):
    """As administrator, then as the user that was made; passwords come from files, pipes and the environment."""
    at = ["--connect", world.connect]
    secret = world.folder() / "secret"
    secret.write_text("sesame\n")
    ana = f"couchbase://ana@127.0.0.1:{world.node.kv}/default"
    as_ana = ["--connect", ana, "--password-file", str(secret)]
    equal(run("user", "list", *at)[:2], (0, "USER  NAME  ROLES  GROUPS\n"), "before any")
    new = ["user", "add", "ana", "--name", "Ana", "--role", "data_reader[default]"]
    refused([*new, *at], {DATA}, "Password is required")
    refused([*new, "--role", "boss", "--new-password-file", str(secret), *at], {DATA}, "roles:", "boss")
    refused([*new, "--new-password-file", "-", *at], {USAGE}, "first line is empty")
    code, out, err = run(*new, "--new-password-file", str(secret), *at)
    equal((code, out, err), (0, "saved ana\n", ""), "add")

    equal(run("set", "read", "me", *at)[0], 0)
    equal(run("get", "read", *as_ana)[:2], (0, "me"), "a read")
    refused(["set", "read", "only", *as_ana], {NO_ACCESS}, "Upsert")
    refused(["user", "list", *as_ana], {NO_ACCESS}, "Forbidden")

    roles = ["--role", "data_reader[default:_default:_default]", "--role", "data_writer[default]"]
    equal(run("user", "add", "ana", *roles, *at)[0], 0, "other roles, the same password")
    equal(run("set", "read", "write", *as_ana)[0], 0, "a write")
    code, out, _ = run("user", "list", *at)
    equal((code, out.splitlines()[1].split()[0]), (0, "ana"), "list")
    assert "data_reader[default:_default:_default],data_writer[default]" in out, out
    equal([user["id"] for user in json.loads(run("user", "list", "--json", *at)[1])], ["ana"], "list --json")
    assert "data_reader[bucket:scope:collection]" in run("user", "list", "--roles", *at)[1], "list --roles"

    refused(["user", "passwd", "ana", *at], {USAGE}, "--new-password-file")
    code, out, err = run("user", "passwd", "ana", "--new-password-file", "-", *at, stdin="of ana\n")
    equal((code, out, err), (0, "changed the password of ana\n", ""), "passwd")
    refused(["get", "read", *as_ana], {NO_ACCESS})
    old = {"SETTEE_CONNECT_PASSWORD": "of ana"}
    equal(run("set", "read", "still", "--connect", ana, environment=old)[0], 0, "passwd keeps the roles")
    equal(run("user", "passwd", "--connect", ana, environment={**old, "SETTEE_NEW_PASSWORD": "sesame"})[0], 0, "one's own")
    equal(run("get", "read", *as_ana)[:2], (0, "still"), "by the new password")

    readers = ["user", "group", "add", "readers", "--role", "data_reader[default]", "--description", "read all"]
    equal(run(*readers, *at)[:2], (0, "saved readers\n"), "group add")
    equal(run("user", "group", "list", *at)[1].splitlines(), ["GROUP    DESCRIPTION  ROLES",
          "readers  read all     data_reader[default]"])  # fmt: skip
    equal([group["id"] for group in json.loads(run("user", "group", "list", "--json", *at)[1])], ["readers"], "--json")
    equal(run("user", "add", "ana", "--group", "readers", *at)[0], 0, "a group for roles")
    equal(run("get", "read", *as_ana)[:2], (0, "still"), "by the role of the group")
    refused(["set", "read", "only", *as_ana], {NO_ACCESS}, "Upsert")
    refused([*readers[:4], "--role", "boss", *at], {DATA}, "roles:", "boss")
    equal(run("user", "group", "del", "readers", *at)[:2], (0, "deleted readers\n"), "group del")
    refused(["user", "group", "del", "readers", *at], {66}, "Unknown group")
    refused(["get", "read", *as_ana], {NO_ACCESS})

    equal(run("user", "del", "ana", *at)[:2], (0, "deleted ana\n"), "del")
    refused(["user", "del", "ana", *at], {66}, "Unknown user")
    refused(["get", "read", *as_ana], {NO_ACCESS})
    refused(["user", "list", "--connect", f"127.0.0.1:{world.node.kv}"], {USAGE}, "has no users")


@suite.test
def tells_what_workers_did_and_why_a_group_has_nothing(world):
    rows = json.loads(run("stat", "tasks", "--json", "--connect", world.connect)[1])
    tasks = rows["ep_tasks:tasks"]
    tasks = {task["name"]: task for task in (json.loads(tasks) if isinstance(tasks, str) else tasks)}
    assert tasks["Flusher"]["num_runs"] > 0 and tasks["Flusher"]["total_runtime"] > 0, tasks
    equal((tasks["Compactor"]["type"], tasks["Compactor"]["bucket"]), ("read", "default"))
    refused(["stat", "allocator", "--connect", world.connect], {66}, "ep_mem_overhead")
    refused(["stat", "frequency-counters", "--connect", world.connect], {66}, "heat")


@suite.test
def compacts_over_http(world):
    """As `couchbase-cli bucket-compact` asks for it: the answer waits for nothing, and every vBucket has its turn."""

    def walks():
        out = run("stat", "diskinfo", "--json", "--connect", world.connect)[1]
        return int(json.loads(out)["ep_compaction_walks"])

    before, at = walks(), "/pools/default/buckets/default/controller"
    for what in ("compactBucket", "compactDatabases", "compactViews"):
        must(world.node, "POST", f"{at}/{what}")
    eventually("both have looked at every vBucket", lambda: walks() >= before + 2 * 1024)
    equal(call(world.node, "POST", "/pools/default/buckets/nope/controller/compactBucket")[0], 404)


@suite.test
def puts_a_whole_manifest(world):
    """A text names every scope and collection that there are to be; documents of those that stay stay."""
    at = ["--connect", world.connect]

    def put(*names, query=""):
        collections = [{"name": name, "maxTTL": 900} for name in names]
        scopes = [{"name": "_default", "collections": [{"name": "_default"}]},
                  {"name": "whole", "collections": collections}]  # fmt: skip
        body = json.dumps({"scopes": scopes}).encode()
        status, _, text = call(world.node, "PUT", f"{BUCKET}{query}", body)
        return status, json.loads(text)

    status, told = put("a", "b")
    equal(status, 200, told)
    equal(run("set", "k", "there", "--collection", "whole.a", *at)[0], 0, "set")
    equal(put("a", "b"), (200, told), "the same again")
    status, refusal = put("a", "c", query="?valid_on_uid=fffff")
    assert status == 400 and "valid_on_uid" in refusal["errors"]["_"], refusal
    status, newer = put("a", "c", query=f"?valid_on_uid={told['uid']}")
    assert status == 200 and int(newer["uid"], 16) > int(told["uid"], 16), newer
    equal(run("get", "k", "--collection", "whole.a", *at)[1].rstrip("\n"), "there", "what stayed")
    assert run("get", "k", "--collection", "whole.b", *at)[0] != 0, "a dropped collection"
    equal(run("get", "k", "--collection", "whole.c", *at)[0], 66, "a new collection")
    equal(run("collections", "drop", "whole", *at)[0], 0, "drop")


@suite.test
def shows_a_huge_answer_as_it_comes(world):
    """More rows than are sorted without being asked for: of every vBucket 38."""
    arguments = ["stat", "vbucket-details", "--connect", world.connect]
    code, out, err = run(*arguments)
    equal((code, err), (0, ""))
    rows = [line.split()[0].removesuffix(":") for line in out.splitlines()]
    assert len(rows) > 30_000, len(rows)
    natural = [[int(part) if part.isdigit() else part for part in re.split(r"(\d+)", row)] for row in rows]
    code, out, err = run(*arguments, "--sort")
    ordered = [line.split()[0].removesuffix(":") for line in out.splitlines()]
    equal(ordered, [row for _, row in sorted(zip(natural, rows))], "sorted rows")
    columns = {found.end() for line in out.splitlines() if (found := re.match(r" \S+ +(?=\S)", line))}
    equal(len(columns), 1, "columns in which values begin")
    for more in ([], ["--sort"]):
        code, out, err = run(*arguments, "--json", *more)
        equal((code, err), (0, ""))
        told = json.loads(out)
        equal(set(told), set(rows), "names in JSON")
        equal(told["vb_1023:num_items"], 0, "a number")


@suite.test
def statistics_end_with_their_reader(world):
    arguments = [binary(), "stat", "vbucket-details", "--connect", world.connect]
    for more in ([], ["--json"], ["--sort"]):
        shown = subprocess.Popen(
            [*arguments, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
        )
        assert shown.stdout.read(10), "the first bytes"
        shown.stdout.close()
        equal((shown.wait(30), shown.stderr.read()), (0, b""), f"end of stat {more} behind a pipe that was closed")
        shown.stderr.close()


@suite.test
def help_ends_with_its_reader_and_tells_that_it_cannot_be_written(world):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as left, open("/dev/full", "w") as full:
        for to, expected in ((left, (0, b"")), (full, (OS, b"settee: standard output: No space left on device (os error 28)\n"))):
            shown = subprocess.run([binary(), "serve", "--help"], stdout=to, stderr=subprocess.PIPE, timeout=30)
            equal((shown.returncode, shown.stderr), expected, "end of help")


@suite.test
def statistics_that_break_off_are_told(world):
    """The rows that came are shown, and that there are more."""

    def answer(listener):
        with listener.accept()[0] as one:
            opaque = one.recv(4096)[12:16]
            for number in range(20_000):
                key, value = b"row_%d" % number, b"%d" % number
                head = struct.pack(">BBHBBHI", 0x81, 0x10, len(key), 0, 0, 0, len(key) + len(value))
                one.sendall(head + opaque + bytes(8) + key + value)

    for more in ([], ["--json"]):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=answer, args=(listener,))
            server.start()
            port = listener.getsockname()[1]
            code, out, err = run("stat", "rows", "--connect", f"memcached://127.0.0.1:{port}", *more)
            server.join()
        equal(code, UNAVAILABLE, err)
        assert "connection lost" in err and "STAT" in err, err
        equal(err.count("\n"), 1, "lines of the message")


@suite.test
def shows_statistics(world):
    groups = ("", "vbucket", "vbucket-details", "vbucket-seqno", "checkpoint", "memory", "hash",
              "timings", "warmup", "diskinfo", "connections", "config")  # fmt: skip
    for group in groups:
        arguments = ["stat", *([group] if group else []), "--connect", world.connect]
        code, out, err = run(*arguments)
        equal(code, 0, f"stat {group} ({err})")
        assert out.strip(), f"stat {group} shows nothing"
        code, out, _ = run(*arguments, "--json")
        assert code == 0 and json.loads(out), f"stat {group} --json"
    code, out, err = run("stat", "no-such-group", "--connect", world.connect)
    equal((code, out), (66, ""), f"an unknown group ({err})")


@suite.test
def tells_why_a_client_command_failed(world):
    def at(text):
        return ["get", "x", "--connect", text]

    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    refused(at(address(port)), (UNAVAILABLE,), str(port))
    wrong = world.connect.replace(":password@", ":wrong@")
    refused(at(wrong), (NO_ACCESS,), "uthentication")
    refused(at(world.connect.replace("/default", "/no-such")), (NO_ACCESS, UNAVAILABLE, 66), "bucket")
    code, out, err = run(*at("gopher://x"))
    assert (code, out) == (USAGE, "") and "gopher" in err, f"an unknown scheme: {code} {err}"


@suite.test
def speaks_tls_to_whom_it_trusts(world):
    node = Node("--kv-tls-port", "0", "--https-port", "0").start().ready()
    other = Node("--kv-tls-port", "0").start()
    try:
        code, pem, _ = run("cert", "--data-dir", str(node.data))
        equal((code, "BEGIN CERTIFICATE" in pem), (0, True), "settee cert")
        ca, wrong = world.folder() / "ca.pem", other.data / "tls" / "ca.pem"
        ca.write_text(pem)
        url = f"https://localhost:{node.ports['https']}/pools/default/certificate"
        told = urllib.request.urlopen(url, context=ssl.create_default_context(cafile=ca))
        equal(told.read().decode(), pem, "what HTTP tells")
        at = f"couchbases://Administrator:password@localhost:{node.ports['kv_tls']}/default"
        trusting = ["--connect", at, "--ca", str(ca)]
        equal(run("set", "k", "x" * 100_000, *trusting)[0], 0, "set")
        for trust in (["--ca", str(ca)], ["--insecure"]):
            code, out, err = run("get", "k", "--connect", at, *trust)
            equal((code, out.strip()), (0, "x" * 100_000), f"get with {trust}: {err}")
        for trust in (["--ca", str(wrong)], []):
            refused(["get", "k", "--connect", at, *trust], (UNAVAILABLE,), "certificate")
        plain = at.replace("couchbases", "couchbase")
        refused(["get", "k", "--connect", plain], (PROTOCOL,), "it speaks TLS, which needs couchbases://")
        for port in ("kv", "http"):
            mixed = ["--connect", at.replace(str(node.ports["kv_tls"]), str(node.ports[port])), "--ca", str(ca)]
            refused(["get", "k", *mixed], (UNAVAILABLE,), "a port without TLS needs couchbase://")
        for flags in (["--dcp", "drain"], ["--verify"]):
            brief = ["--keys", "2000", "--duration", "1", "--json", *flags]
            code, out, err = run("bench", *brief, *trusting)
            equal(code, 0, f"bench {flags}: {err}")
            json.loads(out)
        code, out, err = run("stat", "connections", *trusting)
        assert '"tls":true' in out.replace(" ", ""), out
    finally:
        node.close()
        other.close()


@suite.test
def shows_a_certificate_to_a_node_that_asks(world):
    node = Node("--kv-tls-port", "0", "--https-port", "0", "--client-cert", "mandatory").start().ready()
    try:
        cert, key = client_certificate(node, "Administrator")
        at = f"couchbases://localhost:{node.ports['kv_tls']}/default"
        trusting = ["--connect", at, "--ca", str(node.data / "tls" / "ca.pem")]
        shown = [*trusting, "--cert", cert, "--key", key]
        equal(run("set", "k", "v", *shown)[0], 0, "set")
        code, out, err = run("get", "k", *shown)
        equal((code, out.strip()), (0, "v"), f"get: {err}")
        equal(run("user", "list", *shown)[0], 0, "over HTTPS")
        refused(["get", "k", *trusting], (UNAVAILABLE,), "ertificate")
        equal(run("get", "k", *trusting, "--cert", cert)[0], USAGE, "without its key")
        refused(["get", "k", *trusting, "--cert", cert, "--key", cert], (UNAVAILABLE,), "no key")
    finally:
        node.close()


@suite.test
def refuses_certificates_that_do_not_do(world):
    refused(serve(world, "--kv-tls-port=0", "--tls-cert=/nowhere.pem"), (CONFIG, USAGE), "--tls-key")
    files = ["--tls-cert=/nowhere.pem", "--tls-key=/nowhere.key"]
    refused(serve(world, *files), (CONFIG, USAGE), "--kv-tls-port")
    refused(serve(world, "--https-port=0", *files), (CONFIG,), "/nowhere.pem")
    refused(serve(world, "--client-cert=optional"), (CONFIG, USAGE), "--kv-tls-port")
    refused(serve(world, "--kv-tls-port=0", "--client-cert=on"), (CONFIG, USAGE), "mandatory")
    refused(serve(world, "--kv-tls-port=0", "--client-ca=/nowhere.pem"), (CONFIG,), "/nowhere.pem")


@suite.test
def measures_itself(world):
    code, out, err = run(
        "bench", "--connect", world.connect, "--connections", "2", "--keys", "500",
        "--ops", "3000", "--depth", "4", "--value-size", "64", "--verify", "--json",
    )  # fmt: skip
    equal(code, 0, f"bench ({err})")
    assert isinstance(json.loads(out), dict), "bench --json prints no object"


@suite.test
def bench_tells_what_is_read_from_memory(world):
    """With whole documents evicted, reads and writes over them fetch them from the store."""
    node = Node("--bucket", "default:16:couchbase:full").start().ready()
    code, out, err = run(
        "bench", "--connect", node.address, "--connections", "2", "--depth", "8",
        "--overcommit", "3", "--value-size", "1024", "--ratio", "1:1", "--warmup", "0",
        "--duration", "0.5", "--slices", "1", "--json",
    )  # fmt: skip
    node.close()
    equal(code, 0, f"bench ({err})")
    memory = json.loads(out)["memory"]
    # There are as many writes as reads, and only reads that wait are told; a document that left again before it was
    # read is fetched twice.
    assert memory["waited"] > 0 and 0 < memory["fetched"] < 3 * memory["waited"], memory
    equal(memory["hit_rate"], 1 - memory["waited"] / memory["gets"], "hit rate")
    assert 0 < memory["hit_rate"] < 1, memory


class Deletions:
    """Documents and deletions of the vBuckets 5 and 6 of a node."""

    def __init__(self, node):
        self.node = node
        self.connect()

    def connect(self):
        self.connection = Connection(self.node.kv).login()

    def call(self, opcode, key, vbucket, value=b""):
        extras = bytes(8) if opcode == SET else b""
        return self.connection.call(opcode, key, extras, value, vbucket=vbucket)

    def write(self):
        """Deletions from seqno 11 to 20 between documents that stay."""
        for vbucket in 5, 6:
            for kind, opcode in ("gone", SET), ("gone", DELETE), ("kept", SET):
                for number in range(10):
                    value = b"x" if opcode == SET else b""
                    done = self.call(opcode, b"%s-%d" % (kind.encode(), number), vbucket, value)
                    equal(done.status, SUCCESS, kind)
            seqno = struct.pack(">Q", 30)
            done = self.connection.call(SEQNO_PERSISTENCE, b"", seqno, vbucket=vbucket)
            equal(done.status, SUCCESS, "persisted")

    def known(self, vbucket):
        """How many deletions the node still knows; documents must be there."""
        for number in range(10):
            equal(self.call(GET, b"kept-%d" % number, vbucket).value, b"x", "a document")
            equal(self.call(GET, b"gone-%d" % number, vbucket).status, NOT_FOUND, "deleted")
        metas = [self.call(GET_META, b"gone-%d" % number, vbucket) for number in range(10)]
        return sum(meta.status == SUCCESS and meta.extras[:4] == b"\0\0\0\x01" for meta in metas)

    def purge_seqno(self, vbucket):
        told = []
        for group in "vbucket-seqno", "vbucket-details":
            code, out, err = run("stat", group, str(vbucket), "--json", "--connect", self.node.address)
            equal(code, 0, f"stat {group} ({err})")
            told.append(int(json.loads(out)[f"vb_{vbucket}:purge_seqno"]))
        equal(told[0], told[1], "purge_seqno of both groups")
        return told[0]

    def picture(self):
        """Known deletions and purge seqno of both vBuckets."""
        return [(self.known(vbucket), self.purge_seqno(vbucket)) for vbucket in (5, 6)]


def compact(node, *flags):
    code, out, err = run("compact", *flags, "--connect", node.address)
    equal(code, 0, f"compact {flags} ({out}{err})")


class Writer:
    """Replaces ten documents of vBucket 5 again and again until the end of its block."""

    def __init__(self, node):
        self.connection = Connection(node.kv).login()
        self.rounds, self.refused, self.over = 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            for number in range(10):
                done = self.connection.call(SET, b"busy-%d" % number, bytes(8), b"%d" % self.rounds, vbucket=5)
                if done.status != SUCCESS:
                    self.refused.append(done)
            self.rounds += 1

    def __enter__(self):
        self.thread.start()
        eventually("a round is written", lambda: self.rounds > 0)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        equal(self.refused, [], "refused writes")

    def check(self, connection):
        for number in range(10):
            found = connection.call(GET, b"busy-%d" % number, vbucket=5)
            equal(found.value, b"%d" % (self.rounds - 1), "the last write")


@suite.test
def compacts_by_hand(world):
    node = Node().start().ready()
    try:
        deletions = Deletions(node)
        deletions.write()
        compact(node)
        equal(deletions.picture(), [(10, 0), (10, 0)], "younger than three days")
        soon = str(int(time.time()) + 100)
        with Writer(node) as writer:
            compact(node, "--vbucket", "5", "--purge-before", soon, "--purge-up-to", "14")
            equal(deletions.picture(), [(9, 14), (10, 0)], "up to a seqno")
            before = writer.rounds
            eventually("writes go on", lambda: writer.rounds > before)
            extras = struct.pack(">QQB7x", 0, 0, 1)
            done = deletions.connection.call(COMPACT_DB, b"", extras, vbucket=5)
            equal(done.status, SUCCESS, "COMPACT_DB")
            equal(deletions.picture(), [(0, 23), (10, 0)], "all of a vBucket")
        writer.check(deletions.connection)
        deletions.connection.close()
        node.stop()
        node.flags = ["--purge-age", "1"]
        node.start().ready()
        deletions.connect()
        writer.check(deletions.connection)

        def old_ones_go():
            compact(node)
            return deletions.picture() == [(0, 23), (0, 23)]

        eventually("deletions of a second ago go", old_ones_go)
    finally:
        node.close()


def measured(world, scenario, *flags, keys=500, serve=()):
    """Figures of one `bench --dcp` on a node of its own, started with the flags `serve`."""
    node = Node(*serve).start().ready()
    code, out, err = run(
        "bench", "--connect", node.address, "--keys", str(keys), "--value-size", "66", "--warmup", "0", "--json",
        "--server-pid", str(node.process.pid), "--dcp", scenario, *flags,
    )  # fmt: skip
    node.close()
    equal(code, 0, f"bench --dcp {scenario} ({err})")
    return json.loads(out)["figures"]


@suite.test
def bench_measures_change_streams(world):
    for origin, from_disk in ("memory", 0), ("disk", 500):
        figures = measured(world, "drain", "--from", origin)
        equal((figures["changes"], figures["changes_from_disk"]), (500, from_disk), origin)
    # So many keys that hardly one is written again before its change was sent: that would be one change less.
    figures = measured(world, "latency", "--rate", "500", "--duration", "0.4", "--slices", "2", keys=20_000)
    equal((figures["sets"], figures["changes"]), (200, 200), "every write was seen")
    assert 0 < figures["sent_to_seen_p50_us"] <= figures["due_to_seen_p99.9_us"], figures
    figures = measured(world, "front", "--ratio", "1:1", "--duration", "0.2", "--slices", "2")
    assert figures["changes"]["with"] > 0 == figures["changes"]["without"], figures
    assert figures["get_p50_us"]["without"] > 0 < figures["set_p50_us"]["with"], figures
    figures = measured(world, "idle", "--connections", "2", "--duration", "0.1")
    equal(figures["streams"], 2048, "streams")
    figures = measured(world, "consumer", "--connections", "2", "--snapshot-changes", "7")
    equal((figures["changes"], figures["streams"]), (500, 1024), "changes brought to the node")
    assert figures["changes_per_second"] > 0 < figures["snapshot_to_ack_p50_us"], figures
    refused(["bench", "--dcp", "idle", "--connect", world.connect], {USAGE}, "--server-pid")
    refused(["bench", "--dcp", "drain", "--connect", "127.0.0.1:1"], {UNAVAILABLE})
    # Windows that are full, and resized while they are.
    flags, serve = ("--connections", "4"), ("--bucket", "default:100")
    figures = measured(world, "consumer", *flags, keys=100_000, serve=serve)
    equal(figures["changes"], 100_000, "changes through small windows")
    figures = measured(world, "dropped", keys=50_000, serve=("--bucket", "default:16"))
    equal((figures["changes"], figures["missing"]), (50_000, 0), "documents after a dropped cursor")
    assert figures["cursors_dropped"] > 0 < figures["changes_from_disk"], figures
    equal((figures["live_changes"], figures["live_changes_from_disk"]), (1024, 0), "then live")
    few = ["bench", "--dcp", "dropped", "--connect", world.connect, "--keys", "10"]
    refused(few, {USAGE}, "no cursor was dropped")


@suite.test
def ends_at_once_on_a_second_signal(world):
    node = Node().start().ready()
    connection = Connection(node.kv).login()
    equal(key_call(connection, SET, b"end", bytes(8), b"x").status, SUCCESS)
    node.process.terminate()
    node.process.terminate()
    code = node.process.wait(30)
    assert code is not None
    connection.close()
    node.start().ready()
    connection = Connection(node.kv).login()
    assert key_call(connection, GET, b"end").status in (SUCCESS, NOT_FOUND)
    node.stop()
    node.close()


if __name__ == "__main__":
    suite.main(World())
