//! A thread that serves connections.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::sync::mpsc;

use super::connection::serve;
use crate::node::NodeState;
use crate::stats::timings::Timings;

/// A socket that was just accepted.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) classic: bool,
}

/// How the accepting thread reaches a worker.
#[derive(Clone)]
pub(crate) struct WorkerHandle {
    arrivals: mpsc::UnboundedSender<Arrival>,
}

impl WorkerHandle {
    /// Gives a socket to the worker; closes it when the worker is gone.
    pub(crate) fn hand_over(&self, arrival: Arrival) {
        if self.arrivals.send(arrival).is_err() {
            tracing::debug!("a connection came after the workers ended");
        }
    }
}

/// Starts one worker per entry of `timings`. They end when every handle is dropped and their
/// connections are closed.
pub(crate) fn start_workers(
    node: &Arc<NodeState>,
    timings: &[Arc<Timings>],
) -> io::Result<(Vec<WorkerHandle>, Vec<JoinHandle<()>>)> {
    let mut handles = Vec::new();
    let mut threads = Vec::new();
    for (index, timings) in timings.iter().enumerate() {
        let (arrivals, incoming) = mpsc::unbounded_channel();
        let node = Arc::clone(node);
        let timings = Arc::clone(timings);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let name = format!("worker-{index}");
        threads.push(Builder::new().name(name).spawn(move || {
            runtime.block_on(run(node, timings, incoming));
        })?);
        handles.push(WorkerHandle { arrivals });
    }
    Ok((handles, threads))
}

async fn run(
    node: Arc<NodeState>,
    timings: Arc<Timings>,
    mut incoming: mpsc::UnboundedReceiver<Arrival>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            arrival = incoming.recv() => {
                let Some(arrival) = arrival else { break };
                let (node, timings) = (Arc::clone(&node), Arc::clone(&timings));
                tasks.spawn(serve(arrival, node, timings));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}
