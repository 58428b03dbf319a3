//! The pool: the threads of a node that run the workers of all its buckets and of their stores.
//!
//! ```text
//!   signal, timer -> ready queue of a lane -> idle thread, or one more up to the lane's limit
//!                          ^                          |
//!                          +------- Again ------- step(now)
//! ```
//!
//! Only this module starts threads in this crate: everything else is a step that a test or a simulator can call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope, available_parallelism};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use storage::{Next, RunningWorker, Threads, WorkKind, Worker};

use crate::scheduling::Priority;

/// Idle time after which a thread ends, unless it is the last one of a lane with workers.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// A set of threads for workers that may wait for the same resource. A worker that waits for
/// another one (for example the flusher for a drain) must not share its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Work that requests wait for, without device I/O: reliever, timeouts of durable writes.
    Prompt,
    /// Work that may be late, without device I/O: expirer.
    Calm,
    /// Warmup of buckets.
    Warmup,
    /// Reads that a client waits for: evicted documents, ranges of keys.
    Fetch,
    /// Commits.
    Flush,
    /// Long reads of stores: backfiller, compactor, refiller.
    Read,
    /// Writing of logs to runs. Commits may wait for it.
    Drain,
    /// Merges of runs.
    Merge,
}

/// Properties of a lane.
struct Rules {
    name: &'static str,
    /// Maximum number of threads. A hung device blocks at most one thread for each worker of its
    /// bucket; the maximum is higher, so that other buckets continue.
    threads_max: usize,
    priority: Priority,
}

const LANES: [Lane; 8] = [
    Lane::Prompt,
    Lane::Calm,
    Lane::Warmup,
    Lane::Fetch,
    Lane::Flush,
    Lane::Read,
    Lane::Drain,
    Lane::Merge,
];

impl Lane {
    /// Returns the name of the lane's threads.
    pub(crate) fn name(self) -> &'static str {
        self.rules().name
    }

    fn rules(self) -> Rules {
        // Warmup has no competing work, and its threads end with it.
        let processors = available_parallelism().map_or(1, usize::from);
        let (name, threads_max, priority) = match self {
            Self::Prompt => ("prompt", 2, Priority::Foreground),
            Self::Calm => ("calm", 1, Priority::Background),
            Self::Warmup => ("warmup", processors.max(2), Priority::Foreground),
            Self::Fetch => ("fetch", 6, Priority::Foreground),
            Self::Flush => ("flush", 4, Priority::Background),
            Self::Read => ("read", 4, Priority::Background),
            Self::Drain => ("drain", 3, Priority::Background),
            Self::Merge => ("merge", 3, Priority::Background),
        };
        Rules {
            name,
            threads_max,
            priority,
        }
    }
}

/// The threads of a node that run workers. Dropping it ends them after the current steps, and drops unfinished workers.
pub struct Pool {
    lanes: Vec<Arc<Shared>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// Creates a pool without threads: each lane starts its first thread with its first worker.
    pub fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "how long a thread sleeps is as real as the thread"
        )]
        let began = Instant::now();
        let lane = |lane: &Lane| {
            Arc::new(Shared {
                rules: lane.rules(),
                began,
                state: Mutex::default(),
                work: Condvar::new(),
                ended: Condvar::new(),
            })
        };
        Self {
            lanes: LANES.iter().map(lane).collect(),
        }
    }

    /// Runs a thread within `scope`, for work that cannot wait for a lane.
    #[expect(clippy::unused_self, reason = "threads are started by the pool")]
    pub(crate) fn start_beside<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        run: impl FnOnce() + Send + 'scope,
    ) -> io::Result<()> {
        let thread = Builder::new().name("stopping".into());
        thread.spawn_scoped(scope, run).map(drop)
    }

    /// Adds a worker; its first step is due at once.
    ///
    /// # Errors
    /// No thread could be started for its lane.
    pub(crate) fn start(&self, lane: Lane, worker: Box<dyn Worker>) -> io::Result<Handle> {
        let lane = Arc::clone(&self.lanes[lane as usize]);
        let mut state = lane.state.lock();
        if state.threads == 0 {
            lane.start_thread(&mut state)?;
        }
        let id = state.next_id;
        state.next_id += 1;
        let rung = Arc::new(AtomicBool::new(false));
        let steps = Arc::<StepTotals>::default();
        let task = Task {
            worker: Some(worker),
            idle: false,
            at_ns: None,
            rung: Arc::clone(&rung),
            steps: Arc::clone(&steps),
        };
        state.tasks.insert(id, task);
        state.ready.push_back(id);
        lane.call_thread(&mut state);
        drop(state);
        Ok(Handle {
            lane,
            id,
            rung,
            steps,
        })
    }
}

