//! Checks the crate graph: dependencies point in one direction, and inner crates have no async runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, PackageId};

use super::findings::Findings;
use crate::workspace::Workspace;

/// Crates of the workspace, each with those that it may depend on. A new crate needs a decision record.
const ALLOWED: &str = "\
model:
wire: model
collections: model
engine: collections model
cipher:
storage: cipher model
bucket: storage engine collections model
identity:
audit: model
registry: cluster audit identity bucket storage engine collections wire model
value: engine wire model
stats: registry identity bucket storage engine collections wire model
consumer: value registry bucket storage engine collections wire model
session: consumer stats value registry audit identity bucket storage engine collections wire model
tls: storage
replication: tls copies consumer value registry identity bucket storage engine wire model
changes: wire model
cluster:
copies: cluster changes consumer registry bucket storage engine collections wire model
etcd: cluster tls
management: cluster changes session value registry audit identity bucket engine collections wire \
    model
client: identity wire model
member: client etcd copies cluster replication tls registry identity bucket engine wire model
server: member management etcd cluster replication tls session stats value registry audit \
    identity bucket storage engine collections wire model
bench: client wire model
settee: bench server client etcd cluster changes identity collections wire model
benchkit:
xtask:
";

/// The crate of benchmark tools: any crate may have it as a development dependency only.
const BENCHKIT: &str = "benchkit";

/// Crates that may use neither an async runtime nor sockets.
const WITHOUT_RUNTIME: &[&str] = &[
    "model",
    "wire",
    "collections",
    "engine",
    "cipher",
    "storage",
    "bucket",
    "identity",
    "audit",
    "value",
    "registry",
    "stats",
    "consumer",
    "copies",
    "session",
    "cluster",
];

/// Async runtimes, HTTP stacks and socket crates.
const RUNTIMES: &[&str] = &[
    "tokio",
    "mio",
    "axum",
    "hyper",
    "hyper-util",
    "socket2",
    "tower",
    "async-std",
    "smol",
    "async-io",
    "polling",
    "monoio",
    "glommio",
    "futures-executor",
];

/// Sources of random numbers. Crates without a runtime get random numbers as parameters.
const RANDOM: &[&str] = &["getrandom", "rand", "fastrand"];

/// Crates with a list of banned clocks, threads and files in their `clippy.toml`.
const WITH_BANS: &[&str] = &[
    "collections",
    "engine",
    "bucket",
    "cipher",
    "storage",
    "identity",
    "audit",
    "value",
    "registry",
    "stats",
    "consumer",
    "copies",
    "session",
    "client",
    "bench",
    "cluster",
];

fn allowed() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALLOWED.lines().filter_map(|line| line.split_once(':'))
}

/// Checks that every edge between crates of the workspace is in [`ALLOWED`], and that no runtime is below `server`.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let members = workspace.members();
    let names: BTreeSet<&str> = members
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut edges = 0;
    for package in &members {
        let name = package.name.as_str();
        let Some((_, allowed)) = allowed().find(|(known, _)| *known == name) else {
            findings.breach(format!(
                "{name}: a new crate; name its rule in a decision record and here"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            let ours = names.contains(to) && dependency.path.is_some();
            let for_tests = dependency.kind == DependencyKind::Development;
            if RANDOM.contains(&to) && !for_tests && WITHOUT_RUNTIME.contains(&name) {
                findings.breach(format!("{name} -> {to}: randomness is a parameter here"));
            }
            if !ours || for_tests && to == name {
                continue;
            }
            edges += 1;
            if !(allowed.split(' ').any(|one| one == to) || for_tests && to == BENCHKIT) {
                findings.breach(format!("{name} -> {to}: this edge is not allowed"));
            }
        }
    }
    for name in WITHOUT_RUNTIME {
        for runtime in runtimes_below(workspace, name)? {
            findings.breach(format!(
                "{name}: reaches {runtime}, but must run without a runtime"
            ));
        }
    }
    findings.summary(format!("{} crates, {edges} edges", members.len()));
    Ok(())
}

/// Returns the runtimes among all dependencies of `name`, without those of tests and build scripts.
fn runtimes_below(workspace: &Workspace, name: &str) -> Result<BTreeSet<String>> {
    let Some(start) = workspace
        .members()
        .into_iter()
        .find(|package| package.name == name)
    else {
        return Ok(BTreeSet::new());
    };
    let resolve = workspace
        .metadata
        .resolve
        .as_ref()
        .context("cargo metadata has no graph")?;
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
    let mut open = vec![&start.id];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let normal = nodes[id].deps.iter().filter(|dependency| {
            dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal)
        });
        open.extend(normal.map(|dependency| &dependency.pkg));
    }
    Ok(seen
        .into_iter()
        .map(|id| workspace.metadata[id].name.to_string())
        .filter(|found| RUNTIMES.contains(&found.as_str()))
        .collect())
}

/// Checks that every crate inherits the workspace's lints, and that pure crates ban clocks, threads and files.
pub(super) fn check_rules(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let members = workspace.members();
    for package in &members {
        let manifest = workspace.read(&package.manifest_path)?;
        let inherits = manifest
            .split("[lints]")
            .nth(1)
            .is_some_and(|section| section.trim_start().starts_with("workspace = true"));
        if !inherits {
            findings.breach(format!(
                "{}: Cargo.toml lacks `[lints] workspace = true`",
                package.name
            ));
        }
    }
    for (name, _) in allowed().filter(|(name, _)| *name != "xtask") {
        if !says_its_rule(workspace, name)? {
            findings.breach(format!(
                "{name}: the first lines do not say what this crate may not do"
            ));
        }
    }
    for name in WITH_BANS {
        let path = Path::new("crates").join(name).join("clippy.toml");
        if !workspace.root.join(&path).is_file() {
            findings.breach(format!("{} is missing", path.display()));
        } else if !workspace.read(&path)?.contains("disallowed-methods") {
            findings.breach(format!("{} bans nothing", path.display()));
        }
    }
    if !workspace
        .read("Cargo.toml")?
        .contains("unsafe_code = \"forbid\"")
    {
        findings.breach("Cargo.toml: the workspace no longer forbids unsafe code");
    }
    findings.summary(format!(
        "{} manifests take the workspace's lints, {} crates with bans of their own",
        members.len(),
        WITH_BANS.len()
    ));
    Ok(())
}

/// Whether the documentation of a crate states what the crate may not do.
fn says_its_rule(workspace: &Workspace, name: &str) -> Result<bool> {
    let source = Path::new("crates").join(name).join("src");
    let library = source.join("lib.rs");
    let root = if workspace.root.join(&library).is_file() {
        library
    } else {
        source.join("main.rs")
    };
    let text = workspace.read(&root)?;
    let mut docs = text.lines().take_while(|line| line.starts_with("//!"));
    Ok(docs.any(|line| line.contains("must not") || line.contains("may not")))
}
