//! Builds the Rust tests, together with the binary that the suites use, and runs them two programs at a time.

use std::io::Cursor;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use cargo_metadata::Message;

use super::report::{Tally, headline, number_before, tally};
use crate::process;
use crate::workspace::Workspace;

/// A program of tests.
pub(super) struct TestProgram {
    executable: PathBuf,
    /// Folder of its crate, where it runs.
    folder: PathBuf,
    name: String,
    is_integration: bool,
}

/// Builds tests and binary in one go: by itself, the binary would be compiled without the features of the tests' crates.
///
/// # Errors
/// Cargo cannot be started.
pub(super) fn build(workspace: &Workspace) -> Result<(Tally, Vec<TestProgram>)> {
    headline("build");
    let started = Instant::now();
    let mut command = process::ci_cargo(&workspace.root);
    command.args(["build", "--quiet", "--workspace", "--lib", "--tests"]);
    command.args([
        "--bin",
        "settee",
        "--message-format=json-render-diagnostics",
    ]);
    let ran = process::stream(&mut command, |_| {})?;
    let programs = programs(&ran.lines.join("\n"));
    let built = (usize::from(ran.success), usize::from(!ran.success));
    Ok((tally("build", built, started), programs))
}

/// Returns the programs of tests among the messages of cargo: integration tests first, for they take longest.
fn programs(messages: &str) -> Vec<TestProgram> {
    let messages = Message::parse_stream(Cursor::new(messages));
    let artifacts = messages.filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if artifact.profile.test => Some(artifact),
        _ => None,
    });
    let program = |artifact: cargo_metadata::Artifact| {
        let folder = artifact.manifest_path.parent()?;
        Some(TestProgram {
            executable: artifact.executable?.into(),
            is_integration: artifact.target.is_test(),
            name: format!("{} {}", folder.file_name()?, artifact.target.name),
            folder: folder.into(),
        })
    };
    let mut programs: Vec<_> = artifacts.filter_map(program).collect();
    programs.sort_by(|a, b| (b.is_integration, &a.name).cmp(&(a.is_integration, &b.name)));
    programs
}

/// Runs all programs, and prints the output of each when it has ended.
pub(super) fn run(programs: &[TestProgram]) -> Tally {
    headline("Rust tests");
    let started = Instant::now();
    let ran = process::in_lanes(process::BUSY, programs.iter().collect(), |program| {
        let ran = run_program(program);
        ran.inspect_err(|error| println!("{}: {error:#}", program.name))
    });
    // Without a program the build failed, or its messages were not understood.
    let mut sum = (0, usize::from(programs.is_empty()));
    let mut failures = Vec::new();
    for (program, ran) in programs.iter().zip(ran) {
        // A program that aborts prints no result line.
        let ((passed, failed), tests) = ran.unwrap_or(((0, 1), Vec::new()));
        sum = (sum.0 + passed, sum.1 + failed);
        if failed > 0 {
            failures.push(format!("{} ({})", program.name, tests.join(", ")));
        }
    }
    Tally {
        note: failures.join("; "),
        ..tally("Rust tests", sum, started)
    }
}

/// Runs one program; returns the numbers of passed and failed tests, and the names of the failed ones.
fn run_program(program: &TestProgram) -> Result<((usize, usize), Vec<String>)> {
    let mut command = Command::new(&program.executable);
    command
        .arg("--quiet")
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder);
    let mut output = format!("\n{}\n", program.name);
    let ran = process::stream(&mut command, |line| {
        output.push_str(line);
        output.push('\n');
    });
    print!("{output}");
    let ran = ran?;
    let counts = count(&ran.lines);
    if !ran.success && counts.1 == 0 {
        bail!("it ended without a result");
    }
    let failed = ran.lines.iter().filter_map(|line| failed_test(line));
    Ok((counts, failed.map(str::to_owned).collect()))
}

/// Returns the name of a failed test from the line before its output: that of others is not printed.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Reads the result line of a program.
fn count(lines: &[String]) -> (usize, usize) {
    let mut lines = lines.iter();
    let result = lines.find_map(|line| line.trim().strip_prefix("test result: "));
    let result = result.unwrap_or_default();
    (
        number_before(result, "passed"),
        number_before(result, "failed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read() {
        let lines = [
            "running 2 tests",
            "test result: FAILED. 5 passed; 1 failed; 0 ignored",
        ];
        assert_eq!(count(&lines.map(str::to_owned)), (5, 1));
        assert_eq!(count(&[]), (0, 0));
        assert_eq!(failed_test("---- of::a stdout ----"), Some("of::a"));
        assert_eq!(failed_test("    of::a"), None);
    }

    #[test]
    fn programs_are_those_with_tests_the_longest_first() {
        let message = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/crates/wire/Cargo.toml",
                "target":{{"kind":["{kind}"],"crate_types":["lib"],"name":"it","src_path":"/w/l.rs","edition":"2024",
                "doc":true,"doctest":true,"test":true}},"profile":{{"opt_level":"0","debuginfo":1,
                "debug_assertions":true,"overflow_checks":true,"test":{test}}},"features":[],"filenames":[],
                "executable":{executable},"fresh":true}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            message("lib", true, r#""/t/wire-1""#),
            message("test", true, r#""/t/it-1""#),
            message("bin", false, r#""/t/settee""#),
            message("lib", false, "null"),
        ]
        .join("\n");
        let found = programs(&messages);
        let found: Vec<_> = found
            .iter()
            .map(|found| found.executable.to_str())
            .collect();
        assert_eq!(found, [Some("/t/it-1"), Some("/t/wire-1")]);
    }
}
