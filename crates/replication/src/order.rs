//! What the thread of a replica is told to do.

/// What the replica's thread is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Follow,
    /// Unless too few nodes can be asked what they have; with `force` all the same.
    Promote {
        force: bool,
    },
    Stop,
}
