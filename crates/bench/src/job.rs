//! A job of a worker, such as a slice: sends requests on schedule and counts answers.

use std::ops::Range;
use std::time::{Duration, Instant};

use model::Cas;
use wire::{Frame, FrameError, Magic, Status};

use crate::connection::{Connection, Due, Pending, Socket};
use crate::error::{Cause, Error, broken};
use crate::measure::Counts;
use crate::pace::Pace;
use crate::plan::Amount;
use crate::protocol::{OperationKind, Protocol};
use crate::routes::{AGAIN_NS, Connections, Routes};
use crate::verify::Memory;
use crate::workload::{Operation, Workload};

/// Longest wait of a poll, and so the longest time until a stall is noticed.
const PATIENCE_MAX: Duration = Duration::from_millis(100);
/// Time after the end in which an open loop still sends requests that were due before the end.
const GRACE_NS: u64 = 2_000_000_000;

/// Longest time of a load without a stored key.
const LOAD_PATIENCE: Duration = Duration::from_secs(15);
/// Pause after a refusal.
const LOAD_PAUSE: Duration = Duration::from_micros(500);

/// A task of a worker.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Writes each of these keys once.
    Load(Range<u64>),
    /// Runs the mixed load of the plan.
    Mixed {
        /// Duration, or number of operations of this worker.
        amount: Amount,
        /// Operations per second of this worker; `None` for a closed loop.
        rate: Option<f64>,
    },
}

