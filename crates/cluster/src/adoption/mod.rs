//! Adoption of copies after etcd was restored from a backup.
//!
//! An adoption is an election of everything: all copies of all nodes are sealed at one term above all others.
//! Then the map is written again, with the copies that have most. The sealed copies include at least one
//! of any majority that acknowledged a write. Nodes follow the epoch, which is written last. So they do not follow
//! an adoption that stopped half-way, and it can be repeated.

mod key;
mod machine;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use machine::{Adoption, AdoptionOutput};
