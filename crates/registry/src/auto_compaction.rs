//! Settings of automatic compaction, as management clients set them.

use serde::{Deserialize, Serialize};

/// Settings of automatic compaction.
///
/// The node obeys `purge_s` only. The stores decide when they compact; the node keeps and reports the other settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AutoCompaction {
    /// Whether views may be compacted at the same time as documents.
    pub parallel: bool,
    /// Limit of dead data in the files of documents.
    pub database: FragmentationLimit,
    /// Limit of dead data in the files of views.
    pub views: FragmentationLimit,
    /// Limit of dead data in a store of the kind `magma`, percent.
    pub magma_percent: u8,
    /// Hours of the day in which compaction may run; `None` for any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<CompactionHours>,
    /// Age at which tombstones are purged, seconds; `None` for the setting of the node, or else for its start option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_s: Option<u64>,
}

/// Limit of dead data in files. The limit that is reached first counts; `None` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FragmentationLimit {
    /// Share of dead data, percent.
    pub percent: Option<u8>,
    /// Dead data, bytes.
    pub bytes: Option<u64>,
}

/// A part of each day.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CompactionHours {
    /// Start: hour and minute.
    pub from: (u8, u8),
    /// End: hour and minute.
    pub to: (u8, u8),
    /// Whether a compaction stops at the end of these hours if it still runs.
    pub abort_outside: bool,
}

impl Default for AutoCompaction {
    /// Returns the defaults of the reference server.
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
