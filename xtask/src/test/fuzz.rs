//! Runs each fuzz target for a short time.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// Run time of each target.
const TARGET_SECONDS: u32 = 10;

/// Flags of `cargo fuzz run --sanitizer none`: the stable compiler can instrument code; only the sanitizers need
/// another compiler.
const INSTRUMENTED: &str = "--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// Builds all targets and runs them; returns the numbers of targets without and with a finding.
///
/// # Errors
/// The targets cannot be built, or their folder cannot be read.
pub(super) fn run(workspace: &Workspace) -> Result<(usize, usize)> {
    process::must(cargo(workspace, "build").arg("--bins"))?;
    let ran = process::in_lanes(process::BUSY, targets(workspace)?, |target| {
        let ran = run_target(workspace, &target);
        ran.inspect_err(|error| println!("{target}: {error:#}"))
    });
    let passed = ran.iter().filter(|ran| ran.is_ok()).count();
    Ok((passed, ran.len() - passed))
}

/// Runs one target, and prints its output when it has ended.
///
/// New inputs are written below `target/`, so that the corpus of the repository stays unchanged. libFuzzer chooses
/// the seeds.
fn run_target(workspace: &Workspace, target: &str) -> Result<()> {
    let found = workspace.target.join("fuzz/found").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut command = cargo(workspace, "run");
    command
        .args(["--bin", target, "--"])
        .arg(&found)
        .arg(workspace.root.join("fuzz/corpus").join(target))
        .arg(format!("-artifact_prefix={}-", found.display()))
        .arg(format!("-max_total_time={TARGET_SECONDS}"))
        .args(["-print_final_stats=1", "-verbosity=0"]);
    let output = command.output().context("cannot start cargo")?;
    print!("{target}\n{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{}", output.status);
    }
    Ok(())
}

/// Returns a cargo command on the targets.
fn cargo(workspace: &Workspace, subcommand: &str) -> Command {
    let mut command = process::cargo(&workspace.root.join("fuzz"));
    // With a named target, the flags are not for build scripts.
    command.args([subcommand, "--quiet", "--release", "--target", "host-tuple"]);
    command
        .arg("--target-dir")
        .arg(workspace.target.join("fuzz"))
        .env("RUSTFLAGS", INSTRUMENTED);
    command
}

/// Returns the names of the targets. Each has one file.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}
