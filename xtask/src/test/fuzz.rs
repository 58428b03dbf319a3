//! Runs each fuzz target for a moment, where cargo-fuzz can be had.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// How long each target runs.
const TARGET_SECONDS: u32 = 20;

/// How many targets ran without and with a finding; `None` where there is no cargo-fuzz.
///
/// In CI it is installed below `target/`. New inputs go there as well, so the corpus of the
/// repository stays as it is; the seeds of a run are libFuzzer's own.
///
/// # Errors
/// The folder of the targets cannot be read, or cargo cannot be started.
pub(super) fn run(workspace: &Workspace, install: bool) -> Result<Option<(usize, usize)>> {
    let Some(program) = cargo_fuzz(workspace, install) else {
        return Ok(None);
    };
    let (mut passed, mut failed) = (0, 0);
    for target in targets(workspace)? {
        let found = workspace.target.join("fuzz/found").join(&target);
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let mut command = Command::new(&program);
        // The stable compiler instruments, too; the sanitizers need another one.
        command
            .current_dir(&workspace.root)
            .args(["fuzz", "run", "--sanitizer", "none", "--target-dir"])
            .arg(workspace.target.join("fuzz"))
            .arg(&target)
            .arg(&found)
            .arg(workspace.root.join("fuzz/corpus").join(&target))
            .arg("--")
            .arg(format!("-max_total_time={TARGET_SECONDS}"))
            .args(["-print_final_stats=1", "-verbosity=0"]);
        match process::must(&mut command) {
            Ok(()) => passed += 1,
            Err(error) => {
                println!("{target}: {error:#}");
                failed += 1;
            }
        }
    }
    Ok(Some((passed, failed)))
}

/// Where cargo-fuzz is; installed first if `install` says so.
fn cargo_fuzz(workspace: &Workspace, install: bool) -> Option<PathBuf> {
    let tools = workspace.target.join("tools");
    let installed = tools.join("bin/cargo-fuzz");
    let there = || {
        process::find_program("cargo-fuzz")
            .or_else(|| installed.is_file().then(|| installed.clone()))
    };
    if install && there().is_none() {
        let mut command = process::cargo(&workspace.root);
        command
            .args(["install", "--quiet", "--locked", "cargo-fuzz", "--root"])
            .arg(&tools);
        if let Err(error) = process::must(&mut command) {
            println!("cargo-fuzz cannot be had: {error:#}");
        }
    }
    there()
}

/// Names of the targets: one file each.
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
