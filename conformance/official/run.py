"""Runs the official test suite of a client, unmodified, from its package against a node, with a replica for some suites;
`SUITE-cluster` runs against a cluster of three nodes.

    SETTEE_BIN=target/debug/settee python3 conformance/official/run.py SUITE [PATTERN]

By hand, not part of `cargo xtask test`. What was fetched stays below `target/official`
(`SETTEE_OFFICIAL_DIR`), with the log of the last run beside it. The last line is
`N passed, N failed, N skipped`; failures with a reason in `NOT_OURS` do not count as failed.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urljoin
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from cluster import Cluster  # noqa: E402
from etcd import Etcd  # noqa: E402
from harness import Node, binary, clean_environment  # noqa: E402
from manage import must  # noqa: E402
from pair import Pair  # noqa: E402

HOME = Path(os.environ.get("SETTEE_OFFICIAL_DIR", HERE.parents[1] / "target" / "official")).resolve()
SUITE_SECONDS = 1500
VERSION = "7.6.2"


def run(command, folder, log, **environment):
    """Runs `command`; its output goes to `log`, and is returned."""
    with log.open("w") as out:
        subprocess.run(
            command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False,
            timeout=SUITE_SECONDS, env={**clean_environment(), **environment},
        )  # fmt: skip
    return log.read_text(errors="replace")


def go_module(module, version):
    """A copy of a module that may be written, as `go test` wants it."""
    copy = HOME / f"{module.replace('/', '-')}@{version}"
    if not copy.exists():
        told = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"],
            cwd="/", env={**os.environ, "GOFLAGS": "-mod=mod"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if told.returncode:
            raise SystemExit(f"{module}@{version} cannot be had: {told.stdout}{told.stderr}")
        shutil.copytree(json.loads(told.stdout)["Dir"], copy)
        subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
    return copy


def go(name, module, version, flags):
    """A suite of Go, whose flags are `flags(node)`."""

    def start(node, pattern):
        folder = go_module(module, version)
        command = ["go", "test", "-mod=mod", "-count=1", f"-timeout={SUITE_SECONDS}s", "-v", "-run", pattern or ".", "."]
        output = run([*command, "-args", *flags(node)], folder, HOME / f"{name}.log")
        return re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", output, re.MULTILINE)

    return start


def gocbcore_flags(node, *more):
    """Services that are not here are left out with the suite's own flag."""
    return [
        f"-connstr={node.connection_string}", "-user=Administrator", "-pass=password", "-bucket=default",
        f"-cluster-version={VERSION}", "-features=-n1ql,-cbas,-fts,-views,-memd", *more,
    ]  # fmt: skip


def gocb_flags(node):
    """As `gocbcore_flags`, for the SDK above it. Loads of transactions empty the bucket: with a cluster only."""
    absent = (
        "view,query,clusterQuery,search,searchindex,analytics,analyticsindex,adjoin,searchanalyze,pinganalytics,"
        "queryindex,collectionsquery,collectionsanalytics,eventingmanagement,ratelimits,transactionsquery,"
        "scopesearch,scopesearchindex,vectorsearch,scopeeventingmanagement,customconflictresolution"
    )
    features = ",".join(f"-{feature}" for feature in absent.split(","))
    return [
        f"-server={node.connection_string}", "-user=Administrator", "-pass=password", "-bucket=default",
        f"-version={VERSION}", f"-features={features}",
        f"-enable-txn-load-tests={getattr(node, 'can_be_flushed', False)}",
    ]  # fmt: skip


def crate(name, crate_name, version):
    """A suite of Rust: the crate's integration tests, in a copy of its package."""

    def start(node, pattern):
        folder = HOME / f"{crate_name}-{version}"
        if not folder.exists():
            fetch = HOME / "fetch"
            (fetch / "src").mkdir(parents=True, exist_ok=True)
            (fetch / "src" / "lib.rs").touch()
            manifest = f'[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n{crate_name} = "={version}"\n'
            (fetch / "Cargo.toml").write_text(manifest + "[workspace]\n")
            subprocess.run(["cargo", "fetch", "--quiet"], cwd=fetch, check=True)
            cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
            source = next(cargo.glob(f"registry/src/*/{crate_name}-{version}"))
            shutil.copytree(source, folder)
        # Of queries and search, which are not here, each test waits until its deadline.
        files = sorted({file.stem for file in folder.glob("tests/*.rs")} - {"query", "search", "search_indexes"})
        tests = [word for file in files for word in ("--test", file)]
        output = run(
            ["cargo", "test", "--lib", *tests, "--no-fail-fast", *([pattern] if pattern else []), "--", "--test-threads=1"],
            folder, HOME / f"{name}.log",
            CARGO_TARGET_DIR=str(HOME / "rust-target"),
            RCBCONNSTR=node.connection_string, RCBUSERNAME="Administrator", RCBPASSWORD="password",
            RCBBUCKET="default", RCBSERVER_VERSION=VERSION,
        )  # fmt: skip
        words = {"ok": "PASS", "FAILED": "FAIL", "ignored": "SKIP"}
        told = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (?:.*\n)*?.*?(ok|FAILED|ignored)$", output, re.MULTILINE)
        return [(words[word], test) for test, word in told]

    return start


