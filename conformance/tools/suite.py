"""The calls of the reference's tools: `cbepctl`, `cbtransfer`, `mctimings`, `mcstat`.

They come with the server, not as packages, so their calls are replayed: those of `cbtransfer` in the order of its
published source, the others as their manuals and the protocol describe them. Each must end in success, or in a status
with a reason that the tool shows.
"""

import json
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, Suite, equal, eventually
from manage import call, must
from mcbp import (
    DELETE,
    FEATURE_COLLECTIONS,
    FEATURE_JSON,
    FEATURE_SELECT_BUCKET,
    FEATURE_SNAPPY,
    FEATURE_XERROR,
    GET,
    HEADER,
    HELLO,
    INVALID,
    NO_ACCESS,
    NOT_FOUND,
    NOT_MY_VBUCKET,
    NOT_SUPPORTED,
    RESPONSE,
    SASL_AUTH,
    SELECT_BUCKET,
    SET,
    STAT,
    SUCCESS,
    Connection,
    frame,
    key_call,
)

suite = Suite("tools")

FEATURE_XATTR = 0x06
AUDIT_PUT, STOP_PERSISTENCE, START_PERSISTENCE, SET_PARAM, LIST_BUCKETS = 0x27, 0x80, 0x81, 0x82, 0x87
GET_META, SET_WITH_META, DEL_WITH_META, COMPACT_DB = 0xA0, 0xA2, 0xA8, 0xB3
SET_MANIFEST, GET_MANIFEST, SUBDOC_DICT_UPSERT, GET_CMD_TIMER = 0xB9, 0xBA, 0xC8, 0xF3
DCP_OPEN, DCP_STREAM_REQ, DCP_STREAM_END, DCP_SNAPSHOT_MARKER = 0x50, 0x53, 0x55, 0x56
DCP_MUTATION, DCP_DELETION, DCP_NOOP, DCP_BUFFER_ACK, DCP_CONTROL = 0x57, 0x58, 0x5C, 0x5D, 0x5E
BUSY, XATTR = 0x85, 0x04
SHOWN = {INVALID, NOT_FOUND, NO_ACCESS, NOT_SUPPORTED, BUSY}


class World:
    """A node with a few documents of each kind, and an empty one."""

    def __init__(self):
        self.node, self.other = (Node().start().ready() for _ in range(2))
        connection = tool(self.node)
        for number in range(100):
            set_document(connection, b"document-%d" % number)
        for number in range(10):
            key_call(connection, DELETE, b"document-%d" % number)
        extras = struct.pack(">HB", 5, 0x04)
        attribute = key_call(connection, SUBDOC_DICT_UPSERT, b"document-50", extras, b"chair1")
        equal(attribute.status, SUCCESS, "an attribute")
        connection.close()

    def close(self):
        self.node.close()
        self.other.close()


def set_document(connection, key):
    extras = struct.pack(">II", 7, 0)
    equal(key_call(connection, SET, key, extras, b'{"key":"%s"}' % key).status, SUCCESS, key)


def tool(node, bucket="default"):
    """A connection as the tools open them."""
    connection = Connection(node.kv, seconds=30)
    connection.hello(FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_JSON, FEATURE_XATTR, FEATURE_SNAPPY)
    return connection.login(bucket=bucket)


def ends_well(reply, what):
    """Whether it succeeded; if not, the tool shows why."""
    if reply.status == SUCCESS:
        return True
    assert reply.status in SHOWN, f"{what}: {reply!r}"
    assert reply.status == NOT_FOUND or json.loads(reply.value)["error"]["context"], f"{what} without a reason: {reply!r}"
    return False


# -- cbepctl

