//! Adopting copies after etcd was restored from a backup.
//!
//! It is an election of everything that exists: all copies of all nodes are sealed at one term that is above all others,
//! then the map is written anew, with the copies that have most. Any majority that acknowledged a write is among what is
//! sealed. Nodes follow the epoch that is written last, so that one that ends half-way is not followed, and can be repeated.

mod key;
mod machine;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use machine::{Action, Adoption};
