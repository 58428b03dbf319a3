//! Attempts to connect to the nodes of a bucket.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::{ClientError, Nodes};

/// Pauses between attempts to connect to a node: exponential back-off.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// When a node is connected to again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
}

/// The nodes to which a connection broke or could not be made.
#[derive(Debug, Default)]
pub(crate) struct Attempts(BTreeMap<usize, Retry>);

impl Attempts {
    /// Whether a node may be connected to: not so soon after an attempt that failed.
    pub(crate) fn is_due(&self, node: usize) -> bool {
        let retry = self.0.get(&node);
        retry.is_none_or(|retry| retry.at <= Instant::now())
    }

    /// A node cannot be connected to. Another one may know where its vBuckets are by now: it is asked.
    ///
    /// # Errors
    /// The other nodes refuse.
    pub(crate) fn failed(&mut self, nodes: &mut Nodes, node: usize) -> Result<(), ClientError> {
        self.pause(node);
        match nodes.refresh() {
            Err(error) if !error.is_lost() => Err(error),
            _ => Ok(()),
        }
    }

    /// The next attempt comes later than the last one did.
    fn pause(&mut self, node: usize) {
        let first = Retry {
            at: Instant::now(),
            pause: PAUSE_MIN,
        };
        let retry = self.0.entry(node).or_insert(first);
        retry.at = Instant::now() + retry.pause;
        retry.pause = (retry.pause * 2).min(PAUSE_MAX);
    }

    /// A connection is lost; one that was of use may be made anew at once.
    pub(crate) fn lost(&mut self, node: usize, was_of_use: bool) {
        if was_of_use {
            self.0.remove(&node);
        } else {
            self.pause(node);
        }
    }
}
