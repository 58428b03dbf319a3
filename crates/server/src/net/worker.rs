//! A thread that serves connections.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use registry::timings::Timings;
use session::Door;

use super::connection::Moving;
use super::crew::{Crew, Doors};
use super::inbox::Inbox;
use super::rounds::Rounds;
use crate::node::NodeState;

/// A connection that a worker is to serve.
pub(crate) enum Arrival {
    /// A socket that was just accepted.
    New { stream: TcpStream, door: Door },
    /// A connection from another worker.
    Moved(Box<Moving>),
}

/// Who serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Worker(usize),
    /// A thread that serves nobody else.
    OwnThread,
}

/// What a serving thread has of its own.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) place: Place,
    pub(super) crew: Arc<Crew>,
    pub(super) timings: Arc<Timings>,
}

/// The running workers. They end once they are closed and their connections are.
#[derive(Default)]
pub(crate) struct Workers {
    doors: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts one worker per entry of `timings`, each at its door, and tells the system's
    /// numbers of their threads.
    pub(crate) fn start(
        node: &Arc<NodeState>,
        timings: &[Arc<Timings>],
        doors: Doors,
    ) -> io::Result<(Self, Vec<i32>)> {
        let (tell, told) = mpsc::channel();
        let mut workers = Self::default();
        for (index, (timings, (poll, inbox))) in timings.iter().zip(doors.inside).enumerate() {
            let node = Arc::clone(node);
            let home = Home {
                place: Place::Worker(index),
                crew: Arc::clone(&node.crew),
                timings: Arc::clone(timings),
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
pub(super) fn serve_alone(arrival: Arrival, node: Arc<NodeState>, home: Home) -> io::Result<()> {
    let poll = mio::Poll::new()?;
    let inbox = Arc::new(Inbox::new(poll.registry())?);
    Rounds::new(node, home, poll, inbox).run_for(arrival);
    Ok(())
}
