//! Runs each fuzz target for a short time, if cargo-fuzz is installed or can be installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// Run time of each target.
const TARGET_SECONDS: u32 = 20;

/// Returns the numbers of targets without and with a finding; `None` without cargo-fuzz.
///
/// In CI it is installed below `target/`. New inputs are written there too, so that the corpus of the repository
/// stays unchanged. libFuzzer chooses the seeds.
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
        // The stable compiler can instrument code; only the sanitizers need another compiler.
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

/// Returns the path of cargo-fuzz. Installs it first if `install` is set and it is missing.
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
