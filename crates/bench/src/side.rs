//! A server under load: its connections, worker threads and measurements.

use std::net::TcpStream;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{ConnectOptions, KeyForm, Link, Nodes};

use crate::error::{Cause, Error};
use crate::job::Task;
use crate::measure::{Counts, Slice};
use crate::numbers::{portion, share, to_f64};
use crate::plan::{Amount, Plan};
use crate::process::process_cpu;
use crate::worker::{Done, LoadWorker};
use crate::workload::Workload;

/// Address of a server, and its name in the report.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name in the report.
    pub(crate) name: String,
    /// Options to connect to it.
    pub(crate) server: ConnectOptions,
    /// Process id, if its CPU time is measured.
    pub(crate) pid: Option<u32>,
}

/// A server and the workers that put load on it.
#[derive(Debug)]
pub(crate) struct Side {
    /// The server.
    pub(crate) target: Target,
    /// Number of nodes with active vBuckets when the connections were made.
    pub(crate) nodes: usize,
    /// Measured slices so far.
    pub(crate) slices: Vec<Slice>,
    workers: Vec<WorkerHandle>,
}

/// The coordinator's handle of a worker.
#[derive(Debug)]
struct WorkerHandle {
    tasks: Option<Sender<Task>>,
    results: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// Numbers of the keys that the worker loads.
    keys: Range<u64>,
    /// Numbers of the worker's connections among all of the side.
    connections: Range<u64>,
}

impl Side {
    /// Opens all connections and starts the workers.
    pub(crate) fn open(target: Target, plan: &Plan, run: u32) -> Result<Self, Error> {
        if let Some(pid) = target.pid.filter(|&pid| process_cpu(pid).is_none()) {
            let reason = format!("{}: cannot read the CPU time of process {pid}", target.name);
            return Err(Error::usage(reason));
        }
        let (nodes, key_form, mut sockets) = connect_all(&target, plan)?;
        let mut workers = Vec::new();
        for index in 0..plan.threads {
            let connections = share(index, plan.threads, u64::from(plan.connections));
            let rest = sockets.split_off((connections.end - connections.start) as usize);
            let mine = std::mem::replace(&mut sockets, rest);
            let workload = Workload::new(plan, key_form, run, u64::from(index) + 1);
            let number = 1 + connections.start as u32;
            let worker = LoadWorker::new(mine, number, nodes.clone(), workload, plan);
            let worker = worker.map_err(os_failure)?;
            let keys = share(index, plan.threads, plan.keys);
            workers.push(WorkerHandle::start(worker, connections, keys)?);
        }
        Ok(Self {
            target,
            nodes: nodes.active().len(),
            slices: Vec::new(),
            workers,
        })
    }

    /// Writes every key once.
    pub(crate) fn load(&mut self) -> Result<(), Error> {
        self.run(|handle| Task::Load(handle.keys.clone())).map(drop)
    }

    /// Puts load on the server without measuring.
    pub(crate) fn warm_up(&mut self, plan: &Plan) -> Result<(), Error> {
        if plan.warmup > Duration::ZERO {
            self.mixed(plan, Amount::Time(plan.warmup))?;
        }
        Ok(())
    }

    /// Measures one slice.
    pub(crate) fn measure(&mut self, plan: &Plan) -> Result<&Slice, Error> {
        let slice = self.mixed(plan, plan.slice)?;
        self.slices.push(slice);
        Ok(&self.slices[self.slices.len() - 1])
    }

    fn mixed(&mut self, plan: &Plan, amount: Amount) -> Result<Slice, Error> {
        let all = u64::from(plan.connections);
        self.run(|handle| {
            let Range { start, end } = handle.connections;
            let amount = match amount {
                Amount::Time(time) => Amount::Time(time),
                Amount::Ops(ops) => Amount::Ops(portion(ops, end, all) - portion(ops, start, all)),
            };
            let part = to_f64(end - start) / to_f64(all);
            let rate = plan.rate.map(|rate| rate * part);
            Task::Mixed { amount, rate }
        })
    }

    fn run(&mut self, task_of: impl Fn(&WorkerHandle) -> Task) -> Result<Slice, Error> {
        let cpu = |pid: Option<u32>| pid.and_then(process_cpu);
        let cpu_before = cpu(self.target.pid);
        for handle in &self.workers {
            let task = task_of(handle);
            let tasks = handle.tasks.as_ref();
            let tasks = tasks.expect("tasks are given until the side is dropped");
            tasks.send(task).map_err(|_| self.worker_ended())?;
        }
        let mut counts = Counts::default();
        let mut elapsed = Duration::ZERO;
        for handle in &self.workers {
            let done = handle.results.recv().map_err(|_| self.worker_ended())?;
            let (mine, time) = done.map_err(|error| self.of_server(error))?;
            counts.merge(&mine);
            elapsed = elapsed.max(time);
        }
        let both = cpu_before.zip(cpu(self.target.pid));
        let server_cpu = both.map(|(before, after)| after.saturating_sub(before));
        Ok(Slice {
            counts,
            elapsed,
            server_cpu,
        })
    }

    fn worker_ended(&self) -> Error {
        let reason = format!("{}: a worker has ended early", self.target.name);
        Error::new(Cause::Machine, reason)
    }

    /// Adds the server to an error of a worker.
    fn of_server(&self, error: Error) -> Error {
        match error {
            Error::Run { cause, reason } => {
                let Target { name, server, .. } = &self.target;
                Error::new(cause, format!("{name} ({}): {reason}", server.address))
            }
            error @ Error::Client(_) => error,
        }
    }
}

impl WorkerHandle {
    fn start(worker: LoadWorker, connections: Range<u64>, keys: Range<u64>) -> Result<Self, Error> {
        let (tasks, task_receiver) = mpsc::channel();
        let (result_sender, results) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("bench".to_owned())
            .spawn(move || worker.work(&task_receiver, &result_sender))
            .map_err(os_failure)?;
        Ok(Self {
            tasks: Some(tasks),
            results,
            thread: Some(thread),
            keys,
            connections,
        })
    }
}

impl Drop for WorkerHandle {
    /// Ends the worker and closes its connections: it ends without tasks.
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic aborts the process before");
        }
    }
}

/// The sockets of a connection, with their node numbers.
type Sockets = Vec<(usize, Link<TcpStream>)>;

/// Opens a socket to each node with active vBuckets, for each connection.
fn connect_all(target: &Target, plan: &Plan) -> Result<(Nodes, KeyForm, Vec<Sockets>), Error> {
    let (mut nodes, first) = Nodes::connect(&target.server)?;
    let key_form = first.key_form();
    let mut first = Some(first);
    let mut sockets = Vec::with_capacity(plan.connections as usize);
    for _ in 0..plan.connections {
        let mut mine = Vec::new();
        for node in nodes.active() {
            let client = match first.take_if(|_| node == 0) {
                Some(client) => client,
                None => nodes.open(node)?,
            };
            mine.push((node, client.into_stream()));
        }
        sockets.push(mine);
    }
    Ok((nodes, key_form, sockets))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn os_failure(error: std::io::Error) -> Error {
    Error::new(Cause::Machine, format!("load generator: {error}"))
}
