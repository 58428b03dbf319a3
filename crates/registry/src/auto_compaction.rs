//! What management clients set of compaction.

use serde::{Deserialize, Serialize};

/// When what is old or dead is to be compacted.
///
/// The node obeys `purge_s`. Its stores decide themselves when to compact, so that the rest is kept and told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AutoCompaction {
    /// Whether views may be compacted at the same time.
    pub parallel: bool,
    /// How much may be dead in the files of documents.
    pub database: FragmentationLimit,
    /// How much may be dead in those of views.
    pub views: FragmentationLimit,
    /// How much may be dead in a store of the other kind, percent.
    pub magma_percent: u8,
    /// Only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<CompactionHours>,
    /// Age at which tombstones are purged, seconds; `None` for what holds where nothing was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_s: Option<u64>,
}

/// How much of files may be dead: whichever is reached first; `None` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FragmentationLimit {
    /// Percent.
    pub percent: Option<u8>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// A part of each day.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CompactionHours {
    /// Hour and minute from which on.
    pub from: (u8, u8),
    /// Hour and minute until which.
    pub to: (u8, u8),
    /// Whether what is not ready then ends.
    pub abort_outside: bool,
}

impl Default for AutoCompaction {
    /// The reference's values.
    fn default() -> Self {
        let usual = FragmentationLimit {
            percent: Some(30),
            bytes: None,
        };
        Self {
            parallel: false,
            database: usual.clone(),
            views: usual,
            magma_percent: 50,
            hours: None,
            purge_s: None,
        }
    }
}
