//! A thread that serves connections.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use super::connection::{Arrival, ServedBy, WorkerContext};
use super::event_loop::EventLoop;
use super::inbox::Inbox;
use super::state::NetState;
use super::worker_pool::{WorkerInboxes, WorkerPool};

/// The running workers. A worker ends once its inbox is closed and its connections have ended.
#[derive(Default)]
pub(crate) struct Workers {
    inboxes: Vec<Arc<Inbox<Arrival>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts one worker per entry of the node's timings, each with its inbox. Returns the system's numbers of their
    /// threads.
    pub(crate) fn start(
        node: &Arc<NetState>,
        pool: &Arc<WorkerPool<Arrival>>,
        inboxes: WorkerInboxes<Arrival>,
    ) -> io::Result<(Self, Vec<i32>)> {
        let (tell, told) = mpsc::channel();
        let mut workers = Self::default();
        for (index, (timings, (poll, inbox))) in node.timings.iter().zip(inboxes.ends).enumerate() {
            let node = Arc::clone(node);
            let context = WorkerContext {
                served_by: ServedBy::Worker(index),
                pool: Arc::clone(pool),
                timings: Arc::clone(timings),
                alone: serve_alone,
            };
            workers.inboxes.push(Arc::clone(&inbox));
            let tell = tell.clone();
            let name = format!("worker-{index}");
            let thread = Builder::new().name(name).spawn(move || {
                let number = rustix::thread::gettid().as_raw_nonzero().get();
                // The receiver waits for the numbers of all workers.
                tell.send(number).unwrap_or_default();
                drop(tell);
                EventLoop::new(node, context, poll, inbox).run();
            })?;
            workers.threads.push(thread);
        }
        drop(tell);
        Ok((workers, told.iter().collect()))
    }

    /// Closes all inboxes. Returns the threads to wait for once the connections are told to end.
    pub(crate) fn close(self) -> Vec<JoinHandle<()>> {
        for inbox in &self.inboxes {
            inbox.close();
        }
        self.threads
    }
}

/// Serves one connection in this thread until it ends.
///
/// # Errors
/// The system has no descriptors left.
fn serve_alone(arrival: Arrival, node: Arc<NetState>, context: WorkerContext) -> io::Result<()> {
    let poll = mio::Poll::new()?;
    let inbox = Arc::new(Inbox::new(poll.registry())?);
    EventLoop::new(node, context, poll, inbox).run_for(arrival);
    Ok(())
}
