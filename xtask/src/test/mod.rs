//! The test command: format, lints, Rust tests, tidy, then real clients against a real node.

mod fuzz;
mod install;
mod suites;

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use self::suites::{SUITES, Suite};
use crate::workspace::Workspace;
use crate::{process, tidy};

/// Result of one step or suite.
struct Tally {
    name: String,
    passed: usize,
    failed: usize,
    seconds: f64,
    note: String,
}

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
        rust_tests(workspace)?,
    ];
    let built = cargo_step(
        workspace,
        "binary",
        &["build", "--quiet", "--package", "settee"],
    )?;
    let runnable = built.failed == 0;
    tallies.push(built);
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

fn tally(name: &str, (passed, failed): (usize, usize), started: Instant) -> Tally {
    let seconds = started.elapsed().as_secs_f64();
    Tally {
        name: name.to_owned(),
        passed,
        failed,
        seconds,
        note: String::new(),
    }
}

fn headline(name: &str) {
    println!("\n== {name}");
}

/// Runs a cargo command that passes or fails as a whole.
fn cargo_step(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<Tally> {
    headline(name);
    let started = Instant::now();
    let mut command = cargo(workspace);
    let ran = process::stream(command.args(arguments), |line| println!("{line}"))?;
    Ok(tally(
        name,
        (usize::from(ran.success), usize::from(!ran.success)),
        started,
    ))
}

/// In CI nothing is compiled twice, so incremental compilation would only cost time and disk.
fn cargo(workspace: &Workspace) -> Command {
    let mut command = process::cargo(&workspace.root);
    if in_ci() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

fn rust_tests(workspace: &Workspace) -> Result<Tally> {
    headline("Rust tests");
    let started = Instant::now();
    let mut command = cargo(workspace);
    command.args(["test", "--quiet", "--workspace", "--no-fail-fast"]);
    let ran = process::stream(&mut command, |line| println!("{line}"))?;
    let (passed, mut failed) = count_rust_tests(&ran.lines);
    // A binary that aborts or does not compile prints no result line.
    if !ran.success && failed == 0 {
        failed = 1;
    }
    Ok(tally("Rust tests", (passed, failed), started))
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

/// Adds up the result lines of all test binaries.
fn count_rust_tests(lines: &[String]) -> (usize, usize) {
    let results = lines
        .iter()
        .filter_map(|line| line.trim().strip_prefix("test result: "));
    results.fold((0, 0), |(passed, failed), line| {
        (
            passed + number_before(line, "passed"),
            failed + number_before(line, "failed"),
        )
    })
}

/// Returns the number before `word`: 3 for `3 passed`.
fn number_before(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line
        .split([' ', ';', ','])
        .filter(|part| !part.is_empty())
        .collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// Runs all suites, and prints the output of each when it has ended.
fn all_suites(workspace: &Workspace) -> Vec<Tally> {
    // Suites share clients and programs: all are installed before the first suite runs.
    let prepared = SUITES.iter().map(|suite| prepare(workspace, suite, &[]));
    let prepared = SUITES.iter().zip(prepared.collect::<Vec<_>>()).collect();
    process::in_lanes(prepared, |(suite, command)| {
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
        let left_out = tally(suite.name, (0, usize::from(in_ci())), started);
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
    tally(suite.name, (passed, failed), started)
}

fn in_ci() -> bool {
    std::env::var_os("CI")
        .is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Prints one line per step, and the closing line.
fn summarize(tallies: &[Tally]) -> bool {
    headline("summary");
    for tally in tallies {
        let outcome = if tally.failed == 0 { "ok  " } else { "FAIL" };
        println!(
            "{outcome} {:<12} {:>5} passed {:>3} failed {:>6.1} s  {}",
            tally.name, tally.passed, tally.failed, tally.seconds, tally.note
        );
    }
    let passed: usize = tallies.iter().map(|tally| tally.passed).sum();
    let failed: usize = tallies.iter().map(|tally| tally.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_add_up() {
        let lines = [
            "running 2 tests",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "test result: FAILED. 5 passed; 1 failed; 0 ignored",
        ]
        .map(str::to_owned);
        assert_eq!(count_rust_tests(&lines), (7, 1));
    }

    #[test]
    fn a_closing_line_is_read() {
        assert_eq!(number_before("12 passed, 3 failed", "passed"), 12);
        assert_eq!(number_before("12 passed, 3 failed", "failed"), 3);
        assert_eq!(number_before("", "failed"), 0);
    }
}
