//! A thread that serves connections.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{Builder, JoinHandle};

use tokio::sync::mpsc;

use super::connection::{Moving, serve};
use super::crew::{Crew, Doors};
use crate::node::NodeState;
use crate::stats::timings::Timings;

/// A connection that a worker is to serve.
pub(crate) enum Arrival {
    /// A socket that was just accepted.
    New { stream: TcpStream, classic: bool },
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

/// The running workers. They end when this is dropped and their connections are closed.
#[derive(Default)]
pub(crate) struct Workers {
    doors: Vec<mpsc::UnboundedSender<Arrival>>,
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
        let (tell, told) = std_mpsc::channel();
        let mut threads = Vec::new();
        for (index, (timings, incoming)) in timings.iter().zip(doors.inside).enumerate() {
            let node = Arc::clone(node);
            let home = Home {
                place: Place::Worker(index),
                crew: Arc::clone(&node.crew),
                timings: Arc::clone(timings),
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let tell = tell.clone();
            let name = format!("worker-{index}");
            threads.push(Builder::new().name(name).spawn(move || {
                let number = rustix::thread::gettid().as_raw_nonzero().get();
                // Whoever asked waits for all of them.
                tell.send(number).unwrap_or_default();
                drop(tell);
                runtime.block_on(run(node, home, incoming));
            })?);
        }
        drop(tell);
        let workers = Self {
            doors: doors.outside,
            threads,
        };
        Ok((workers, told.iter().collect()))
    }

    /// Takes no connections any more. Threads to wait for once connections are told to end.
    pub(crate) fn close(self) -> Vec<JoinHandle<()>> {
        drop(self.doors);
        self.threads
    }
}

async fn run(node: Arc<NodeState>, home: Home, mut incoming: mpsc::UnboundedReceiver<Arrival>) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            arrival = incoming.recv() => {
                let Some(arrival) = arrival else { break };
                tasks.spawn(serve(arrival, Arc::clone(&node), home.clone()));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}
