//! Threads of single connections that may work for long: they apply changes of another node, and a rollback waits for
//! the store. Threads that serve clients must not wait for that.

use std::io;
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// Largest number of connections with a thread of their own.
const THREADS_MAX: usize = 64;

/// The running threads.
#[derive(Debug, Default)]
pub(crate) struct OwnThreads {
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl OwnThreads {
    /// Checks whether one more thread may be started.
    pub(crate) fn has_room(&self) -> bool {
        let mut running = self.running.lock();
        running.retain(|thread| !thread.is_finished());
        running.len() < THREADS_MAX
    }

    /// Runs `work` in a thread of its own.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("consumer".into());
        let thread = thread.spawn(work)?;
        let mut running = self.running.lock();
        running.retain(|thread| !thread.is_finished());
        running.push(thread);
        Ok(())
    }

    /// Waits until all threads have ended; their connections must have been told to end.
    pub(crate) fn join(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        for thread in running {
            if thread.join().is_err() {
                tracing::error!("a consumer's thread ended by a panic");
            }
        }
    }
}