# What a test run of the Python SDK gives its tests, which its package does not bring.
PYTHON_FIXTURES = """
import pytest
from tests.couchbase_config import CouchbaseConfig
from tests.data_provider import DataProvider
from tests.environments.test_environment import TestEnvironment

def environment(config):
    documents = DataProvider(100)
    documents.build_docs()
    return TestEnvironment.get_environment(couchbase_config=config, data_provider=documents)

couchbase_config = pytest.fixture(CouchbaseConfig.load_config, scope="session")
cb_base_env = pytest.fixture(lambda couchbase_config: environment(couchbase_config), scope="session", name="cb_base_env")
cb_base_txn_env = pytest.fixture(lambda couchbase_config: environment(couchbase_config), scope="session", name="cb_base_txn_env")
"""
PYTHON_NEEDS = ["pytest<8", "pytest-asyncio~=0.17", "pytest-rerunfailures", "pytest-timeout", "requests", "Faker~=16.6", "faker-vehicle~=0.2"]


def sources_of_python(version):
    """The sources of the Python SDK, from the index that pip uses; pip itself would build them."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    index = f"{told.stdout.strip() or 'https://pypi.org/simple'}/couchbase/"
    page = urlopen(index).read().decode()
    link = re.search(rf'href="([^"#]*couchbase-{version}\.tar\.gz)', page)[1]
    with tarfile.open(fileobj=io.BytesIO(urlopen(urljoin(index, link)).read())) as packed:
        packed.extractall(HOME, filter="data")
    return HOME / f"couchbase-{version}"


def python(name, version, client):
    """The suite of the Python SDK: the tests of one version, the last one with their fixtures, with a later client."""

    def start(node, pattern):
        folder, home = HOME / f"{name}-{version}", HOME / f"{name}-client-{client}"
        if not (folder / "conftest.py").exists():
            sources = sources_of_python(version)
            shutil.copytree(sources / "tests", folder / "tests", dirs_exist_ok=True)
            shutil.copytree(sources / "couchbase" / "tests", folder / "suite", dirs_exist_ok=True)
            shutil.copy(sources / "pyproject.toml", folder)
            (folder / "conftest.py").write_text(PYTHON_FIXTURES)
        if not (home / "bin" / "pytest").exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([home / "bin" / "pip", "install", "-q", f"couchbase=={client}", *PYTHON_NEEDS], check=True)
        host = node.connection_string.removeprefix("couchbase://")
        (folder / "tests" / "test_config.ini").write_text(
            f"[realserver]\nenabled=True\nhost={host}\nport=0\nadmin_username=Administrator\n"
            "admin_password=password\nbucket_name=default\nbucket_password=\n[gocaves]\nenabled=False\n"
        )
        absent = "analytics|query|search|view|eventing|rate_limit|tracing|metrics"
        files = [path for path in sorted(folder.glob("suite/*_t.py")) if not re.match(absent, path.name)]
        command = [home / "bin" / "python", "-m", "pytest", "-rA", "--timeout=120", *(["-k", pattern] if pattern else [])]
        output = run([*command, *files], folder, HOME / f"{name}.log")
        words = {"PASSED": "PASS", "FAILED": "FAIL", "ERROR": "FAIL", "SKIPPED": "SKIP"}
        told = re.findall(r"^(PASSED|FAILED|ERROR) suite/(\S+)", output, re.MULTILINE)
        skipped = re.search(r"(\d+) skipped", output)
        return [(words[word], test) for word, test in told] + [("SKIP", "")] * int(skipped[1] if skipped else 0)

    return start


GOCBCORE = "github.com/couchbase/gocbcore/v10"
SUITES = {
    "gocbcore": go("gocbcore", GOCBCORE, "v10.8.1", gocbcore_flags),
    "gocbcore-dcp": go("gocbcore-dcp", GOCBCORE, "v10.8.1", lambda node: gocbcore_flags(node, "-test-suite=2")),
    "gocbcore-replica": go("gocbcore-replica", GOCBCORE, "v10.8.1", gocbcore_flags),
    "gocb": go("gocb", "github.com/couchbase/gocb/v2", "v2.11.1", gocb_flags),
    "rust": crate("rust", "couchbase", "1.1.0"),
    "rust-core": crate("rust-core", "couchbase-core", "1.1.0"),
    "python": python("python", "4.1.8", "4.1.12"),
}
CLUSTER = "-cluster"

# `gocbcore` looks for keys of each node, and a replica has none that are active.
WITH_REPLICA = {"gocbcore-replica": "TestStandardSuite/.*(Replica|Observe)", "gocb": ""}

# Failures that are not the node's: a pattern of the test's name, and why.
NOT_OURS = {
    "gocbcore::.*/TestGetHttpEps": "wants a query service",
    "gocbcore::.*/(Test.*GetReplica|TestObserveSeqNo)": "wants a replica: `gocbcore-replica`",
    "rust::test_(bucket|cluster)_ping": "wants a query service",
    "rust-core::test_(ping|get_cluster_agent)": "wants a query service",
    "rust-core::test_(json_block_read|row_streamer)": "has 127.0.0.1:8091 and :8093 written in",
    "python::.*_query.*|python::.*::test_(query|bad_query).*": "wants a query service",
    "python::.*::test_get_after_lock.*|python::.*::test_get_and_lock_replace.*|python::.*::test_unlock_wrong_cas.*":
        "was written before servers tell that a document is not locked",
    "python::.*::test_project_too_many.*|python::transactions_t.py.*(expiration_time|kv_timeout).*": "of another version of the client",
    "python::.*::test_get_all_scopes.*": "was written before the scope _system",
    "python::.*::test_external_.*": "makes users of another directory, which are refused",
    "python::.*::test_bucket_create_replica_index_true.*": "wants replicas of views' indexes",
    "python::connection_t.py.*": "none of the node: a connection string of the client",
    "gocb::.*/TestClusterPingAll": "wants services for queries and search",
    "gocb::.*/TestBucketMgrMemcached": "makes a `memcached` bucket, which is refused",
    "gocb::.*/TestRangeScanRangeCancellation": "a cancelled scan returns what has arrived, or the cancellation: Go chooses at random",
    "gocb::.*/Test.*WaitUntilReadyFastFailConnStr": "wants 10.10.10.10 to be silent; fails where a proxy answers for it",
}


@contextmanager
def nodes(name):
    """A node, with the ports of TLS too; with a replica that follows for suites that want one; or three nodes."""
    if name.endswith(CLUSTER):
        # No node dies here: one that waits for a busy machine shall not be taken for dead.
        with Etcd() as etcd, Cluster(etcd, "official", nodes=3, lease=30) as cluster:
            bucket = {"name": "default", "ramQuotaMB": "200", "replicaNumber": "1", "flushEnabled": "1"}
            must(cluster.nodes[0], "POST", "/pools/default/buckets", **bucket)
            seeds = ",".join(f"127.0.0.1:{node.kv}" for node in cluster.nodes)
            yield SimpleNamespace(connection_string=f"couchbase://{seeds}", can_be_flushed=True)
        return
    tls = ["--kv-tls-port", "0", "--https-port", "0"]
    if name in WITH_REPLICA:
        with Pair(*tls) as pair:
            pair.streams()
            yield pair.nodes[0]
    else:
        with Node(*tls).start().ready().watched() as node:
            yield node


def main():
    """Runs one suite and says what became of it."""
    asked, name = sys.argv[1], sys.argv[1].removesuffix(CLUSTER)
    pattern = next(iter(sys.argv[2:]), WITH_REPLICA.get(name, ""))
    if name not in SUITES:
        raise SystemExit(f"no suite {name}; there are {', '.join(SUITES)}, each also with {CLUSTER}")
    binary()
    HOME.mkdir(parents=True, exist_ok=True)
    with nodes(asked) as node:
        results = SUITES[name](node, pattern)
    count = Counter()
    for outcome, test in results:
        if outcome == "FAIL" and any(other.startswith(f"{test}/") for _, other in results):
            continue  # It holds others, one of which failed.
        reason = next((why for known, why in NOT_OURS.items() if re.fullmatch(known, f"{name}::{test}")), None)
        if outcome == "FAIL":
            outcome = "NOT OURS" if reason else "FAIL"
            print(f"{outcome} {name}: {test}{f': {reason}' if reason else ''}")
        count[outcome] += 1
    print(f"{count['NOT OURS']} failed for reasons that are not the node's; the log is {HOME / f'{name}.log'}")
    print(f"{count['PASS']} passed, {count['FAIL']} failed, {count['SKIP']} skipped")
    raise SystemExit(1 if count["FAIL"] or not count["PASS"] else 0)


if __name__ == "__main__":
    main()