/// Source of the next request.
#[derive(Debug)]
enum RequestSource {
    Load {
        keys: Range<u64>,
        again: Vec<u64>,
        /// Time at which the last key was stored, or the load began.
        stored_ns: u64,
    },
    Mixed {
        left: u64,
    },
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Job {
    source: RequestSource,
    started: Instant,
    depth: usize,
    pace: Option<Pace>,
    /// Number of the next operation of the worker in an open loop.
    next_due: u64,
    end_ns: Option<u64>,
    /// Time of the newest answer.
    last_answer_ns: u64,
    /// Number of requests without answer.
    outstanding: u64,
    counts: Counts,
}

impl Job {
    /// Starts the job and its clock.
    pub(crate) fn start(task: Task, depth: usize, connections: usize) -> Self {
        let (source, end, rate) = match task {
            Task::Load(keys) => {
                let (again, stored_ns) = (Vec::new(), 0);
                let source = RequestSource::Load {
                    keys,
                    again,
                    stored_ns,
                };
                (source, None, None)
            }
            Task::Mixed { amount, rate } => match amount {
                Amount::Ops(left) => (RequestSource::Mixed { left }, None, rate),
                Amount::Time(time) => (RequestSource::Mixed { left: u64::MAX }, Some(time), rate),
            },
        };
        Self {
            source,
            started: Instant::now(),
            depth,
            pace: rate.map(|rate| Pace::new(rate, connections)),
            next_due: 0,
            end_ns: end.map(nanoseconds),
            last_answer_ns: 0,
            outstanding: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    /// Whether all requests are sent and answered.
    pub(crate) fn is_done(&self, now_ns: u64) -> bool {
        self.outstanding == 0 && self.is_exhausted(now_ns)
    }

    fn is_exhausted(&self, now_ns: u64) -> bool {
        let source_is_empty = match &self.source {
            RequestSource::Load { keys, again, .. } => keys.is_empty() && again.is_empty(),
            RequestSource::Mixed { left } => *left == 0,
        };
        source_is_empty
            || self
                .end_ns
                .is_some_and(|end_ns| now_ns >= end_ns && self.due_ns() >= end_ns)
    }

    /// Time of the next operation in the schedule; never in a closed loop.
    fn due_ns(&self) -> u64 {
        self.pace
            .map_or(u64::MAX, |pace| pace.due_ns(self.next_due))
    }

    /// Returns the longest wait of a poll. In an open loop an alarm makes it precise.
    pub(crate) fn patience(&self, now_ns: u64) -> Duration {
        let until = |wake_ns: u64| Duration::from_nanos(wake_ns.saturating_sub(now_ns));
        let end_ns = self.end_ns.unwrap_or(u64::MAX);
        let wake = match self.due_ns() {
            due_ns if due_ns < end_ns => until(due_ns),
            _ if now_ns < end_ns => until(end_ns),
            _ => Duration::MAX,
        };
        wake.min(PATIENCE_MAX)
    }

    /// Whether requests are sent on schedule.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// Returns an error if there was no answer for too long.
    pub(crate) fn check_progress(&self, now_ns: u64, timeout: Duration) -> Result<(), Error> {
        let waited = Duration::from_nanos(now_ns.saturating_sub(self.last_answer_ns));
        if self.outstanding > 0 && waited > timeout {
            let left = self.outstanding;
            let reason = format!("no answer for {waited:?}, {left} requests outstanding");
            return Err(Error::new(Cause::Unavailable, reason));
        }
        Ok(())
    }

    /// Sends the first requests of a closed loop.
    pub(crate) fn begin(
        &mut self,
        connections: &mut Connections,
        workload: &mut Workload,
    ) -> Result<(), Error> {
        let count = if self.is_paced() {
            0
        } else {
            connections.all.len()
        };
        (0..count).try_for_each(|index| self.pump(connections, index, workload, 0))
    }

    /// Sends the due requests of an open loop.
    pub(crate) fn release(
        &mut self,
        connections: &mut Connections,
        workload: &mut Workload,
        now_ns: u64,
    ) -> Result<(), Error> {
        let Some(pace) = self.pace else { return Ok(()) };
        let horizon_ns = self
            .end_ns
            .map_or(now_ns, |end_ns| now_ns.min(end_ns.saturating_sub(1)));
        let mut released = 0;
        while pace.due_ns(self.next_due) <= horizon_ns {
            let index = pace.connection_of(self.next_due);
            self.next_due += 1;
            released += 1;
            // After one round, the pump of each connection has sent all due requests.
            if released <= connections.all.len() {
                self.pump(connections, index, workload, now_ns)?;
            }
        }
        Ok(())
    }

    /// Sends requests again that no node executed, if their time has come.
    pub(crate) fn try_again(
        &mut self,
        connections: &mut Connections,
        workload: &mut Workload,
        now_ns: u64,
    ) -> Result<(), Error> {
        for index in std::mem::take(&mut connections.waiting) {
            self.pump(connections, index, workload, now_ns)?;
            let is_listed = connections.waiting.contains(&index);
            if !is_listed && !connections.all[index].again.is_empty() {
                connections.waiting.push(index);
            }
        }
        Ok(())
    }

    /// Sends all requests that one connection may send at this time, in one write per node.
    pub(crate) fn pump(
        &mut self,
        connections: &mut Connections,
        index: usize,
        workload: &mut Workload,
        now_ns: u64,
    ) -> Result<(), Error> {
        let connection = &mut connections.all[index];
        if !connection.follows(connections.routes.map()) {
            return Ok(());
        }
        let mut any = false;
        if !connection.again.is_empty() && connection.again_ns <= now_ns {
            any = true;
            for due in std::mem::take(&mut connection.again) {
                send(connections, index, due, workload, now_ns)?;
            }
        }
        let connection = &connections.all[index];
        let (mut outstanding, mut issued) = (connection.outstanding(), connection.issued);
        while outstanding < self.depth {
            let Some(intended_ns) = self.intended_ns(index, issued, now_ns) else {
                break;
            };
            let Some(operation) = self.next_operation(workload) else {
                break;
            };
            let due = Due {
                operation,
                vbucket: workload.vbucket(operation.key),
                intended_ns,
            };
            send(connections, index, due, workload, now_ns)?;
            (outstanding, issued) = (outstanding + 1, issued + 1);
            self.outstanding += 1;
            any = true;
        }
        let connection = &mut connections.all[index];
        connection.issued = issued;
        if any { connection.flush() } else { Ok(()) }
    }

    /// Returns the due time of a connection's next request; `None` while it is not due.
    fn intended_ns(&self, index: usize, nth: u64, now_ns: u64) -> Option<u64> {
        let end_ns = self.end_ns.unwrap_or(u64::MAX);
        match &self.pace {
            None => (now_ns < end_ns).then_some(now_ns),
            Some(pace) => {
                let due_ns = pace.due_on_connection_ns(index, nth);
                let given_up = now_ns > end_ns.saturating_add(GRACE_NS);
                (due_ns <= now_ns && due_ns < end_ns && !given_up).then_some(due_ns)
            }
        }
    }

    fn next_operation(&mut self, workload: &mut Workload) -> Option<Operation> {
        match &mut self.source {
            RequestSource::Load { keys, again, .. } => {
                let key = again.pop().or_else(|| keys.next())?;
                let kind = OperationKind::Set;
                Some(Operation { kind, key })
            }
            RequestSource::Mixed { left } => {
                *left = left.checked_sub(1)?;
                Some(workload.draw())
            }
        }
    }

    /// Reads all available answers of a node, and sends the requests that may follow them.
    pub(crate) fn receive(
        &mut self,
        connections: &mut Connections,
        (index, node): (usize, usize),
        workload: &mut Workload,
    ) -> Result<(), Error> {
        loop {
            let more = connections.all[index].fill(node)?;
            let now_ns = self.now_ns();
            match workload.protocol() {
                Protocol::Binary => {
                    let run = workload.checked_run();
                    self.take_answers(connections, (index, node), run, now_ns)?;
                }
                lined => self.take_lines(&mut connections.all[index], lined, now_ns)?,
            }
            self.pump(connections, index, workload, now_ns)?;
            if !more {
                return Ok(());
            }
        }
    }

    fn take_answers(
        &mut self,
        connections: &mut Connections,
        (index, node): (usize, usize),
        run: Option<u32>,
        now_ns: u64,
    ) -> Result<(), Error> {
        let Connections { all, routes, .. } = &mut *connections;
        let Connection {
            number,
            sockets,
            memory,
            ..
        } = &mut all[index];
        let Some(Some(Socket { input, pending, .. })) = sockets.get_mut(node) else {
            return Ok(());
        };
        let mut refused = Vec::new();
        let malformed = |error: FrameError| broken(*number, &error);
        while let Some(frame) = input.next().map_err(malformed)? {
            if frame.header.magic == Magic::ServerRequest {
                continue;
            }
            let pending =
                match_answer(pending, &frame).map_err(|reason| broken(*number, &reason))?;
            if frame.status() == Status::NOT_MY_VBUCKET {
                self.counts.retries += 1;
                let due = Due {
                    operation: pending.request.operation,
                    vbucket: pending.request.vbucket,
                    intended_ns: pending.intended_ns,
                };
                refused.push((due, again_ns(routes, &frame, node, now_ns)));
                continue;
            }
            let answer = Checked {
                pending,
                status: frame.status(),
                cas: frame.header.cas,
                value: frame.value,
            };
            if let Some(run) = run {
                self.verify(memory, &answer, run);
            }
            self.count(&answer, now_ns)?;
        }
        for (due, again_ns) in refused {
            connections.send_again(index, due, again_ns);
        }
        Ok(())
    }

    fn take_lines(
        &mut self,
        connection: &mut Connection,
        protocol: Protocol,
        now_ns: u64,
    ) -> Result<(), Error> {
        let number = connection.number;
        // Servers with the text protocols have no maps.
        let Some(socket) = connection.socket(0) else {
            return Ok(());
        };
        while let Some(pending) = socket.pending.front().copied() {
            let found = socket.input.next_by(|bytes| protocol.answer(bytes));
            let Some(status) = found.map_err(|error| broken(number, &error))? else {
                break;
            };
            socket.pending.pop_front();
            let answer = Checked {
                pending,
                status,
                cas: Cas::ANY,
                value: &[],
            };
            self.count(&answer, now_ns)?;
        }
        Ok(())
    }

    fn verify(&mut self, memory: &mut Memory, answer: &Checked<'_>, run: u32) {
        if answer.status != Status::SUCCESS {
            return;
        }
        let stamp = answer.pending.request.stamp(run);
        let violations = &mut self.counts.violations;
        match answer.pending.request.operation.kind {
            OperationKind::Set => memory.wrote(stamp, answer.cas, violations),
            OperationKind::Get => memory.read(stamp, answer.value, answer.cas, violations),
            OperationKind::Delete => {}
        }
    }

    fn count(&mut self, answer: &Checked<'_>, now_ns: u64) -> Result<(), Error> {
        self.outstanding -= 1;
        self.last_answer_ns = now_ns;
        let counts = &mut self.counts;
        let latency_ns = now_ns.saturating_sub(answer.pending.intended_ns);
        counts.latencies.record(latency_ns);
        counts.ops += u64::from(self.end_ns.is_none_or(|end_ns| now_ns <= end_ns));
        let kind = answer.pending.request.operation.kind;
        match kind {
            OperationKind::Get => counts.gets += 1,
            OperationKind::Set | OperationKind::Delete => {
                counts.sets += 1;
                counts.set_latencies.record(latency_ns);
            }
        }
        match answer.status {
            Status::SUCCESS => {
                if let RequestSource::Load { stored_ns, .. } = &mut self.source {
                    *stored_ns = now_ns;
                }
                Ok(())
            }
            Status::KEY_ENOENT if kind != OperationKind::Set => {
                counts.misses += u64::from(kind == OperationKind::Get);
                Ok(())
            }
            status => {
                counts.error(status);
                self.load_again(answer.pending.request.operation.key, status, now_ns)
            }
        }
    }

    /// During a load, sends a temporarily refused key again after a pause, so that the server can make room. Ends
    /// the load if nothing is stored for a while.
    fn load_again(&mut self, key: u64, status: Status, now_ns: u64) -> Result<(), Error> {
        let RequestSource::Load {
            again, stored_ns, ..
        } = &mut self.source
        else {
            return Ok(());
        };
        let for_the_moment = matches!(
            status,
            Status::ENOMEM | Status::EBUSY | Status::ETMPFAIL | Status::LOCKED
        );
        let waited = Duration::from_nanos(now_ns.saturating_sub(*stored_ns));
        if !for_the_moment || waited > LOAD_PATIENCE {
            let name = status.description();
            let reason = format!(
                "cannot load: the server answers {name}, status 0x{:02x}",
                status.0
            );
            return Err(Error::new(Cause::Refused(status), reason));
        }
        std::thread::sleep(LOAD_PAUSE);
        again.push(key);
        Ok(())
    }

    /// Returns the counts and their time span.
    ///
    /// Requests of an open loop that were due but not sent count with their latency so far: without them a slow
    /// server would look better than it is.
    pub(crate) fn finish(mut self, connections: &[Connection]) -> (Counts, Duration) {
        let now_ns = self.now_ns();
        if let (Some(pace), Some(end_ns)) = (self.pace, self.end_ns) {
            for (index, connection) in connections.iter().enumerate() {
                let unsent = (connection.issued..)
                    .map(|nth| pace.due_on_connection_ns(index, nth))
                    .take_while(|&due_ns| due_ns < end_ns);
                for due_ns in unsent {
                    self.counts.unsent += 1;
                    self.counts.latencies.record(now_ns.saturating_sub(due_ns));
                }
            }
        }
        let elapsed_ns = self.end_ns.unwrap_or(self.last_answer_ns);
        (self.counts, Duration::from_nanos(elapsed_ns))
    }
}

/// Sends a request to the node of its vBucket in the newest map; without such a node the request waits.
fn send(
    connections: &mut Connections,
    index: usize,
    due: Due,
    workload: &mut Workload,
    now_ns: u64,
) -> Result<(), Error> {
    let Connections { all, routes, .. } = &mut *connections;
    let connection = &mut all[index];
    let Some(node) = routes.owner(due.vbucket) else {
        connections.send_again(index, due, now_ns + AGAIN_NS);
        return Ok(());
    };
    if connection.socket(node).is_none() {
        connection.add(node, routes.connect(index, node)?);
    }
    connection.issue(node, due, now_ns, |request, out| {
        workload.encode(request, out);
    });
    Ok(())
}

/// Returns the time at which a refused request is sent again: without delay if the refusal brought a newer map.
fn again_ns(routes: &mut Routes, refusal: &Frame<'_>, node: usize, now_ns: u64) -> u64 {
    if routes.learn(refusal.value, node) {
        now_ns
    } else {
        now_ns + AGAIN_NS
    }
}

/// An answer and its request.
struct Checked<'a> {
    pending: Pending,
    status: Status,
    cas: Cas,
    value: &'a [u8],
}

/// Returns the request of an answer: always the oldest one, since ordered answers were negotiated.
fn match_answer(
    pending: &mut std::collections::VecDeque<Pending>,
    frame: &Frame<'_>,
) -> Result<Pending, String> {
    if !frame.header.magic.is_client_response() {
        return Err(format!("a frame of kind {:?}", frame.header.magic));
    }
    match pending.pop_front() {
        Some(oldest) if oldest.request.opaque == frame.header.opaque => Ok(oldest),
        Some(_) => Err("answers are out of order".to_owned()),
        None => Err("an answer to nothing".to_owned()),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
