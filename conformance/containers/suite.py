"""Testcontainers' Couchbase modules start a node: their calls, in their order, as their published sources send them.

No container engine is at hand, so the calls are replayed (testcontainers-java, -go, -dotnet, -node and -python, the
module `couchbase` of each), over forwarded ports as an engine maps them. Then the SDK connects to what was set up.
"""

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.diagnostics import PingState, ServiceType
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, TLSVerifyMode
from harness import Node, Suite, equal, eventually, raises
from mcbp import Connection

suite = Suite("containers")

SERVICES = ["kv", "n1ql", "fts", "index"]
PRESENT = 'SELECT COUNT(*) > 0 as present FROM system:keyspaces WHERE name = "{}"'
CREATE = "CREATE PRIMARY INDEX on `{}`"
ONLINE = (
    'SELECT count(*) > 0 AS online FROM system:indexes where keyspace_id = "{}" and is_primary = true and state = "online"'
)


class Forward:
    """A port of its own that leads to one of the node's, as an engine maps ports of a container."""

    def __init__(self, target):
        self.target, self.accepted = target, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                node = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for ends in ((client, node), (node, client)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    @staticmethod
    def copy(source, to):
        try:
            while data := source.recv(1 << 16):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()

    def close(self):
        self.listener.close()


class Container:
    """A node as an image runs it, with mapped ports, and the calls of a module."""

    def __init__(self, node, user="Administrator", password="password"):
        self.node, self.user, self.password = node.start(), user, password
        self.mapped = {name: Forward(port) for name, port in node.ports.items()}

    def port(self, name):
        return self.mapped[name].port

    def mapping(self, *names):
        """Fields for ports; those of services over TLS are mapped, although nothing listens there."""
        ours = {"mgmt": "http", "mgmtSSL": "https", "kvSSL": "kv_tls", "n1ql": "query", "fts": "search"}
        at = lambda name: self.mapped.get(ours.get(name, name))  # noqa: E731
        return {name: at(name).port if at(name) else 32_000 + number for number, name in enumerate(names)}

    def call(self, method, path, form=None, auth=False, at="http", encode=urlencode):
        """Status and body."""
        headers = {}
        if auth:
            login = f"{self.user}:{self.password}".encode()
            headers["Authorization"] = "Basic " + b64encode(login).decode()
        url = f"http://127.0.0.1:{self.port(at)}{path}"
        data = None if form is None else encode(form).encode()
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def must(self, method, path, form=None, **how):
        status, body = self.call(method, path, form, **how)
        assert 200 <= status < 300, f"{method} {path} {form}: {status} {body}"
        return body

    def wait(self, path, good=lambda _: True, auth=False, at="http"):
        """Waits as a strategy for HTTP does: for 200 and what is in the body."""

        def probe():
            status, body = self.call("GET", path, auth=auth, at=at)
            return status == 200 and good(body)

        eventually(f"GET {path}", probe)

    def wait_healthy(self):
        self.wait("/pools/default", lambda body: json.loads(body)["nodes"][0]["status"] == "healthy", auth=True)

    def wait_services(self, bucket, services):
        """Each service begins a key of each node's services."""

        def all_there(body):
            nodes = json.loads(body)["nodesExt"]
            return all(any(key.startswith(one) for key in node["services"]) for node in nodes for one in services)

        self.wait(f"/pools/default/b/{bucket}", all_there, auth=True)

    def query(self, statement, **how):
        body = self.must("POST", "/query/service", {"statement": statement}, auth=True, at="query", **how)
        return json.loads(body)

    def wait_query(self, statement, column, **how):
        def is_true():
            return self.query(statement, **how)["results"][0][column]

        eventually(statement, is_true)

    def credentials(self, port="SAME"):
        return {"username": self.user, "password": self.password, "port": port}

    def connect(self, over_tls=False, **options):
        scheme, name = ("couchbases", "kv_tls") if over_tls else ("couchbase", "kv")
        login = PasswordAuthenticator(self.user, self.password)
        options = ClusterOptions(login, tls_verify=TLSVerifyMode.NONE, **options)
        cluster = Cluster(f"{scheme}://127.0.0.1:{self.port(name)}", options)
        cluster.wait_until_ready(timedelta(seconds=15))
        return cluster

    def close(self):
        for forward in self.mapped.values():
            forward.close()
        self.node.close()


@contextmanager
def container(*flags, **login):
    made = Container(Node("--provisionable", "--query-port", "0", "--search-port", "0", *flags), **login)
    try:
        yield made
    finally:
        made.close()


def uses(made, bucket, over_tls=False):
    """The SDK reads and writes, over mapped ports only."""
    kv = made.mapped["kv_tls" if over_tls else "kv"]
    before = kv.accepted
    cluster = made.connect(over_tls)
    documents = cluster.bucket(bucket).default_collection()
    documents.upsert("sofa", {"seats": 3})
    equal(documents.get("sofa").content_as[dict], {"seats": 3})
    cluster.close()
    assert kv.accepted > before, "the SDK went past the mapped port"


def is_closed(made):
    """Nobody does anything without credentials any more, and the first caller stays the administrator."""
    for method, path in (
        ("GET", "/pools/default"), ("GET", "/settings/web"), ("POST", "/settings/web"), ("POST", "/clusterInit"),
        ("POST", "/pools/default"), ("POST", "/node/controller/setupServices"), ("POST", "/pools/default/buckets"),
        ("PUT", "/settings/rbac/users/local/eve"), ("GET", "/metrics"), ("GET", "/no/such/path"),
    ):  # fmt: skip
        form = None if method == "GET" else {"username": "eve", "password": "secret1", "port": "SAME"}
        equal(made.call(method, path, form)[0], 401, f"{method} {path} without credentials")
    for at, path in (("query", "/admin/ping"), ("query", "/query/service"), ("search", "/api/ping")):
        equal(made.call("GET", path, at=at)[0], 401, f"{path} without credentials")
    status, body = made.call("POST", "/settings/web", {"username": "eve", "password": "secret1"}, auth=True)
    equal(status, 400, "another administrator")
    assert "already" in body, body
    equal(made.call("POST", "/settings/web", made.credentials(), auth=True)[0], 200, "the same once more")


@suite.test
def java_starts_it(_):
    percent = lambda form: urlencode(form, quote_via=quote)  # noqa: E731
    with container() as made:
        made.wait("/pools")
        equal(json.loads(made.must("GET", "/pools", auth=True))["isEnterprise"], False)
        topology = json.loads(made.must("GET", "/pools/default/nodeServices", auth=True))
        assert "mgmtSSL" not in topology["nodesExt"][0]["services"], topology
        made.must("POST", "/node/controller/rename", {"hostname": "172.17.0.2"})
        made.must("POST", "/node/controller/setupServices", {"services": ",".join(SERVICES)}, encode=percent)
        made.must(
            "POST", "/pools/default", {"memoryQuota": 256, "ftsMemoryQuota": 256, "indexMemoryQuota": 256}
        )  # fmt: skip
        made.must("POST", "/settings/web", made.credentials(made.node.ports["http"]))
        external = {"hostname": "localhost", **made.mapping("mgmt", "kv", "capi", "n1ql", "fts")}
        made.must("PUT", "/node/controller/setupAlternateAddresses/external", external, auth=True)
        made.must("POST", "/settings/indexes", {"storageMode": "forestdb"}, auth=True)
        made.wait_healthy()
        made.wait("/admin/ping", auth=True, at="query")
        bucket = {"name": "mybucket", "ramQuotaMB": 100, "flushEnabled": 0, "replicaNumber": 0}
        made.must("POST", "/pools/default/buckets", bucket, auth=True)
        made.wait_services("mybucket", SERVICES)
        made.wait_query(PRESENT.format("mybucket"), "present", encode=percent)
        made.query(CREATE.format("mybucket"), encode=percent)
        made.wait_query(ONLINE.format("mybucket"), "online", encode=percent)
        uses(made, "mybucket")
        is_closed(made)


@suite.test
def go_starts_it(_):
    """It sends an empty form with GET as well, and ports of services over TLS that are not served."""
    with container(user="someone", password="secret1") as made:
        made.wait("/pools")
        made.must("GET", "/pools", {})
        made.must("POST", "/node/controller/rename", {"hostname": "172.17.0.2"})
        made.must("POST", "/node/controller/setupServices", {"services": ",".join(SERVICES)})
        made.must(
            "POST", "/pools/default", {"ftsMemoryQuota": 256, "indexMemoryQuota": 256, "memoryQuota": 256}
        )  # fmt: skip
        made.must("POST", "/settings/web", made.credentials())
        ports = ["capi", "capiSSL", "fts", "ftsSSL", "kv", "kvSSL", "mgmt", "mgmtSSL", "n1ql", "n1qlSSL"]
        external = {"hostname": "localhost", **made.mapping(*ports)}
        made.must("PUT", "/node/controller/setupAlternateAddresses/external", external, auth=True)
        made.must("POST", "/settings/indexes", {"storageMode": "forestdb"}, auth=True)
        made.wait_healthy()
        made.wait("/admin/ping", auth=True, at="query")
        bucket = {"flushEnabled": 1, "name": "testBucket", "ramQuotaMB": 100, "replicaNumber": 0}
        made.must("POST", "/pools/default/buckets", bucket, auth=True)
        made.wait_services("testBucket", SERVICES)
        made.wait_query(PRESENT.format("testBucket"), "present")
        equal(made.query(ONLINE.format("testBucket"))["results"], [{"online": False}], "before there is one")
        made.query(CREATE.format("testBucket"))
        made.wait_query(ONLINE.format("testBucket"), "online")
        uses(made, "testBucket")
        is_closed(made)


@suite.test
def dotnet_starts_it(_):
    """Its bucket comes before the administrator, with a quota under another name."""
    services = ["kv", "index", "n1ql", "fts"]
    with container() as made:
        made.wait("/pools")
        made.must("POST", "/node/controller/rename", {"hostname": "172.17.0.2"})
        made.must("POST", "/node/controller/setupServices", {"services": ",".join(services)})
        made.must(
            "POST", "/pools/default", {"memoryQuota": 256, "indexMemoryQuota": 256, "ftsMemoryQuota": 256}
        )  # fmt: skip
        ports = ["mgmt", "mgmtSSL", "kv", "kvSSL", "capi", "capiSSL", "n1ql", "n1qlSSL", "fts", "ftsSSL"]
        external = {"hostname": "127.0.0.1", **made.mapping(*ports)}
        made.must("PUT", "/node/controller/setupAlternateAddresses/external", external)
        bucket = {"name": "default", "flushEnabled": 0, "ramQuota": 100, "replicaNumber": 0}
        made.must("POST", "/pools/default/buckets", bucket)
        made.must("POST", "/settings/web", made.credentials())

        def all_there(body):
            told = json.loads(body)["nodes"][0]["services"]
            return all(any(name.startswith(one) for name in told) for one in services)

        made.wait("/pools/default/buckets/default", all_there, auth=True)
        made.wait_healthy()
        made.wait("/admin/ping", auth=True, at="query")
        uses(made, "default")
        is_closed(made)


@suite.test
def node_starts_it(_):
    """It waits for a line of the log, and sends each quota alone."""
    with container() as made:
        line = "Starting Couchbase Server -- Web UI available at http://<ip>:8091"
        assert line in made.node.log.read_text(), made.node.tail()
        made.wait("/pools")
        equal(json.loads(made.must("GET", "/pools", auth=True))["isEnterprise"], False)
        made.must("POST", "/node/controller/rename", {"hostname": "172.17.0.2"})
        made.must("POST", "/node/controller/setupServices", {"services": ",".join(SERVICES)})
        for quota in ("memoryQuota", "ftsMemoryQuota", "indexMemoryQuota"):
            made.must("POST", "/pools/default", {quota: 256})
        made.must("POST", "/settings/web", made.credentials(made.node.ports["http"]))
        ports = ["mgmt", "mgmtSSL", "kv", "kvSSL", "capi", "capiSSL", "n1ql", "n1qlSSL", "fts", "ftsSSL"]
        external = {"hostname": "localhost", **made.mapping(*ports)}
        made.must("PUT", "/node/controller/setupAlternateAddresses/external", external, auth=True)
        made.must("POST", "/settings/indexes", {"storageMode": "forestdb"}, auth=True)
        made.wait_healthy()
        made.wait("/admin/ping", auth=True, at="query")
        bucket = {"name": "mybucket", "ramQuotaMB": 100, "flushEnabled": 0, "replicaNumber": 0}
        made.must("POST", "/pools/default/buckets", bucket, auth=True)
        made.wait_services("mybucket", SERVICES)
        made.wait_query(PRESENT.format("mybucket"), "present")
        made.query(CREATE.format("mybucket"))
        online = ONLINE.replace("count", "COUNT").replace("AS", "as").replace("where", "WHERE")
        made.wait_query(online.format("mybucket"), "online")
        uses(made, "mybucket")
        is_closed(made)


@suite.test
def python_starts_it(_):
    """It asks for no services, and its client connects over TLS."""
    with container("--kv-tls-port", "0", "--https-port", "0") as made:
        assert "and logs available in" in made.node.log.read_text(), made.node.tail()
        made.wait("/settings/web")
        made.must("POST", "/settings/web", made.credentials())
        bucket = {"name": "mybucket", "bucketType": "couchbase", "ramQuotaMB": 256}
        made.must("POST", "/pools/default/buckets", bucket, auth=True)
        scopes = "/pools/default/buckets/mybucket/scopes"
        made.must("POST", scopes, {"name": "myscope"}, auth=True)
        collection = {"name": "mycollection", "maxTTL": 3600, "history": "false"}
        made.must("POST", f"{scopes}/myscope/collections", collection, auth=True)
        uses(made, "mybucket", over_tls=True)
        equal(services_of(made), {"kv", "kvSSL", "mgmt", "mgmtSSL"}, "services that nobody asked for")
        is_closed(made)


def services_of(made, path="/pools/default/nodeServices"):
    return set(json.loads(made.must("GET", path, auth=True))["nodesExt"][0]["services"])


def provision(made, services):
    made.must("POST", "/node/controller/setupServices", {"services": services})
    made.must("POST", "/settings/web", made.credentials())


@suite.test
def a_restart_stays_provisioned(_):
    with container() as made:
        warning = "there is no administrator yet"
        assert warning in made.node.log.read_text(), made.node.tail()
        equal(made.call("GET", "/pools/default")[0], 200, "a node without administrator is open")
        raises(AssertionError, lambda: Connection(made.node.kv).login(bucket=None))
        provision(made, "kv,n1ql")
        made.must("POST", "/pools/default/buckets", {"name": "kept", "ramQuotaMB": 100}, auth=True)
        uses(made, "kept")
        for stop in (made.node.stop, made.node.kill):
            stop()
            made.node.log.unlink()
            # The stand-ins take other ports.
            made.node.start().ready()
            for name in ("query", "search"):
                made.mapped[name].target = made.node.ports[name]
            assert warning not in made.node.log.read_text(), made.node.tail()
            is_closed(made)
            equal(services_of(made), {"kv", "mgmt", "n1ql"}, "after a restart")
            uses(made, "kept")
        # Without the flag the administrator is the one of the flags, and nothing but KV is told.
        made.node.stop()
        made.node.flags = ["--username", "root", "--password", "secret2"]
        made.node.start().ready()
        equal(services_of(made), {"kv", "mgmt"}, "without the flag")
        equal(set(made.node.ports), {"kv", "http"})
        made.user, made.password = "root", "secret2"
        uses(made, "kept")


@suite.test
def only_what_was_asked_for_is_told(_):
    with container() as made:
        equal(services_of(made), {"kv", "mgmt"}, "before anything was asked for")
        made.must("POST", "/node/controller/setupServices", {"services": "kv,fts"})
        made.must("POST", "/node/controller/setupServices", {"services": "kv,n1ql"})
        made.must("POST", "/settings/web", made.credentials())
        made.must("POST", "/pools/default/buckets", {"name": "b", "ramQuotaMB": 100}, auth=True)
        for path in ("/pools/default/nodeServices", "/pools/default/b/b"):
            equal(services_of(made, path), {"kv", "mgmt", "n1ql"}, path)
        equal(json.loads(made.must("GET", "/nodes/self", auth=True))["services"], ["kv", "n1ql"])
        status, body = made.call("POST", "/node/controller/setupServices", {"services": "kv"}, auth=True)
        equal(status, 400, "after there is an administrator")
        assert "before" in body, body
        made.must("POST", "/node/controller/setupServices", {"services": "n1ql,kv"}, auth=True)
    plain = Container(Node())
    try:
        equal(services_of(plain), {"kv", "mgmt"}, "without the flag")
        for path, form in (
            ("/node/controller/setupServices", {"services": "kv,n1ql"}),
            ("/settings/indexes", {"storageMode": "forestdb"}),
            ("/pools/default", {"ftsMemoryQuota": 256}),
        ):
            equal(plain.call("POST", path, form, auth=True)[0], 400, path)
    finally:
        plain.close()


@suite.test
def wrong_bodies_are_refused_with_reasons(_):
    with container() as made:
        external = "/node/controller/setupAlternateAddresses/external"
        cases = [
            ("POST", "/node/controller/rename", {"host": "x"}, "hostname"),
            ("POST", "/node/controller/setupServices", {"services": "kv,cbas"}, "cbas"),
            ("POST", "/node/controller/setupServices", {"services": "n1ql"}, "kv"),
            ("POST", "/node/controller/setupServices", {"services": ""}, "services"),
            ("POST", "/pools/default", {"memoryQuota": "much"}, '"memoryQuota":"The value must be an integer'),
            ("POST", "/pools/default", {"indexMemoryQuota": "much"}, '"indexMemoryQuota":"The value must be'),
            ("POST", "/pools/default", {"cbasMemoryQuota": 1024}, '"cbasMemoryQuota":'),
            ("POST", "/pools/default", {"nonsense": 1}, '"nonsense":"Unsupported key"'),
            ("POST", "/settings/indexes", {"storageMode": "paper"}, '"storageMode":"The value must be one of'),
            ("POST", "/settings/web", {}, '"username":'),
            ("POST", "/settings/web", {"username": "a b", "password": "secret1"}, '"username":'),
            ("POST", "/settings/web", {"username": "ada", "password": "short"}, '"password":"The password must'),
            ("POST", "/settings/web", {"username": "ada", "password": "secret1", "port": "80"}, '"port":'),
            ("POST", "/settings/web", {"username": "ada", "password": "secret1", "x": 1}, '"x":"Unsupported key"'),
            ("PUT", external, {"hostname": "a b", "kv": 1}, '"hostname":'),
            ("PUT", external, {"hostname": "h", "kv": "70000", "n1ql": "x"}, '"n1ql":'),
            ("PUT", external, {"hostname": "h", "cbas": "8095"}, '"cbas":'),
            ("POST", "/pools/default/buckets", {"ramQuotaMB": 100}, '"name":'),
        ]
        made.must("POST", "/node/controller/setupServices", {"services": "kv,n1ql,index"})
        for method, path, form, word in cases:
            status, body = made.call(method, path, form)
            equal(status, 400, f"{path} {form}: {body}")
            assert word in body, f"{path} {form}: {body}"
        equal(made.call("GET", "/pools/default")[0], 200, "nobody closed it")
        init = {"services": "kv,n1ql", "username": "ada", "password": "secret1", "port": "SAME", "sendStats": "false"}
        made.must("POST", "/clusterInit", init)
        made.user, made.password = "ada", "secret1"
        equal(services_of(made), {"kv", "mgmt", "n1ql"}, "all in one call")
        is_closed(made)


@suite.test
def only_one_becomes_the_administrator(_):
    with container() as made:
        said = {}

        def ask(number):
            form = {"username": f"u{number}", "password": "secret1", "port": "SAME"}
            said[number] = made.call("POST", "/settings/web", form)[0]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [number for number, status in said.items() if status == 200]
        equal(len(winners), 1, f"administrators: {said}")
        assert set(said.values()) <= {200, 400, 401}, said
        made.user, made.password = f"u{winners[0]}", "secret1"
        users = json.loads(made.must("GET", "/settings/rbac/users", auth=True))
        equal([user["id"] for user in users], [made.user])


@suite.test
def a_stand_in_says_that_it_is_one(_):
    with container() as made:
        provision(made, ",".join(SERVICES))
        external = {"hostname": "127.0.0.1", **made.mapping("mgmt", "kv", "n1ql", "fts")}
        made.must("PUT", "/node/controller/setupAlternateAddresses/external", external, auth=True)
        made.must("POST", "/pools/default/buckets", {"name": "b", "ramQuotaMB": 100}, auth=True)
        cluster = made.connect()
        cluster.bucket("b").default_collection().upsert("sofa", {"seats": 3})
        ping = cluster.ping()
        for service in (ServiceType.KeyValue, ServiceType.Query, ServiceType.Search):
            states = [end.state for end in ping.endpoints.get(service, [])]
            assert states and set(states) == {PingState.OK}, f"{service}: {states}"
        for statement in ("SELECT * FROM `b`", "SELECT 1", "UPDATE `b` SET x = 1"):
            error = raises(CouchbaseException, lambda text=statement: list(cluster.query(text)))
            assert "no queries" in f"{error} {error.__dict__}", error
        cluster.close()
        for path in ("/api/index", "/api/index/i/query", "/api/stats"):
            status, body = made.call("POST", path, {"x": 1}, auth=True, at="search")
            equal(status, 501, path)
            equal(json.loads(body)["status"], "fail", path)
            assert "no full-text search" in body, body
        status, body = made.call("POST", "/query/service", {"x": 1}, auth=True, at="query")
        equal((status, json.loads(body)["errors"][0]["code"]), (400, 1050), "no statement")
        status, body = made.call("POST", "/query/service", {"statement": CREATE.format("x")}, auth=True, at="query")
        equal((status, json.loads(body)["errors"][0]["code"]), (404, 12_003), "an index of a bucket that is not there")
        equal(made.query(PRESENT.format("x"))["results"], [{"present": False}])
        made.query(CREATE.format("b"))
        status, body = made.call("POST", "/query/service", {"statement": CREATE.format("b")}, auth=True, at="query")
        equal((status, json.loads(body)["errors"][0]["code"]), (409, 4300), "the same index")
        # A user of another bucket learns nothing of this one.
        eve = {"password": "secret1", "roles": "query_select[b]"}
        made.must("PUT", "/settings/rbac/users/local/eve", eve, auth=True)
        made.user, made.password = "eve", "secret1"
        equal(made.query(PRESENT.format("b"))["results"], [{"present": False}], "for who may not see it")


if __name__ == "__main__":
    suite.main(None)
