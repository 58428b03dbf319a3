//! Events between the threads of a member.

use std::sync::Arc;

use cluster::agent::Step;
use cluster::agreed::{Seen, View};
use cluster::coord::RequestId;
use cluster::{BucketId, Order, Vb};
use etcd::AnswerResult;

use crate::packet::Envelope;

/// An event for the driver.
pub(crate) enum DriverEvent {
    Answer(RequestId, AnswerResult),
    Packet(Envelope),
    Order(Order),
    /// Steps of these copies were made or attempted.
    Stepped(Vec<Vb>),
    /// A bucket was made: its copies can be.
    Made(BucketId),
    /// A change for which clients may wait was applied here.
    Applied,
    Stop,
}

/// Work for the worker.
pub(crate) enum Work {
    Step(Step),
    /// Store the seen state before later steps.
    Keep(Seen),
    /// Adjust the node's buckets to this view.
    Buckets(Arc<View>),
}
