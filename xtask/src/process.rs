//! Child processes: prints, streams and times them, some at a time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};

/// Number of programs at a time that compute all the time, on the two cores of CI.
pub(crate) const BUSY: usize = 2;
/// Number of programs at a time that wait for others a sixth of their time, as suites do for nodes that start, leases
/// and timeouts.
pub(crate) const WAITING: usize = 3;

/// Result of a streamed child.
pub(crate) struct Streamed {
    pub(crate) success: bool,
    /// All lines of its standard output.
    pub(crate) lines: Vec<String>,
}

/// Runs `command`, passes each line of its output to `show` at once, and keeps all lines.
pub(crate) fn stream(command: &mut Command, mut show: impl FnMut(&str)) -> Result<Streamed> {
    let name = describe(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let output = child.stdout.take().expect("standard output was piped");
    let mut lines = Vec::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("cannot read the output of `{name}`"))?;
        let line = String::from_utf8_lossy(&line).into_owned();
        show(&line);
        lines.push(line);
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{name}`"))?;
    Ok(Streamed {
        success: status.success(),
        lines,
    })
}

/// Runs `command` with inherited output; returns an error unless it succeeds.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed: {status}");
    }
    Ok(())
}

/// Runs `work` on all `jobs`, `lanes` of them at a time; returns the results in the order of the jobs.
pub(crate) fn in_lanes<J: Send, R: Send>(
    lanes: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    let waiting = Mutex::new(jobs.into_iter().enumerate());
    let ended = Mutex::new(BTreeMap::new());
    let lane = || loop {
        let next = waiting.lock().expect("no lane panics").next();
        let Some((at, job)) = next else {
            return;
        };
        let result = work(job);
        ended.lock().expect("no lane panics").insert(at, result);
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    let ended = ended.into_inner().expect("no lane panics");
    ended.into_values().collect()
}

/// Returns the cargo that runs this program, started in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Like [`cargo`]. In CI nothing is compiled twice and no debugger runs, so incremental compilation and line tables
/// would only cost time and disk. A panic names its line without them.
pub(crate) fn ci_cargo(root: &Path) -> Command {
    let mut command = cargo(root);
    if in_ci() {
        command.env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_PROFILE_DEV_DEBUG", "none");
    }
    command
}

/// Returns `true` if the environment says that this is CI.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI")
        .is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Finds `program` on the search path.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Formats the command as typed in a shell.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
