//! The conformance suites: their requirements, and the commands that start them.
//!
//! A suite is a program that starts its own nodes from the binary named by `SETTEE_BIN`, and prints passed and
//! failed tests. Its last line is `N passed, N failed`. It fails if a test failed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::install;
use crate::workspace::Workspace;

/// Language of a suite, which selects the command.
#[derive(Clone, Copy)]
enum Language {
    /// Python without installed packages.
    PlainPython,
    /// Python in a virtual environment with the clients.
    Python,
    Go,
    Node,
    /// Java, compiled by Maven, which also installs the client.
    Java,
}

/// One conformance suite.
#[derive(Clone, Copy)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// Programs that must be on the search path.
    pub(super) needs: &'static [&'static str],
    language: Language,
    /// Whether clients connect with `couchbases://`.
    tls: bool,
    /// Whether the bucket has 128 vBuckets.
    few_vbuckets: bool,
    /// Path below `conformance/`: the script, or the folder of a module.
    entry: &'static str,
}

const fn suite(
    name: &'static str,
    needs: &'static [&'static str],
    language: Language,
    entry: &'static str,
) -> Suite {
    Suite {
        name,
        needs,
        language,
        tls: false,
        few_vbuckets: false,
        entry,
    }
}

/// Returns the same suite over TLS.
const fn over_tls(name: &'static str, suite: Suite) -> Suite {
    Suite {
        name,
        tls: true,
        ..suite
    }
}

/// Returns the same suite with a bucket of 128 vBuckets.
const fn with_few_vbuckets(name: &'static str, suite: Suite) -> Suite {
    Suite {
        name,
        few_vbuckets: true,
        ..suite
    }
}

const PYTHON: Suite = suite(
    "python",
    &["python3", "openssl"],
    Language::Python,
    "python/sdk.py",
);
const GO: Suite = suite("go", &["go"], Language::Go, "go");
const NODE: Suite = suite("node", &["node", "npm"], Language::Node, "node/suite.mjs");
const JAVA: Suite = suite(
    "java",
    &["java", "javac", "mvn", "setpriv"],
    Language::Java,
    "java",
);
const REPLICA_SDK: Suite = suite(
    "replica-sdk",
    &["python3"],
    Language::Python,
    "python/replica.py",
);
const DCP_GO: Suite = suite("dcp-go", &["go"], Language::Go, "dcp-go");
const DCP_JAVA: Suite = suite(
    "dcp-java",
    &["java", "javac", "mvn", "setpriv"],
    Language::Java,
    "dcp-java",
);
const CLUSTER_SDK: Suite = suite(
    "cluster-sdk",
    &[
        "python3", "etcd", "go", "node", "npm", "java", "javac", "mvn",
    ],
    Language::Python,
    "python/cluster.py",
);

/// Suites whose programs can also follow a cluster, for `CLUSTER_SDK`.
const FOLLOWERS: [Suite; 5] = [GO, NODE, JAVA, DCP_GO, DCP_JAVA];

