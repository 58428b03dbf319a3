//! Workers whose steps the test calls.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::work::{Next, RunningWorker, Threads, WorkKind, Worker};

/// Maximum number of steps of a worker; more count as endless.
const STEPS_MAX: u32 = 100_000;

/// Number of steps of workers after which they must rest.
pub(super) const WORK_MAX: usize = 60;

/// Interval between two checks whether a call waits for a worker.
const PATIENCE: Duration = Duration::from_millis(1);

/// Whether a thread of this process sleeps. A thread without a processor does not count.
fn sleeps(thread: &Path) -> bool {
    let stat = Path::new("/proc").join(thread).join("stat");
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_some_and(|state| state.starts_with('S'))
}

/// Runs the workers of stores, one step at a time, in the calling thread.
#[derive(Clone, Default)]
pub(crate) struct SimThreads {
    workers: Arc<Mutex<Vec<Arc<WorkerSlot>>>>,
    now_ns: Arc<Mutex<u64>>,
}

struct WorkerSlot {
    /// `None` during a step, and at the end.
    worker: Mutex<Option<Box<dyn Worker>>>,
    due: Mutex<Next>,
}

impl WorkerSlot {
    fn is_due(&self, now_ns: u64) -> bool {
        match *self.due.lock() {
            Next::Again => true,
            Next::At(at_ns) => at_ns <= now_ns,
            Next::OnSignal | Next::Done => false,
        }
    }

    fn step(&self, now_ns: u64) {
        let Some(mut worker) = self.worker.lock().take() else {
            return;
        };
        *self.due.lock() = Next::OnSignal;
        let next = worker.step(now_ns);
        if next == Next::Done {
            drop(worker);
            *self.due.lock() = Next::Done;
            return;
        }
        let mut due = self.due.lock();
        // A signal during the step counts.
        if *due == Next::OnSignal {
            *due = next;
        }
        *self.worker.lock() = Some(worker);
    }
}

impl SimThreads {
    /// Runs up to `steps` steps of due workers, in turns. Returns the number of steps.
    pub(crate) fn run(&self, steps: usize) -> usize {
        let mut made = 0;
        while made < steps {
            let slots = self.workers.lock().clone();
            let now_ns = *self.now_ns.lock();
            let due = slots.iter().filter(|slot| slot.is_due(now_ns));
            let due: Vec<_> = due.take(steps - made).collect();
            if due.is_empty() {
                break;
            }
            for slot in due {
                slot.step(now_ns);
                made += 1;
            }
        }
        made
    }

    /// Makes a call; while it waits for workers, they make steps.
    pub(crate) fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        let caller = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    std::thread::park_timeout(PATIENCE);
                    if !over.load(Ordering::SeqCst) && sleeps(&caller) {
                        self.run(1);
                    }
                }
            });
            let result = catch_unwind(AssertUnwindSafe(call));
            over.store(true, Ordering::SeqCst);
            helper.thread().unpark();
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Advances the time.
    pub(crate) fn pass(&self, ns: u64) {
        *self.now_ns.lock() += ns;
    }
}

impl Threads for SimThreads {
    fn start(
        &self,
        _duty: WorkKind,
        worker: Box<dyn Worker>,
    ) -> io::Result<Box<dyn RunningWorker>> {
        let slot = Arc::new(WorkerSlot {
            worker: Mutex::new(Some(worker)),
            due: Mutex::new(Next::Again),
        });
        self.workers.lock().push(Arc::clone(&slot));
        Ok(Box::new(SimRunning {
            slot,
            threads: self.clone(),
        }))
    }
}

struct SimRunning {
    slot: Arc<WorkerSlot>,
    threads: SimThreads,
}

impl RunningWorker for SimRunning {
    fn ring(&self) {
        let mut due = self.slot.due.lock();
        if *due != Next::Done {
            *due = Next::Again;
        }
    }

    fn join(&self) {
        for _ in 0..STEPS_MAX {
            let next = *self.slot.due.lock();
            match next {
                Next::Done => {
                    let mut workers = self.threads.workers.lock();
                    workers.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
                    return;
                }
                Next::At(at_ns) => {
                    let mut now_ns = self.threads.now_ns.lock();
                    *now_ns = at_ns.max(*now_ns);
                }
                Next::OnSignal => panic!("a worker that waits for a signal is waited for"),
                Next::Again => {}
            }
            let now_ns = *self.threads.now_ns.lock();
            self.slot.step(now_ns);
        }
        panic!("a worker that is waited for never ends");
    }
}
