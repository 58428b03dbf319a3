//! One server under load: its connections, its worker threads, and what they measured.

use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Client, ConnectOptions, KeyForm, Link, SaltedCache};

use super::cpu;
use super::error::JobError;
use super::job::Task;
use super::measure::{Counts, Slice};
use super::options::{Amount, Plan};
use super::worker::{Done, Worker};
use super::workload::Workload;
use crate::exit::{Failure, Sysexit, code_of_status};

/// Where a server is and how it is called in the report.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name in the report.
    pub(crate) name: String,
    /// How to connect to it.
    pub(crate) server: ConnectOptions,
    /// Its process, when its CPU time is to be measured.
    pub(crate) pid: Option<u32>,
}

/// A server and the workers that put load on it.
#[derive(Debug)]
pub(crate) struct Side {
    /// The server.
    pub(crate) target: Target,
    /// What was measured so far.
    pub(crate) slices: Vec<Slice>,
    workers: Vec<Hand>,
}

/// The coordinator's end of a worker.
#[derive(Debug)]
struct Hand {
    tasks: Option<Sender<Task>>,
    results: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// Keys that the worker loads.
    keys: (u64, u64),
    /// Connections of the worker.
    connections: u32,
}

impl Side {
    /// Opens all connections and starts the workers.
    ///
    /// # Errors
    /// A connection cannot be opened, or the system has no resources left.
    pub(crate) fn open(target: Target, plan: &Plan, run: u32) -> Result<Self, Failure> {
        if let Some(pid) = target.pid.filter(|&pid| cpu::process_cpu(pid).is_none()) {
            let reason = format!("{}: cannot read the CPU time of process {pid}", target.name);
            return Err(Failure::usage(reason));
        }
        let (mut sockets, key_form) = connect_all(&target, plan)?;
        let mut workers = Vec::new();
        for index in 0..plan.threads {
            let (first, end) = share(index, plan.threads, u64::from(plan.connections));
            let rest = sockets.split_off((end - first) as usize);
            let mine = std::mem::replace(&mut sockets, rest);
            let workload = Workload::new(plan, key_form, run, u64::from(index) + 1);
            let number = 1 + first as u32;
            let worker = Worker::new(mine, number, workload, plan).map_err(os_failure)?;
            let keys = share(index, plan.threads, plan.keys);
            workers.push(Hand::start(worker, keys, (end - first) as u32)?);
        }
        Ok(Self {
            target,
            slices: Vec::new(),
            workers,
        })
    }

    /// Writes every key once.
    ///
    /// # Errors
    /// As every job: a connection broke, the protocol was broken, the server refused.
    pub(crate) fn load(&mut self) -> Result<(), Failure> {
        self.run(|hand| Task::Load {
            from: hand.keys.0,
            to: hand.keys.1,
        })
        .map(drop)
    }

    /// Puts load on the server without measuring.
    ///
    /// # Errors
    /// As [`Side::load`].
    pub(crate) fn warm_up(&mut self, plan: &Plan) -> Result<(), Failure> {
        if plan.warmup > Duration::ZERO {
            self.mixed(plan, Amount::Time(plan.warmup))?;
        }
        Ok(())
    }

    /// Measures one slice.
    ///
    /// # Errors
    /// As [`Side::load`].
    pub(crate) fn measure(&mut self, plan: &Plan) -> Result<&Slice, Failure> {
        let slice = self.mixed(plan, plan.slice)?;
        self.slices.push(slice);
        Ok(&self.slices[self.slices.len() - 1])
    }

    fn mixed(&mut self, plan: &Plan, amount: Amount) -> Result<Slice, Failure> {
        let connections = u64::from(plan.connections);
        let mut given = 0;
        let mut connections_given = 0;
        self.run(|hand| {
            let part = f64::from(hand.connections) / f64::from(plan.connections);
            connections_given += u64::from(hand.connections);
            let amount = match amount {
                Amount::Time(time) => Amount::Time(time),
                Amount::Ops(ops) => {
                    let upto = (u128::from(ops) * u128::from(connections_given)
                        / u128::from(connections)) as u64;
                    let mine = upto - given;
                    given = upto;
                    Amount::Ops(mine)
                }
            };
            Task::Mixed {
                amount,
                rate: plan.rate.map(|rate| rate * part),
            }
        })
    }

    fn run(&mut self, mut task_of: impl FnMut(&Hand) -> Task) -> Result<Slice, Failure> {
        let cpu = |pid: Option<u32>| pid.and_then(cpu::process_cpu);
        let cpu_before = cpu(self.target.pid);
        for hand in &self.workers {
            let task = task_of(hand);
            let tasks = hand
                .tasks
                .as_ref()
                .expect("tasks are given until the side is dropped");
            tasks.send(task).map_err(|_| self.worker_ended())?;
        }
        let mut counts = Counts::new();
        let mut elapsed = Duration::ZERO;
        for hand in &self.workers {
            let done = hand.results.recv().map_err(|_| self.worker_ended())?;
            let (mine, time) = done.map_err(|error| self.job_failure(&error))?;
            counts.merge(&mine);
            elapsed = elapsed.max(time);
        }
        let cpu_after = cpu(self.target.pid);
        let server_cpu = cpu_before
            .zip(cpu_after)
            .map(|(before, after)| after.saturating_sub(before));
        Ok(Slice {
            counts,
            elapsed,
            server_cpu,
        })
    }

    fn worker_ended(&self) -> Failure {
        Failure::new(
            Sysexit::Os,
            format!("{}: a worker has ended early", self.target.name),
        )
    }

    fn job_failure(&self, error: &JobError) -> Failure {
        let code = match error {
            JobError::Lost { .. } | JobError::Stalled(..) => Sysexit::Unavailable,
            JobError::Protocol { .. } => Sysexit::Protocol,
            JobError::LoadRefused(status) => code_of_status(*status),
            JobError::Poll(_) => Sysexit::Os,
        };
        Failure::new(
            code,
            format!(
                "{} ({}): {error}",
                self.target.name, self.target.server.address
            ),
        )
    }
}

impl Hand {
    fn start(worker: Worker, keys: (u64, u64), connections: u32) -> Result<Self, Failure> {
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

impl Drop for Hand {
    /// Without tasks the worker ends; its connections are closed when this returns.
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic aborts the process before");
        }
    }
}

fn connect_all(target: &Target, plan: &Plan) -> Result<(Vec<Link<TcpStream>>, KeyForm), Failure> {
    let mut cache = SaltedCache::default();
    let mut sockets = Vec::with_capacity(plan.connections as usize);
    let mut key_form = KeyForm::default();
    for _ in 0..plan.connections {
        let client = Client::connect(&target.server, &mut cache)?;
        key_form = client.key_form();
        sockets.push(client.into_stream());
    }
    Ok((sockets, key_form))
}

/// Part `index` of `0..total`, as even as possible.
fn share(index: u32, parts: u32, total: u64) -> (u64, u64) {
    let edge = |part: u32| (u128::from(total) * u128::from(part) / u128::from(parts)) as u64;
    (edge(index), edge(index + 1))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn os_failure(error: std::io::Error) -> Failure {
    Failure::new(Sysexit::Os, format!("load generator: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (parts, total) in [(1, 10), (3, 10), (4, 4), (7, 1_000_000_000)] {
            let shares: Vec<_> = (0..parts).map(|index| share(index, parts, total)).collect();
            assert_eq!((shares[0].0, shares[parts as usize - 1].1), (0, total));
            assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0));
            let sizes: Vec<_> = shares.iter().map(|(from, to)| to - from).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
