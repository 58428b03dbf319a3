//! Whether what a node has of a vBucket can be read.

use serde::{Deserialize, Serialize};

/// Whether a copy can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// All of it, as far as is known.
    #[default]
    Whole,
    /// Some rows cannot be read. It serves all others.
    Damaged,
    /// Since the node started: it serves nothing, and takes no changes.
    Unreadable,
}