impl Threads for Pool {
    fn start(&self, duty: WorkKind, worker: Box<dyn Worker>) -> io::Result<Box<dyn RunningWorker>> {
        let lane = match duty {
            WorkKind::Drain => Lane::Drain,
            WorkKind::Merge => Lane::Merge,
        };
        Ok(Box::new(Self::start(self, lane, worker)?))
    }
}

impl RunningWorker for Handle {
    fn ring(&self) {
        Self::ring(self);
    }

    fn join(&self) {
        Self::join(self);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for lane in &self.lanes {
            let mut state = lane.state.lock();
            state.stop = true;
            lane.work.notify_all();
            state.ready.clear();
            let left = std::mem::take(&mut state.tasks);
            lane.ended.notify_all();
            drop(state);
            drop(left);
        }
    }
}

/// Handle of a running worker, to ring it and to wait for its end.
#[derive(Clone)]
pub(crate) struct Handle {
    lane: Arc<Shared>,
    id: u64,
    /// Whether a signal came since the last step began.
    rung: Arc<AtomicBool>,
    /// Totals of its steps.
    pub(crate) steps: Arc<StepTotals>,
}

/// Number and duration of a worker's steps.
#[derive(Debug, Default)]
pub(crate) struct StepTotals {
    pub(crate) count: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
}

impl StepTotals {
    fn add(&self, took_ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.busy_ns.fetch_add(took_ns, Ordering::Relaxed);
    }
}

impl Handle {
    /// Makes the next step due.
    ///
    /// Cost: one swap if it is due already, else a lock; wakes a thread.
    pub(crate) fn ring(&self) {
        if self.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = self.lane.state.lock();
        if state.make_ready(self.id) {
            self.lane.call_thread(&mut state);
        }
    }

    /// Whether a step runs or is due.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.lane.state.lock();
        state.tasks.get(&self.id).is_some_and(|task| !task.idle)
    }

    /// Waits for the end of the worker: nothing of it runs afterwards.
    pub(crate) fn join(&self) {
        let mut state = self.lane.state.lock();
        self.lane
            .ended
            .wait_while(&mut state, |state| state.tasks.contains_key(&self.id));
    }
}

/// Makes the next step of a worker due, once the worker runs; earlier rings have no effect.
#[derive(Default)]
pub(crate) struct Signal(OnceLock<Handle>);

impl Signal {
    /// Connects the signal to its worker.
    pub(crate) fn connect(&self, handle: Handle) {
        let connected = self.0.set(handle);
        debug_assert!(connected.is_ok(), "the workers of a bucket start once");
    }

    pub(crate) fn ring(&self) {
        if let Some(handle) = self.0.get() {
            handle.ring();
        }
    }

    /// Rings if the worker is idle; `false` if it is busy or missing.
    pub(crate) fn ring_if_idle(&self) -> bool {
        let idle = self.0.get().filter(|handle| !handle.is_busy());
        idle.inspect(|handle| handle.ring()).is_some()
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connected = self.0.get().is_some();
        f.debug_struct("Signal")
            .field("connected", &connected)
            .finish()
    }
}

/// A worker of a lane.
struct Task {
    /// `None` while a step runs.
    worker: Option<Box<dyn Worker>>,
    /// Whether it waits for a signal, or for the time in `at_ns` if there is one.
    idle: bool,
    at_ns: Option<u64>,
    rung: Arc<AtomicBool>,
    steps: Arc<StepTotals>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<u64, Task>,
    next_id: u64,
    ready: VecDeque<u64>,
    timers: BTreeSet<(u64, u64)>,
    threads: usize,
    /// Number of threads that wait for work.
    idle: usize,
    stop: bool,
}

