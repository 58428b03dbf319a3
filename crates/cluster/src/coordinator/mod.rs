//! What the controller does: failover, elections, moves.
//!
//! The controller holds nothing that its successor needs: what it decided is in etcd, in rows of the map and states of
//! nodes, and what it was told is asked for again. Each write is a transaction that requires its own term (the create
//! revision of `controller`) and that the keys it writes are as it saw them. Therefore a decision that was right when it
//! was made stays right however late its transaction comes.
//!
//! [`Coordinator::tick`] looks at everything there is and says what is to be done next, one transaction at a time.

mod asks;
mod decide;
mod draft;
mod hand_over;
mod machine;
mod moves;
mod orders;
mod policy;
mod renewal;
mod seals;
mod unsafely;

pub use hand_over::can_hand_over;
pub use machine::{Action, Coordinator, Progress, Promoted, Tick, Waiting};
pub use policy::Held;
pub use unsafely::{Forced, forced, unsafe_order};

#[cfg(test)]
mod tests;
