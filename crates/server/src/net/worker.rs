//! A thread that serves connections.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use super::connection::{Arrival, Home, Place};
use super::crew::{Crew, Doors};
use super::inbox::Inbox;
use super::rounds::Rounds;
use super::state::NetState;

/// The running workers. They end once they are closed and their connections are.
#[derive(Default)]
pub(crate) struct Workers {
    doors: Vec<Arc<Inbox<Arrival>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts one worker per entry of the node's timings, each at its door, and tells the system's
    /// numbers of their threads.
    pub(crate) fn start(
        node: &Arc<NetState>,
        crew: &Arc<Crew<Arrival>>,
        doors: Doors<Arrival>,
    ) -> io::Result<(Self, Vec<i32>)> {
        let (tell, told) = mpsc::channel();
        let mut workers = Self::default();
        for (index, (timings, (poll, inbox))) in node.timings.iter().zip(doors.inside).enumerate() {
            let node = Arc::clone(node);
            let home = Home {
                place: Place::Worker(index),
                crew: Arc::clone(crew),
                timings: Arc::clone(timings),
                alone: serve_alone,
            };
            workers.doors.push(Arc::clone(&inbox));
            let tell = tell.clone();
            let name = format!("worker-{index}");
            let thread = Builder::new().name(name).spawn(move || {
                let number = rustix::thread::gettid().as_raw_nonzero().get();
                // Whoever asked waits for all of them.
                tell.send(number).unwrap_or_default();
                drop(tell);
                Rounds::new(node, home, poll, inbox).run();
            })?;
            workers.threads.push(thread);
        }
        drop(tell);
        Ok((workers, told.iter().collect()))
    }

    /// Takes no connections any more. Threads to wait for once connections are told to end.
    pub(crate) fn close(self) -> Vec<JoinHandle<()>> {
        for door in &self.doors {
            door.close();
        }
        self.threads
    }
}

/// Serves one connection in this thread until it ends.
///
/// # Errors
/// The system gives no descriptors.
fn serve_alone(arrival: Arrival, node: Arc<NetState>, home: Home) -> io::Result<()> {
    let poll = mio::Poll::new()?;
    let inbox = Arc::new(Inbox::new(poll.registry())?);
    Rounds::new(node, home, poll, inbox).run_for(arrival);
    Ok(())
}
