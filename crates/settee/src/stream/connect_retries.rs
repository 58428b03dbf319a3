//! Back-off of connects to the nodes of a bucket.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::{ClientError, Nodes};

/// Pauses between attempts to connect to a node: exponential back-off.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Time of the next connect to a node, and the pause after it.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
}

/// Nodes whose connection broke or failed, with their back-off.
#[derive(Debug, Default)]
pub(crate) struct ConnectRetries(BTreeMap<usize, Retry>);

impl ConnectRetries {
    /// Returns whether a connect to a node is due: its back-off is over.
    pub(crate) fn is_due(&self, node: usize) -> bool {
        let retry = self.0.get(&node);
        retry.is_none_or(|retry| retry.at <= Instant::now())
    }

    /// Notes a failed connect, and asks the nodes for a newer map: the vBuckets may have moved.
    ///
    /// # Errors
    /// A node refuses.
    pub(crate) fn failed(&mut self, nodes: &mut Nodes, node: usize) -> Result<(), ClientError> {
        self.pause(node);
        match nodes.refresh() {
            Err(error) if !error.is_lost() => Err(error),
            _ => Ok(()),
        }
    }

    /// Starts the pause before the next connect, and doubles the pause after it.
    fn pause(&mut self, node: usize) {
        let first = Retry {
            at: Instant::now(),
            pause: PAUSE_MIN,
        };
        let retry = self.0.entry(node).or_insert(first);
        retry.at = Instant::now() + retry.pause;
        retry.pause = (retry.pause * 2).min(PAUSE_MAX);
    }

    /// Notes a lost connection. After a useful connection, the next connect is due at once.
    pub(crate) fn lost(&mut self, node: usize, was_of_use: bool) {
        if was_of_use {
            self.0.remove(&node);
        } else {
            self.pause(node);
        }
    }
}
