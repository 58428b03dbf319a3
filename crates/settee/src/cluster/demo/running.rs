//! The processes started by the demo: an etcd and nodes.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use etcd::{Endpoints, Etcd, Options};
use server::names;

use super::process::{LOOK, Process, forget, own_command};
use crate::exit::{Failure, Sysexit};
use crate::output;
use crate::serve::{Signal, Signals};

/// Longest time until etcd, or a node, serves.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Duration of a lease in seconds, shorter than the default: a killed node is replaced sooner.
const LEASE: &str = "2";

/// Running processes. Dropping the value ends them.
pub(super) struct DemoProcesses {
    directory: PathBuf,
    etcd: Option<Process>,
    nodes: Vec<Process>,
}

fn system(error: &io::Error) -> Failure {
    Failure::new(Sysexit::Os, error.to_string())
}

/// Creates the cluster, unless one of this name exists.
pub(super) fn init(etcd: &Endpoints, name: &str) -> Result<(), Failure> {
    let mut command = own_command().map_err(|error| system(&error))?;
    command.args(["cluster", "init", "--lease", LEASE, "--etcd"]);
    let ran = command.args([&etcd.to_string(), name]).output();
    let ran = ran.map_err(|error| system(&error))?;
    if ran.status.success() || ran.status.code() == Some(Sysexit::Data as i32) {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&ran.stderr);
    let told = told.trim();
    let reason = told.strip_prefix("settee: ").unwrap_or(told);
    Err(Failure::new(Sysexit::Unavailable, reason))
}

impl DemoProcesses {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            etcd: None,
            nodes: Vec::new(),
        }
    }

    /// Starts an etcd with one member, and waits until it answers.
    pub(super) fn start_etcd(&mut self, (client, peer): (u16, u16)) -> Result<Endpoints, Failure> {
        let [client, peer] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        forget(&mut command, "ETCD_");
        command.args(["--name", "demo", "--log-level", "error", "--data-dir"]);
        command.arg(self.directory.join("etcd"));
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command.args(["--initial-cluster", &format!("demo={peer}")]);
        let started = Process::start("etcd", command, &self.directory);
        let process = self.etcd.insert(started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Sysexit::Unavailable,
                "there is no etcd on PATH: install it (Debian, Ubuntu: apt-get install etcd-server), or name one that \
                 runs with --etcd http://HOST:PORT",
            ),
            _ => system(&error),
        })?);
        let endpoints: Endpoints = client.parse().map_err(Failure::usage)?;
        let options = Options::new(endpoints.clone());
        await_start(process, &|| Etcd::check(&options).is_ok())?;
        Ok(endpoints)
    }

    /// Starts a node, and waits until it serves.
    pub(super) fn start_node(
        &mut self,
        name: &str,
        cluster: &str,
        (kv, http): (u16, u16),
    ) -> Result<(), Failure> {
        let told = self.directory.join(format!("{name}.json"));
        // Removes the file of an earlier start.
        names::remove(&told).map_err(|error| system(&error))?;
        let mut command = own_command().map_err(|error| system(&error))?;
        command.args([
            "serve",
            "--cluster",
            cluster,
            "--node-name",
            name,
            "--data-dir",
        ]);
        command.arg(self.directory.join(name));
        command.args([
            "--kv-port",
            &kv.to_string(),
            "--http-port",
            &http.to_string(),
        ]);
        command.arg("--ports-file").arg(&told);
        let started = Process::start(name, command, &self.directory);
        self.nodes.push(started.map_err(|error| system(&error))?);
        let process = self.nodes.last_mut().expect("it was pushed just now");
        await_start(process, &|| told.exists())
    }

    /// Process ids of the nodes.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.nodes.iter().map(Process::id).collect()
    }

    /// Reports nodes that end, until a signal ends the demo.
    pub(super) fn attend(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| system(&error))?;
        loop {
            let next = async { tokio::time::timeout(LOOK, signals.next()).await };
            if matches!(runtime.block_on(next), Ok(Signal::Terminate)) {
                return Ok(());
            }
            for process in self.nodes.iter_mut().chain(&mut self.etcd) {
                if let Some(how) = process.news().map_err(|error| system(&error))? {
                    let (name, command) = (&process.name, &process.command);
                    let text = format!("{name} ended: {how}. This starts it again:\n  {command}\n");
                    output::print(text.as_bytes())?;
                }
            }
        }
    }
}

fn await_start(process: &mut Process, serves: &dyn Fn() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !serves() {
        let ended = process.news().map_err(|error| system(&error))?;
        if ended.is_some() || begun.elapsed() > START_LIMIT {
            let (name, line, log) = (&process.name, process.last_line(), process.log());
            let reason = format!("{name} does not start: {line} (more in {log})");
            return Err(Failure::new(Sysexit::Unavailable, reason));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

impl Drop for DemoProcesses {
    fn drop(&mut self) {
        self.nodes.iter().for_each(Process::terminate);
        self.nodes.iter_mut().for_each(Process::wait);
        if let Some(etcd) = &mut self.etcd {
            etcd.terminate();
            etcd.wait();
        }
    }
}