/// All suites, in the order of their runs: first the one that takes a third of the time, so that none runs alone at the end.
pub(super) const SUITES: [Suite; 37] = [
    suite(
        "cluster",
        &["python3", "openssl", "etcd", "gcc"],
        Language::PlainPython,
        "cluster/suite.py",
    ),
    PYTHON,
    suite(
        "classic",
        &["python3"],
        Language::Python,
        "python/classic.py",
    ),
    suite("text", &["python3"], Language::Python, "text/suite.py"),
    suite(
        "containers",
        &["python3"],
        Language::Python,
        "containers/suite.py",
    ),
    suite(
        "monitoring",
        &["python3", "go"],
        Language::PlainPython,
        "monitoring/suite.py",
    ),
    suite(
        "tools",
        &["python3"],
        Language::PlainPython,
        "tools/suite.py",
    ),
    GO,
    NODE,
    JAVA,
    DCP_GO,
    over_tls("python-tls", PYTHON),
    over_tls("go-tls", GO),
    over_tls("node-tls", NODE),
    over_tls("java-tls", JAVA),
    over_tls("dcp-go-tls", DCP_GO),
    DCP_JAVA,
    suite(
        "spring",
        &["java", "javac", "mvn", "setpriv"],
        Language::Java,
        "spring",
    ),
    suite(
        "crash",
        &["python3"],
        Language::PlainPython,
        "crash/suite.py",
    ),
    suite(
        "damage",
        &["python3"],
        Language::PlainPython,
        "damage/suite.py",
    ),
    suite(
        "diskfull",
        &["python3", "unshare", "nsenter"],
        Language::PlainPython,
        "diskfull/suite.py",
    ),
    suite(
        "faults",
        &["python3", "gcc"],
        Language::PlainPython,
        "faults/suite.py",
    ),
    suite(
        "images",
        &["python3", "gcc"],
        Language::PlainPython,
        "images/suite.py",
    ),
    suite(
        "lasting",
        &["python3", "gcc"],
        Language::PlainPython,
        "lasting/suite.py",
    ),
    suite(
        "badinput",
        &["python3"],
        Language::PlainPython,
        "badinput/suite.py",
    ),
    REPLICA_SDK,
    with_few_vbuckets("replica-sdk-few", REPLICA_SDK),
    with_few_vbuckets("go-few", GO),
    with_few_vbuckets("dcp-go-few", DCP_GO),
    suite(
        "replica",
        &["python3", "openssl"],
        Language::PlainPython,
        "replica/suite.py",
    ),
    CLUSTER_SDK,
    suite(
        "cluster-histories",
        &["python3", "etcd"],
        Language::Python,
        "python/histories.py",
    ),
    suite(
        "collections",
        &["python3"],
        Language::PlainPython,
        "collections/suite.py",
    ),
    suite(
        "histories",
        &["python3"],
        Language::PlainPython,
        "histories/suite.py",
    ),
    suite(
        "cli",
        &["python3", "openssl"],
        Language::PlainPython,
        "cli/suite.py",
    ),
    suite("tail", &["python3"], Language::PlainPython, "tail/suite.py"),
    suite(
        "replicate",
        &["python3"],
        Language::PlainPython,
        "replicate/suite.py",
    ),
];

/// Installs the requirements of a suite, and returns the command that runs it.
pub(super) fn start(workspace: &Workspace, suite: &Suite, arguments: &[String]) -> Result<Command> {
    let conformance = workspace.root.join("conformance");
    let entry = conformance.join(suite.entry);
    let mut command = match suite.language {
        Language::PlainPython => python(PathBuf::from("python3"), entry),
        Language::Python => python(install::python(workspace)?, entry),
        Language::Go => Command::new(install::go(workspace, suite.entry)?),
        Language::Node => {
            let home = install::node(workspace)?;
            let mut command = Command::new("node");
            command.arg(entry).current_dir(home);
            command
        }
        Language::Java => {
            let class_path = install::java(workspace, suite.entry)?;
            let mut command = Command::new("java");
            // The process is short-lived: half of the code that a long run would compile is never called again.
            command.args(["-XX:TieredStopAtLevel=1", "-Xmx512m"]);
            command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp"]);
            command.arg(class_path).arg("Suite");
            command
        }
    };
    if suite.name == CLUSTER_SDK.name {
        command.env("SETTEE_FOLLOWERS", followers(workspace)?.to_string());
    }
    if suite.few_vbuckets {
        command.env("SETTEE_FEW_VBUCKETS", "1");
    }
    if suite.tls {
        command.env("SETTEE_OVER_TLS", "1");
    }
    if std::env::var_os("SETTEE_BIN").is_none() {
        command.env("SETTEE_BIN", workspace.debug_binary());
    }
    command.args(arguments);
    Ok(command)
}

/// Returns the commands of other suites' programs that follow a cluster.
fn followers(workspace: &Workspace) -> Result<Value> {
    let mut all = Map::new();
    for suite in &FOLLOWERS {
        let command = start(workspace, suite, &[])?;
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(OsStr::to_string_lossy)
            .collect();
        let folder = command.get_current_dir();
        let how = json!({ "command": words, "folder": folder });
        all.insert(suite.name.to_owned(), how);
    }
    Ok(Value::Object(all))
}

/// Runs Python unbuffered, so that each line is shown at once, and without compiled files beside the source.
fn python(interpreter: PathBuf, script: PathBuf) -> Command {
    let mut command = Command::new(interpreter);
    command.args(["-u", "-B"]).arg(script);
    command
}
