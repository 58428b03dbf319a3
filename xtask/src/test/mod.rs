//! The test command: format, lints, Rust tests, tidy, then real clients against a real node.

mod fuzz;
mod install;
mod report;
mod rust;
mod suites;

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use self::report::{Tally, headline, number_before, summarize, tally};
use self::suites::{SUITES, Suite};
use crate::workspace::Workspace;
use crate::{process, tidy};

/// Runs all steps, even after a failure; returns `true` if none failed.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let mut tallies = vec![
        cargo_step(workspace, "format", &["fmt", "--all", "--check"])?,
        cargo_step(
            workspace,
            "lints",
            &[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        )?,
    ];
    let (built, tests) = rust::build(workspace)?;
    let runnable = built.failed == 0;
    tallies.push(built);
    tallies.push(rust::run(&tests));
    tallies.push(cargo_step(
        workspace,
        "doc tests",
        &["test", "--quiet", "--workspace", "--doc"],
    )?);
    let started = Instant::now();
    let (passed, failed) = tidy::count(workspace)?;
    tallies.push(tally("tidy", (passed, failed), started));
    tallies.push(fuzz_step(workspace));
    if runnable {
        tallies.extend(all_suites(workspace));
    }
    Ok(summarize(&tallies))
}

/// Runs one suite by name, with its own arguments.
pub(crate) fn run_suite(workspace: &Workspace, options: &[String]) -> Result<bool> {
    let known = || SUITES.map(|suite| suite.name).join(", ");
    let Some((name, arguments)) = options.split_first() else {
        println!("suites: {}", known());
        return Ok(true);
    };
    let Some(suite) = SUITES.iter().find(|suite| suite.name == *name) else {
        bail!("unknown suite `{name}`; known: {}", known());
    };
    if std::env::var_os("SETTEE_BIN").is_none() {
        process::must(process::cargo(&workspace.root).args([
            "build",
            "--quiet",
            "--package",
            "settee",
        ]))?;
    }
    headline(&format!("suite {name}"));
    let tally = match prepare(workspace, suite, arguments) {
        Ok(command) => suite_step(suite, command, |line| println!("{line}")),
        Err(unprepared) => unprepared,
    };
    Ok(summarize(&[tally]))
}

/// Runs a cargo command that passes or fails as a whole.
fn cargo_step(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<Tally> {
    headline(name);
    let started = Instant::now();
    let mut command = process::ci_cargo(&workspace.root);
    let ran = process::stream(command.args(arguments), |line| println!("{line}"))?;
    Ok(tally(
        name,
        (usize::from(ran.success), usize::from(!ran.success)),
        started,
    ))
}

fn fuzz_step(workspace: &Workspace) -> Tally {
    headline("fuzz targets");
    let started = Instant::now();
    let ran = fuzz::run(workspace).unwrap_or_else(|error| {
        println!("{error:#}");
        (0, 1)
    });
    tally("fuzz targets", ran, started)
}

/// Runs all suites, and prints the output of each when it has ended.
fn all_suites(workspace: &Workspace) -> Vec<Tally> {
    // Suites share clients and programs: all are installed before the first suite runs.
    let prepared = SUITES.iter().map(|suite| prepare(workspace, suite, &[]));
    let prepared = SUITES.iter().zip(prepared.collect::<Vec<_>>()).collect();
    process::in_lanes(process::WAITING, prepared, |(suite, command)| {
        let mut output = format!("\n== suite {}\n", suite.name);
        let show = |line: &str| {
            output.push_str(line);
            output.push('\n');
        };
        let tally = match command {
            Ok(command) => suite_step(suite, command, show),
            Err(unprepared) => unprepared,
        };
        print!("{output}");
        tally
    })
}

/// Installs what a suite needs; returns its command, or the result of a suite that cannot run.
fn prepare(workspace: &Workspace, suite: &Suite, arguments: &[String]) -> Result<Command, Tally> {
    let started = Instant::now();
    let mut needs = suite.needs.iter();
    if let Some(missing) = needs.find(|program| process::find_program(program).is_none()) {
        let mut note = format!("left out: {missing} is not installed");
        if *missing == "etcd" {
            note.push_str(" (Debian has it in the package etcd-server)");
        }
        println!("suite {} {note}", suite.name);
        let left_out = tally(suite.name, (0, usize::from(process::in_ci())), started);
        return Err(Tally { note, ..left_out });
    }
    suites::start(workspace, suite, arguments).map_err(|error| broken(suite, started, &error))
}

fn broken(suite: &Suite, started: Instant, error: &anyhow::Error) -> Tally {
    let tally = tally(suite.name, (0, 1), started);
    let note = format!("{error:#}");
    Tally { note, ..tally }
}

fn suite_step(suite: &Suite, mut command: Command, show: impl FnMut(&str)) -> Tally {
    let started = Instant::now();
    let ran = match process::stream(&mut command, show) {
        Ok(ran) => ran,
        Err(error) => return broken(suite, started, &error),
    };
    let mut lines = ran.lines.iter().rev();
    let last = lines.find(|line| line.ends_with(" failed"));
    let last = last.map_or("", String::as_str);
    let passed = number_before(last, "passed");
    let mut failed = number_before(last, "failed");
    // A suite that broke off did not print its closing line.
    if !ran.success && failed == 0 || passed + failed == 0 {
        failed = 1;
    }
    let failures = ran
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("FAIL "));
    let note = failures.collect::<Vec<_>>().join("; ");
    let tally = tally(suite.name, (passed, failed), started);
    Tally { note, ..tally }
}