impl State {
    /// Queues an idle worker. Returns whether it did.
    fn make_ready(&mut self, id: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.idle) else {
            return false;
        };
        task.idle = false;
        if let Some(at_ns) = task.at_ns.take() {
            self.timers.remove(&(at_ns, id));
        }
        self.ready.push_back(id);
        true
    }

    /// Whether there is one thread more than a lane with idle workers needs.
    fn has_threads_to_spare(&self) -> bool {
        self.threads > usize::from(!self.tasks.is_empty())
    }

    /// Queues the workers that are due.
    fn ripen(&mut self, now_ns: u64) {
        while let Some((at_ns, id)) = self.timers.first().copied()
            && at_ns <= now_ns
        {
            self.make_ready(id);
        }
    }

    fn take(&mut self) -> Option<(u64, Box<dyn Worker>, Arc<StepTotals>)> {
        let id = self.ready.pop_front()?;
        let task = self.tasks.get_mut(&id)?;
        task.rung.swap(false, Ordering::SeqCst);
        Some((id, task.worker.take()?, Arc::clone(&task.steps)))
    }

    /// Returns a worker after its step and schedules its next one.
    fn put_back(&mut self, id: u64, worker: Box<dyn Worker>, next: Next) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.worker = Some(worker);
        if next == Next::Again || task.rung.load(Ordering::SeqCst) {
            return self.ready.push_back(id);
        }
        task.idle = true;
        if let Next::At(at_ns) = next {
            task.at_ns = Some(at_ns);
            self.timers.insert((at_ns, id));
        }
    }
}

/// State of a lane, shared by its threads and all others.
struct Shared {
    rules: Rules,
    began: Instant,
    state: Mutex<State>,
    /// Signals work to an idle thread.
    work: Condvar,
    /// Signals the end of a worker.
    ended: Condvar,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Makes sure that a thread takes the ready workers.
    fn call_thread(self: &Arc<Self>, state: &mut State) {
        if state.idle > 0 {
            self.work.notify_one();
        }
        if state.ready.len() > state.idle
            && state.threads < self.rules.threads_max
            && let Err(error) = self.start_thread(state)
        {
            let lane = self.rules.name;
            tracing::warn!(lane, %error, "no more threads for workers");
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let this = Arc::clone(self);
        Builder::new()
            .name(self.rules.name.into())
            .stack_size(1 << 20)
            .spawn(move || this.run())?;
        state.threads += 1;
        Ok(())
    }

    fn run(self: &Arc<Self>) {
        self.rules.priority.apply();
        let mut state = self.state.lock();
        let mut idle_since_ns = None;
        while !state.stop {
            let now_ns = self.now_ns();
            state.ripen(now_ns);
            if let Some((id, mut worker, steps)) = state.take() {
                idle_since_ns = None;
                if !state.ready.is_empty() {
                    self.call_thread(&mut state);
                }
                let goes_on = MutexGuard::unlocked(&mut state, || {
                    let stepped = catch_unwind(AssertUnwindSafe(|| worker.step(now_ns)));
                    let next = stepped.unwrap_or_else(|_| {
                        tracing::error!("a worker ended by a panic");
                        Next::Done
                    });
                    steps.add(self.now_ns().saturating_sub(now_ns));
                    // A finished worker is dropped before its end is signalled.
                    (next != Next::Done).then_some((worker, next))
                });
                if let Some((worker, next)) = goes_on {
                    state.put_back(id, worker, next);
                } else {
                    state.tasks.remove(&id);
                    self.ended.notify_all();
                }
                continue;
            }
            let since_ns = *idle_since_ns.get_or_insert(now_ns);
            let left = IDLE_MAX.saturating_sub(Duration::from_nanos(now_ns - since_ns));
            if left.is_zero() && state.has_threads_to_spare() {
                break;
            }
            self.wait(&mut state, now_ns, left);
        }
        state.threads -= 1;
    }

    /// Waits for work, for the next timer, or until there is one thread too many.
    fn wait(&self, state: &mut MutexGuard<'_, State>, now_ns: u64, left: Duration) {
        let timer = state.timers.first().map(|(at_ns, _)| at_ns - now_ns);
        let idle = state.has_threads_to_spare().then_some(left);
        let limit = timer
            .map(Duration::from_nanos)
            .into_iter()
            .chain(idle)
            .min();
        state.idle += 1;
        match limit {
            Some(limit) => drop(self.work.wait_for(state, limit)),
            None => self.work.wait(state),
        }
        state.idle -= 1;
    }
}

#[cfg(test)]
mod tests;