FLUSH, CHECKPOINT, DCP, VBUCKET = 1, 3, 4, 5
# What its manual lists for each family, and a value that makes sense.
SERVED = {
    FLUSH: {
        "backfill_mem_threshold": "90", "compression_mode": "passive", "durability_min_level": "none",
        "exp_pager_enabled": "true", "exp_pager_stime": "600", "getl_default_timeout": "15",
        "getl_max_timeout": "30", "max_size": str(256 << 20), "max_ttl": "0", "mem_high_wat": str(200 << 20),
        "mem_low_wat": str(180 << 20), "mem_high_wat_percent": "0.85", "mem_low_wat_percent": "0.75",
        "mutation_mem_ratio": "0.93", "persistent_metadata_purge_age": "259200",
        "range_scan_max_lifetime": "180", "seqno_persistence_timeout": "30",
    },
    CHECKPOINT: {
        "checkpoint_memory_ratio": "0.2", "checkpoint_memory_recovery_upper_mark": "0.9",
        "checkpoint_memory_recovery_lower_mark": "0.6",
    },
    DCP: {
        "dcp_backfill_byte_limit": str(20 << 20), "dcp_consumer_buffer_ratio": "0.05", "dcp_idle_timeout": "360",
        "dcp_noop_mandatory_for_v5_features": "true", "dcp_oso_backfill": "auto",
    },
    VBUCKET: {"hlc_drift_ahead_threshold_us": "5000000", "hlc_drift_behind_threshold_us": "5000000", "max_cas": "1"},
}  # fmt: skip
# Settings of threads, queues and tasks that the node does not have.
NOT_HERE = {
    FLUSH: (
        "access_scanner_enabled", "alog_block_size", "alog_max_stored_items", "alog_resident_ratio_threshold",
        "alog_sleep_time", "alog_task_time", "bfilter_enabled", "bfilter_residency_threshold",
        "compaction_write_queue_cap", "defragmenter_enabled", "defragmenter_interval", "fsync_after_every_n_bytes_written",
        "item_eviction_policy", "max_num_auxio", "max_num_nonio", "max_num_readers", "max_num_writers",
        "mutation_mem_threshold", "pager_active_vb_pcnt", "pager_sleep_time_ms", "replication_throttle_threshold",
        "warmup_min_items_threshold", "warmup_min_memory_threshold",
    ),
    CHECKPOINT: (
        "checkpoint_destruction_tasks", "checkpoint_max_size", "chk_max_items", "chk_period",
        "item_num_based_new_chk", "keep_closed_chks", "max_checkpoints",
    ),
    DCP: (
        "dcp_consumer_process_buffered_messages_batch_size", "dcp_consumer_process_buffered_messages_yield_limit",
    ),
    VBUCKET: ("nonsense",),
}  # fmt: skip


def set_param(connection, family, name, value, vbucket=0):
    return connection.call(SET_PARAM, name.encode(), struct.pack(">I", family), value.encode(), vbucket=vbucket)


@suite.test
def cbepctl_sets_what_the_node_has_and_is_told_of_the_rest(world):
    connection = tool(world.node)
    for family, settings in SERVED.items():
        for name, value in settings.items():
            assert ends_well(set_param(connection, family, name, value), name), f"{name} {value} is refused"
            assert not ends_well(set_param(connection, family, name, "nonsense"), name), f"{name} takes nonsense"
    for family, names in NOT_HERE.items():
        for name in names:
            reply = set_param(connection, family, name, "1")
            assert not ends_well(reply, name), f"{name} is taken"
            equal(reply.status, INVALID, name)
    # The family of the protocol before DCP, and one that there never was.
    for family in (2, 9):
        assert not ends_well(set_param(connection, family, "max_size", "1"), family)
    # Of one vBucket, that its header names.
    for vbucket, status in ((5, SUCCESS), (60000, INVALID)):
        equal(set_param(connection, VBUCKET, "max_cas", "7", vbucket).status, status)
    connection.close()


@suite.test
def cbepctl_stops_drains_and_starts_persistence(world):
    connection = tool(world.node)
    equal(connection.call(STOP_PERSISTENCE).status, SUCCESS)
    eventually("the flusher stands still", lambda: connection.stats()["ep_flusher_state"] == "paused")
    set_document(connection, b"undrained")
    assert int(connection.stats()["ep_queue_size"]) > 0
    equal(connection.call(START_PERSISTENCE).status, SUCCESS)
    drained = lambda: {connection.stats()[name] for name in ("ep_queue_size", "ep_flusher_todo")} == {"0"}
    eventually("all is on disk", drained)
    equal(connection.stats()["ep_flusher_state"], "running")
    connection.close()


