//! A thread of the load generator: an event loop over its connections.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use client::{Link, Nodes};
use mio::{Events, Poll, Token};

use crate::error::{Cause, Error};
use crate::job::{Job, Task};
use crate::measure::Counts;
use crate::pace::Alarm;
use crate::plan::Plan;
use crate::routes::{AGAIN_NS, Connections, connection_of};
use crate::workload::Workload;

/// Largest number of events per poll.
const EVENTS_MAX: usize = 1_024;
const ALARM: Token = Token(usize::MAX);

/// Result of a worker's task: the counts and their time span.
pub(crate) type Done = Result<(Counts, Duration), Error>;

/// The event loop. It keeps its connections from job to job.
#[derive(Debug)]
pub(crate) struct LoadWorker {
    poll: Poll,
    events: Events,
    alarm: Alarm,
    connections: Connections,
    workload: Workload,
    depth: usize,
    timeout: Duration,
}

impl LoadWorker {
    /// Creates a worker with the sockets of each connection, without outstanding requests. `first` is the number
    /// of the first connection.
    pub(crate) fn new(
        sockets: Vec<Vec<(usize, Link<TcpStream>)>>,
        first: u32,
        nodes: Nodes,
        workload: Workload,
        plan: &Plan,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let registry = poll.registry().try_clone()?;
        let connections = Connections::new(sockets, first, nodes, registry, plan)?;
        let events = Events::with_capacity(EVENTS_MAX);
        Ok(Self {
            poll,
            events,
            alarm,
            connections,
            workload,
            depth: plan.depth,
            timeout: plan.timeout,
        })
    }

    /// Runs tasks until there are no more or one fails.
    pub(crate) fn work(mut self, tasks: &Receiver<Task>, results: &Sender<Done>) {
        for task in tasks {
            let done = self.run(task);
            let failed = done.is_err();
            if results.send(done).is_err() || failed {
                return;
            }
        }
    }

    fn run(&mut self, task: Task) -> Done {
        for connection in &mut self.connections.all {
            connection.issued = 0;
        }
        let mut job = Job::start(task, self.depth, self.connections.all.len());
        job.begin(&mut self.connections, &mut self.workload)?;
        loop {
            let now_ns = job.now_ns();
            job.release(&mut self.connections, &mut self.workload, now_ns)?;
            job.try_again(&mut self.connections, &mut self.workload, now_ns)?;
            if job.is_done(now_ns) {
                return Ok(job.finish(&self.connections.all));
            }
            job.check_progress(now_ns, self.timeout)?;
            let mut patience = job.patience(now_ns);
            if !self.connections.waiting.is_empty() {
                patience = patience.min(Duration::from_nanos(AGAIN_NS));
            }
            if job.is_paced() {
                self.alarm
                    .set(patience)
                    .map_err(|error| cannot_wait(&error))?;
            }
            self.wait(patience)?;
            self.serve_events(&mut job)?;
        }
    }

    fn wait(&mut self, patience: Duration) -> Result<(), Error> {
        match self.poll.poll(&mut self.events, Some(patience)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(cannot_wait(&error)),
            _ => Ok(()),
        }
    }

    fn serve_events(&mut self, job: &mut Job) -> Result<(), Error> {
        for event in self.events.iter().filter(|event| event.token() != ALARM) {
            let (index, node) = connection_of(event.token());
            if event.is_writable() {
                self.connections.all[index].flush()?;
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                job.receive(&mut self.connections, (index, node), &mut self.workload)?;
            }
        }
        Ok(())
    }
}

fn cannot_wait(error: &io::Error) -> Error {
    Error::new(Cause::Machine, format!("cannot wait for events: {error}"))
}
