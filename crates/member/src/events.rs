//! What the threads of a member tell each other.

use std::sync::Arc;

use cluster::agent::Step;
use cluster::agreed::{Seen, View};
use cluster::coord::{Answer, RequestId};
use cluster::{Order, Vb};

use crate::packet::Envelope;

/// What happens to the node's part.
pub(crate) enum Event {
    Answer(RequestId, Answer),
    Packet(Envelope),
    Order(Order),
    /// Steps of these copies were made, or tried.
    Stepped(Vec<Vb>),
    Stop,
}

/// What the worker is to do.
pub(crate) enum Work {
    Step(Step),
    /// What the node has seen is to be on disk before later steps.
    Keep(Seen),
    /// The node's buckets are to be what this view says.
    Buckets(Arc<View>),
}