@suite.test
def cbepctl_compacts_and_manages_collections(world):
    connection = tool(world.node)
    extras = struct.pack(">QQBBHI", 0, 0, 0, 0, 0, 0)
    assert ends_well(connection.call(COMPACT_DB, b"", extras, vbucket=5), "compact")
    equal(connection.call(COMPACT_DB, b"", extras, vbucket=60000).status, NOT_MY_VBUCKET)
    reply = connection.call(GET_MANIFEST)
    assert ends_well(reply, "get_collections")
    manifest = json.loads(reply.value)
    manifest["uid"] = f"{int(manifest['uid'], 16) + 1:x}"
    manifest["scopes"][0]["collections"].append({"name": "tools", "uid": "7f"})
    assert ends_well(connection.call(SET_MANIFEST, b"", b"", json.dumps(manifest).encode()), "set_collections")
    told = json.loads(connection.call(GET_MANIFEST).value)
    assert "tools" in [one["name"] for one in told["scopes"][0]["collections"]], told
    assert not ends_well(connection.call(SET_MANIFEST, b"", b"", b"{}"), "no manifest")
    connection.close()


# -- mctimings


def check_histogram(text, what):
    told = json.loads(text)
    counts = [count for _, count, _ in told["data"]]
    equal(sum(counts) + told.get("overflowed", 0), told["total"], what)
    uppers = [upper for upper, _, _ in told["data"]]
    assert uppers == sorted(uppers) and told["bucketsLow"] >= 0, told
    return told["total"]


@suite.test
def mctimings_reads_a_histogram_of_every_command(world):
    connection = tool(world.node)
    totals = {}
    for bucket in (b"default", b"/all/", b""):
        for opcode in range(256):
            reply = connection.call(GET_CMD_TIMER, bucket, bytes([opcode]))
            if ends_well(reply, f"{opcode:#x} of {bucket}"):
                totals[bucket, opcode] = check_histogram(reply.value, f"{opcode:#x} of {bucket}")
    for bucket in (b"default", b"/all/", b""):
        assert totals[bucket, SET] >= 100 and totals[bucket, DELETE] >= 10, totals
        equal(totals[bucket, SET_WITH_META], 0, "a command that was never run")
    assert not ends_well(connection.call(GET_CMD_TIMER, b"missing", bytes([GET])), "a bucket that is not there")
    # Names that are no opcodes are groups of statistics.
    for group in ("json_validate", "snappy_decompress", "subdoc_execute"):
        connection.send(frame(STAT, group.encode()))
        ends_well(connection.receive(), group)
        equal(connection.call(GET, b"nothing").status, NOT_FOUND, "the connection goes on")
    connection.close()


# -- mcstat

GROUPS = (
    "", "all", "allocator", "checkpoint", "checkpoint 5", "collections", "collections _default._default",
    "collections-details", "collections-details 5", "config", "connections", "dcp", "dcpagg :", "dcp-vbtakeover 5 name",
    "diskinfo", "diskinfo detail", "disk-failures", "dispatcher", "durability-monitor 5", "eviction", "failovers",
    "failovers 5", "frequency-counters", "hash", "hash detail", "info", "key document-50 5", "kvstore", "kvtimings",
    "memory", "prev-vbucket", "range-scans", "reset", "responses", "runtimes", "scheduler", "scopes",
    "scopes _default", "scopes-details", "stat-timings", "tasks", "tasks-all", "timings", "topkeys", "uuid",
    "vbucket", "vbucket-details", "vbucket-details 5", "vbucket-durability-state 5", "vbucket-seqno",
    "vbucket-seqno 5", "vkey document-50 5", "warmup", "workload", "audit", "bucket_details", "clocks", "tracing",
    "nonsense", 'dcp {"filter":{"user":"nobody"}}',
)  # fmt: skip


def statistics(connection, group):
    """The rows of a group, or the answer that refuses it."""
    connection.send(frame(STAT, group.encode()))
    rows = {}
    while True:
        reply = connection.receive()
        if reply.status != SUCCESS:
            return None, reply
        if not reply.key:
            return rows, reply
        rows[reply.key.decode()] = reply.value.decode()


@suite.test
def mcstat_reads_every_group_or_is_told_why_not(world):
    connection = tool(world.node)
    told = 0
    for group in GROUPS:
        rows, reply = statistics(connection, group)
        if rows is None:
            assert not ends_well(reply, group)
        else:
            told += len(rows)
            # Histograms are drawn where a value looks like one.
            for name, value in rows.items():
                if '"bucketsLow"' in value and '"data":[' in value:
                    check_histogram(value, name)
    assert told > 10_000, told
    connection.close()


