//! The controller: failover, elections, moves.
//!
//! The controller keeps nothing that its successor needs. Its decisions are in etcd, in rows of the map and
//! states of nodes; reports of nodes are requested again. Each write is a transaction that requires the
//! controller's own term (the create revision of `controller`), and that the written keys are unchanged since
//! they were seen. Therefore a correct decision stays correct however late its transaction arrives.
//!
//! [`Coordinator::tick`] looks at the whole state and returns the next actions, with one transaction at a time.

mod decide;
mod draft;
mod hand_over;
mod machine;
mod moves;
mod orders;
mod policy;
mod progress;
mod renewal;
mod requests;
mod round;
mod seals;
mod unsafe_failover;

pub use hand_over::can_hand_over;
pub use machine::{Action, Coordinator, Tick};
pub use moves::misplaced;
pub use policy::FailoverBlock;
pub use progress::{LackingVBucket, Progress, Promoted};
pub use unsafe_failover::{ForcedPromotion, forced, unsafe_order};

#[cfg(test)]
mod tests;
