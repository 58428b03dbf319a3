//! The automation of the project: `cargo xtask tidy`, `bench`, `test`, `explore`, `sim`.
//!
//! It may not hold logic of the product: it reads the workspace, runs cargo and the conformance suites, and
//! reports. No crate depends on it.
#![expect(
    clippy::print_stdout,
    reason = "a command-line tool answers on standard output"
)]

mod bench;
mod explore;
mod process;
mod sim;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                     style as a test: sizes, crate graph, unsafe code, documents
  bench [FILTER] [--json]  every benchmark of the workspace; --json: one object a line
  bench --record [FILTER]  the same; figures also go into bench/results and docs/performance.md
  bench --page             docs/performance.md from bench/results, without measuring
  test                     everything: format, lints, Rust tests, tidy, real-client suites
  suite NAME [ARGS]        one conformance suite by itself; without a name it lists them
  explore [--minutes N] [--seed N] [FILTER]
                           the random tests with new seeds, until the time is over or it is stopped
  sim cluster [--seed N] [--seeds COUNT]
                           simulated clusters; a seed alone is played again, and tells what happens in it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; returns `false` if a check or test failed.
fn run(arguments: &[String]) -> Result<bool> {
    let Some((command, rest)) = arguments.split_first() else {
        bail!("no command\n{USAGE}");
    };
    match (command.as_str(), rest) {
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(true)
        }
        ("tidy", []) => tidy::run(&Workspace::load()?),
        ("bench", options) => bench::run(&Workspace::load()?, options),
        ("test", []) => test::run(&Workspace::load()?),
        ("explore", options) => explore::run(&Workspace::load()?, options),
        ("sim", options) => sim::run(&Workspace::load()?, options),
        ("suite", options) => test::run_suite(&Workspace::load()?, options),
        _ => bail!("unknown command `{}`\n{USAGE}", arguments.join(" ")),
    }
}