@suite.test
def mcstat_reads_all_buckets_one_after_the_other(world):
    must(world.node, "POST", "/pools/default/buckets", name="shop", ramQuota="64", bucketType="ephemeral")
    connection = tool(world.node, bucket=None)
    names = connection.call(LIST_BUCKETS).value.split()
    equal(sorted(names), [b"default", b"shop"])
    for name in names:
        equal(connection.call(SELECT_BUCKET, name).status, SUCCESS)
        rows, _ = statistics(connection, "uuid")
        assert len(rows["uuid"]) == 32, rows
    connection.close()
    must(world.node, "DELETE", "/pools/default/buckets/shop")


# -- cbtransfer


def pump(node, bucket):
    """A connection as `cbtransfer` opens it: the login comes first."""
    connection = Connection(node.kv, seconds=30)
    secret = b"\0Administrator\0password"
    equal(connection.call(SASL_AUTH, b"PLAIN", b"", secret).status, SUCCESS)
    features = struct.pack(">2H", FEATURE_XATTR, FEATURE_XERROR)
    equal(connection.call(HELLO, b"mcd-client", b"", features).status, SUCCESS)
    equal(connection.call(SELECT_BUCKET, bucket.encode()).status, SUCCESS)
    return connection


def buckets_of(node):
    """What it reads of buckets, as it reads that."""
    buckets = json.loads(must(node, "GET", "/pools/default/buckets"))
    return [one for one in buckets if one["bucketType"] in ("membase", "couchbase", "ephemeral")]


def vbuckets_of(bucket, entry):
    """The vBuckets that a node of the list has: its host and its port stand in the map."""
    servers, vbuckets = bucket["vBucketServerMap"]["serverList"], bucket["vBucketServerMap"]["vBucketMap"]
    host = entry["hostname"].rsplit(":", 1)[0]
    index = servers.index(f"{host}:{entry['ports']['direct']}")
    return [vb for vb, places in enumerate(vbuckets) if places[0] == index]


def open_producer(node, bucket):
    producer = pump(node, bucket)
    flags = struct.pack(">II", 0, 0x01 | 0x04)
    equal(producer.call(DCP_OPEN, b"cbtransfer-tool", flags).status, SUCCESS)
    for key, value in (("connection_buffer_size", "4000000"), ("enable_noop", "true"), ("set_noop_interval", "180")):
        equal(producer.call(DCP_CONTROL, key.encode(), b"", value.encode()).status, SUCCESS, key)
    # These two it only asks for.
    ends_well(producer.call(DCP_CONTROL, b"enable_ext_metadata", b"", b"true"), "enable_ext_metadata")
    event = {"timestamp": "2026-01-02T03:04:05.000Z", "real_userid": {"source": "internal", "user": bucket}}
    ends_well(producer.call(AUDIT_PUT, b"", struct.pack(">I", 0x3000), json.dumps(event).encode()), "an event")
    return producer


def high_seqnos(node, bucket):
    reader = pump(node, bucket)
    rows = reader.stats("vbucket-seqno")
    reader.close()
    counters = {}
    for name, value in rows.items():
        vb, counter = name.split(":")
        if counter in ("uuid", "high_seqno", "abs_high_seqno", "purge_seqno"):
            counters.setdefault(int(vb[3:]), {})[counter] = int(value)
    return {vb: told["high_seqno"] for vb, told in counters.items()}


