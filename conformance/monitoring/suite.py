"""What monitoring reads: Telegraf's input plugin, unmodified, and the reads of others as their published sources make them.

The exporters of Couchbase and of TOTVS for Prometheus and Datadog's check are not to be had as packages, so their reads
are replayed: the same paths in the same order, the same keys, in the types that they are read into.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from dcp import Consumer
from harness import Node, Suite, equal, eventually
from manage import must
from mcbp import GET, SET, Connection, key_call, vbucket_of

suite = Suite("monitoring")
LOGIN = ("watcher", "watches")
DOCUMENTS = 50
# Samples that Telegraf knows and that are not told; docs/clients.md says why.
NOT_TOLD = {
    "allocstall", "avg_bg_wait_time", "avg_disk_update_time", "bg_wait_count", "bg_wait_total", "cas_hits", "cas_misses",
    "disk_update_count", "disk_update_total", "ep_meta_data_memory", "ep_num_ops_del_ret_meta",
    "ep_num_ops_set_ret_meta", "hibernated_waked", "odp_report_failed",
}  # fmt: skip
NOT_TOLD_PARTS = ("_queue_age", "_meta_data_memory", "_total_backlog_size")
# What lists of nodes tell, and exporters read into whole numbers.
INTERESTING = (
    "cmd_get", "couch_docs_actual_disk_size", "couch_docs_data_size", "couch_spatial_data_size",
    "couch_spatial_disk_size", "couch_views_actual_disk_size", "couch_views_data_size", "curr_items",
    "curr_items_tot", "ep_bg_fetched", "get_hits", "mem_used", "ops", "vb_active_num_non_resident",
    "vb_replica_curr_items",
)  # fmt: skip
SYSTEM = ("cpu_utilization_rate", "mem_free", "mem_total", "swap_total", "swap_used")


class World:
    """A node with documents that are read and written."""

    def __init__(self):
        self.node = Node().start().ready()
        self.connection = Connection(self.node.kv).login()
        self.home = tempfile.TemporaryDirectory()
        must(self.node, "PUT", f"/settings/rbac/users/local/{LOGIN[0]}", password=LOGIN[1], roles="ro_admin")
        self.work()

    def work(self):
        """Writes and reads all documents, and misses as many."""
        for number in range(DOCUMENTS):
            key = b"document-%d" % number
            key_call(self.connection, SET, key, bytes(8), b"value", vbucket=vbucket_of(key))
            key_call(self.connection, GET, key, vbucket=vbucket_of(key))
            key_call(self.connection, GET, b"no-" + key, vbucket=vbucket_of(b"no-" + key))

    def get(self, path):
        return json.loads(must(self.node, "GET", path))

    def samples(self):
        return self.get("/pools/default/buckets/default/stats")["op"]["samples"]

    def telegraf(self):
        """What the plugin gathers, by measurement."""
        program = Path(self.home.name) / "telegraf"
        if not program.exists():
            build = ["go", "build", "-mod=readonly", "-o", str(program), "."]
            subprocess.run(build, cwd=HERE / "telegraf", check=True, timeout=80)
        url = f"http://{':'.join(LOGIN)}@127.0.0.1:{self.node.ports['http']}"
        ran = subprocess.run([program, url], capture_output=True, text=True, timeout=30)
        equal((ran.returncode, ran.stderr), (0, ""), "telegraf's end")
        return {row["measurement"]: row for row in map(json.loads, ran.stdout.splitlines())}

    def close(self):
        self.connection.close()
        self.home.cleanup()
        self.node.close()


@suite.test
def telegraf_gathers_a_node_and_its_buckets(world):
    found = world.telegraf()
    equal(sorted(found), ["couchbase_autofailover", "couchbase_bucket", "couchbase_node", "couchbase_node_bucket"])
    node = found["couchbase_node"]["fields"]
    assert 0 < node["memory_free"] <= node["memory_total"], node
    equal(found["couchbase_bucket"]["tags"]["bucket"], "default")
    bucket = found["couchbase_bucket"]["fields"]
    equal((bucket["item_count"], bucket["curr_items"]), (DOCUMENTS, DOCUMENTS))
    equal((bucket["vb_active_num"], bucket["ep_max_size"]), (1024, 256 << 20))
    equal((bucket["ep_resident_items_rate"], bucket["couch_views_ops"]), (100, 0))
    assert 0 < bucket["couch_docs_data_size"] <= bucket["couch_total_disk_size"], bucket
    assert 0 <= bucket["couch_docs_fragmentation"] < 100, bucket
    assert bucket["mem_total"] == node["memory_total"] and bucket["cpu_cores_available"] >= 1, bucket
    equal(found["couchbase_node_bucket"]["fields"].keys(), bucket.keys())
    equal(found["couchbase_autofailover"]["fields"]["enabled"], False)


@suite.test
def telegraf_finds_every_sample_but_those_that_have_no_meaning(world):
    source = (HERE / "telegraf").resolve()
    listed = ["go", "list", "-mod=readonly", "-f", "{{.Dir}}", "github.com/influxdata/telegraf/plugins/inputs/couchbase"]
    folder = subprocess.run(listed, cwd=source, check=True, capture_output=True, text=True).stdout.strip()
    lines = (Path(folder) / "couchbase_data.go").read_text().splitlines()
    known = {line.split('json:"')[1].split('"')[0] for line in lines if "[]float64" in line}
    assert len(known) > 200, known
    without = {name for name in known if name in NOT_TOLD or name.endswith(NOT_TOLD_PARTS)}
    equal(sorted(known - without - world.samples().keys()), [])
    equal(sorted(without & world.samples().keys()), [], "told, although they are said not to be")


@suite.test
def counters_are_told_as_rates(world):
    def all_rise():
        world.work()
        fields = world.telegraf()["couchbase_bucket"]["fields"]
        rising = ("cmd_get", "cmd_set", "get_hits", "get_misses", "misses", "ops", "bytes_read", "bytes_written",
                  "ep_ops_update", "vb_active_ops_update", "ep_diskqueue_fill", "rest_requests")  # fmt: skip
        equal({name: fields[name] > 0 for name in rising}, dict.fromkeys(rising, True))
        equal(fields["hit_ratio"], 50)
        return True

    eventually("everything rises", all_rise)
    eventually("nothing rises any more", lambda: world.samples()["cmd_set"] == [0])


@suite.test
def streams_are_told_by_the_service_that_they_belong_to(world):
    consumers = [Consumer(world.node, name) for name in (b"secidx:one", b"fts:two", b"mine")]
    samples = world.samples()
    counts = {kind: samples[f"ep_dcp_{kind}_count"] for kind in ("2i", "fts", "other", "replica", "views+indexes")}
    equal(counts, {"2i": [1], "fts": [1], "other": [1], "replica": [0], "views+indexes": [1]})
    for consumer in consumers:
        consumer.close()
    eventually("they are gone", lambda: world.samples()["ep_dcp_other_count"] == [0])


def whole(values, names):
    for name in names:
        assert isinstance(values[name], int), f"{name} is {values[name]!r}"


@suite.test
def the_exporters_for_prometheus_find_their_keys(world):
    """github.com/couchbase/couchbase-exporter and github.com/totvslabs/couchbase-exporter."""
    pool, own = world.get("/pools/default"), world.get("/nodes/self")
    equal(world.get("/pools/nodes")["nodes"][0]["hostname"], pool["nodes"][0]["hostname"])
    for node in (pool["nodes"][0], own, world.get("/pools/default/buckets")[0]["nodes"][0]):
        whole(node["interestingStats"], INTERESTING)
        equal(node["interestingStats"]["curr_items"], DOCUMENTS)
        equal((node["status"], node["clusterMembership"]), ("healthy", "active"))
        assert all(isinstance(node["systemStats"][name], int | float) for name in SYSTEM), node
        whole(node, ("memoryTotal", "memoryFree", "mcdMemoryReserved", "mcdMemoryAllocated", "clusterCompatibility"))
        assert int(node["uptime"]) >= 0, node
    for totals in (pool["storageTotals"], own["storageTotals"]):
        whole(totals["ram"], ("total", "quotaTotal", "quotaUsed", "used", "usedByData", "quotaTotalPerNode"))
        whole(totals["hdd"], ("total", "quotaTotal", "used", "usedByData", "free"))
        assert totals["hdd"]["used"] + totals["hdd"]["free"] <= totals["hdd"]["total"], totals
    whole(pool, ("memoryQuota", "maxBucketCount"))
    equal((pool["rebalanceStatus"], pool["balanced"], pool["counters"]), ("none", True, {}))
    for bucket in world.get("/pools/default/buckets"):
        whole(bucket["quota"], ("ram", "rawRAM"))
        whole(bucket["basicStats"], ("opsPerSec", "diskFetches", "itemCount", "diskUsed", "dataUsed", "memUsed"))
        servers = world.get(f"/pools/default/buckets/{bucket['name']}/nodes")["servers"]
        for server in servers:
            by_name = world.get(f"/pools/default/buckets/{bucket['name']}/nodes/{server['hostname']}/stats")
            equal(by_name["op"]["samples"]["curr_items"], [DOCUMENTS])
            equal(world.get(server["stats"]["uri"])["op"]["samples"]["curr_items"], [DOCUMENTS])
    for task in world.get("/pools/default/tasks"):
        equal((task["type"], task["status"]), ("rebalance", "notRunning"))


@suite.test
def datadogs_check_finds_its_keys(world):
    """github.com/DataDog/integrations-core, couchbase: the path of each read is in the answer to the one before."""
    pool = world.get("/pools/default")
    for kind in pool["storageTotals"].values():
        assert all(isinstance(value, int | float) for value in kind.values()), kind
    for bucket in world.get(pool["buckets"]["uri"]):
        samples = world.get(bucket["stats"]["uri"])["op"]["samples"]
        # It takes the first of each, and sends it as a gauge.
        numbers = [values[0] for values in samples.values()]
        assert len(numbers) > 200 and all(isinstance(value, int | float) for value in numbers), samples
    equal([task["type"] for task in world.get("/pools/default/tasks")], ["rebalance"])


if __name__ == "__main__":
    suite.main(World())
