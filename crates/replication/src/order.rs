//! Orders to the thread of a replica.

/// An order to the thread of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Follow,
    /// Promotes this node, unless too few other nodes can be asked for changes; with `force` in any case.
    Promote {
        force: bool,
    },
    Stop,
}