def drain(producer, seqnos):
    """Every change up to these seqnos: opcode, vBucket, key, flags, expiry, CAS, revision, value, datatype."""
    for vb, high in seqnos.items():
        extras = struct.pack(">II5Q", 0, 0, 0, high, 0, 0, 0)
        producer.send(frame(DCP_STREAM_REQ, b"", extras, vbucket=vb, opaque=vb))
    streams, changes, unacknowledged = set(seqnos), [], 0
    while streams:
        head = HEADER.unpack(producer._exactly(HEADER.size))
        body = producer._exactly(head[6])
        opcode, key_len, extras_len, datatype, status, cas = head[1], head[2], head[3], head[4], head[5], head[8]
        if opcode == DCP_STREAM_REQ:
            equal(status, SUCCESS, f"stream of vb {head[7]}")
            continue
        if opcode == DCP_BUFFER_ACK:
            continue
        if opcode == DCP_NOOP:
            producer.send(HEADER.pack(RESPONSE, DCP_NOOP, 0, 0, 0, 0, 0, head[7], 0))
            continue
        unacknowledged += HEADER.size + len(body)
        key, value = body[extras_len : extras_len + key_len], body[extras_len + key_len :]
        if opcode == DCP_STREAM_END:
            streams.remove(head[7])
        elif opcode == DCP_MUTATION:
            _, rev, flags, expiry, _, _, _ = struct.unpack(">QQIIIHB", body[:extras_len])
            changes.append((opcode, status, key, flags, expiry, cas, rev, value, datatype))
        elif opcode == DCP_DELETION:
            _, rev, _ = struct.unpack(">QQH", body[:extras_len])
            changes.append((opcode, status, key, 0, 0, cas, rev, value if datatype & XATTR else b"", datatype))
        else:
            equal(opcode, DCP_SNAPSHOT_MARKER)
            struct.unpack(">QQI", body[:extras_len])
        if unacknowledged > 1000:
            producer.send(frame(DCP_BUFFER_ACK, b"", struct.pack(">I", unacknowledged)))
            unacknowledged = 0
    return changes


def restore(sink, changes):
    """All of them in one write, with their metadata; what is there already is passed over."""
    requests = []
    for number, (opcode, vb, key, flags, expiry, cas, rev, value, datatype) in enumerate(changes):
        command = SET_WITH_META if opcode == DCP_MUTATION else DEL_WITH_META
        extras = struct.pack(">IIQQI", flags, expiry, rev, cas, 0)
        requests.append(frame(command, key, extras, value, vbucket=vb, datatype=datatype & XATTR, opaque=number))
    sink.send(b"".join(requests))
    replies = [sink.receive() for _ in requests]
    equal([reply.opaque for reply in replies], list(range(len(requests))))
    return [reply.status for reply in replies]


def meta(node, key):
    """All but when it expires, or was deleted: no stream told `cbtransfer` of that."""
    connection = tool(node)
    reply = key_call(connection, GET_META, key, b"\2")
    connection.close()
    return reply.status, reply.cas, reply.extras[:8], reply.extras[12:]


@suite.test
def cbtransfer_copies_documents_with_their_metadata(world):
    (bucket,) = buckets_of(world.node)
    (target,) = buckets_of(world.other)
    entry = bucket["nodes"][0]
    assert entry["version"].split(".") >= ["3", "0", "0"], entry
    seqnos = high_seqnos(world.node, bucket["name"])
    equal(sorted(seqnos), vbuckets_of(bucket, entry))
    # How much there is, for its progress.
    samples = {}
    for name in ("curr_items", "vb_active_resident_items_ratio"):
        told = json.loads(must(world.node, "GET", f"/pools/default/buckets/default/stats/{name}"))
        samples[name] = told["nodeStats"][entry["hostname"]][-1]
    producer = open_producer(world.node, bucket["name"])
    changes = drain(producer, seqnos)
    producer.close()
    equal(len([one for one in changes if one[0] == DCP_MUTATION]), samples["curr_items"])
    sink = pump(world.other, target["name"])
    equal(set(restore(sink, changes)), {SUCCESS})
    equal(set(restore(sink, changes)), {0x02}, "again: they are there")
    sink.close()
    for key in (b"document-9", b"document-10", b"document-50"):
        equal(meta(world.other, key), meta(world.node, key), key)
    connection = tool(world.other)
    extras = struct.pack(">HB", 5, 0x04)
    equal(key_call(connection, 0xC5, b"document-50", extras, b"chair").value, b"1", "its attribute")
    connection.close()


@suite.test
def cbtransfer_is_told_of_a_bucket_and_of_services_that_are_not_there(world):
    """Indexes and designs are copied where there are such services: it looks for them first."""
    (bucket,) = buckets_of(world.node)
    assert "couchApiBase" not in bucket["nodes"][0], "designs would be copied"
    services = json.loads(must(world.node, "GET", "/pools/default/nodeServices"))["nodesExt"][0]["services"]
    equal(sorted(services), ["kv", "mgmt"])
    equal(call(world.node, "GET", "/pools/default/buckets/missing")[0], 404)
    connection = Connection(world.node.kv)
    connection.login(bucket=None)
    connection.hello(FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS)
    equal(connection.call(SELECT_BUCKET, b"missing").status, NO_ACCESS)
    connection.close()


if __name__ == "__main__":
    suite.main(World())
