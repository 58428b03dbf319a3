//! Condition of a copy's data.

use serde::{Deserialize, Serialize};

/// Condition of a copy's data on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// All of it can be read, as far as is known.
    #[default]
    Whole,
    /// Some rows cannot be read. The copy serves all others.
    Damaged,
    /// The copy could not be read at the start of its node: it serves nothing, and takes no changes.
    Unreadable,
}
