//! Threads of a store without a pool: one for each worker.

use std::io;
use std::thread::{Builder, JoinHandle, park, park_timeout};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::work::{Next, RunningWorker, Threads, WorkKind, Worker};

/// Starts a thread for each worker.
#[derive(Debug)]
pub(crate) struct OwnThreads;

impl Threads for OwnThreads {
    fn start(
        &self,
        duty: WorkKind,
        mut worker: Box<dyn Worker>,
    ) -> io::Result<Box<dyn RunningWorker>> {
        let name = match duty {
            WorkKind::Drain => "drain",
            WorkKind::Merge => "merge",
        };
        let began = Instant::now();
        let now_ns = move || began.elapsed().as_nanos() as u64;
        let thread = Builder::new().name(name.into()).spawn(move || {
            loop {
                match worker.step(now_ns()) {
                    Next::Again => {}
                    Next::At(at_ns) => {
                        park_timeout(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
                    }
                    Next::OnSignal => park(),
                    Next::Done => break,
                }
            }
        })?;
        Ok(Box::new(WorkerThread {
            unpark: thread.thread().clone(),
            handle: Mutex::new(Some(thread)),
        }))
    }
}

/// A thread that runs one worker.
struct WorkerThread {
    unpark: std::thread::Thread,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl RunningWorker for WorkerThread {
    fn ring(&self) {
        self.unpark.unpark();
    }

    fn join(&self) {
        if let Some(handle) = self.handle.lock().take()
            && handle.join().is_err()
        {
            tracing::error!("a worker of a store ended by a panic");
        }
    }
}
