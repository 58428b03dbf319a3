//! The choice whether the rows of a filtered stream are read by key.

use bucket::ChosenRows;
use engine::dcp::OnlyRows;

/// Rows are read by key if at most one of this many matches. A snapshot out of seqno order (OSO) must begin again if
/// its stream breaks, and the rows that must be sorted should be few.
const SPARSE: u64 = 25;

/// Setting: the streams that are read by key, if their consumer takes snapshots in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OsoBackfill {
    /// Streams for which it is quicker.
    #[default]
    Auto,
    /// All streams for which it is possible.
    Enabled,
    /// No stream.
    Disabled,
}

impl OsoBackfill {
    /// Parses a name; `None` for an unknown one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "enabled" | "true" => Some(Self::Enabled),
            "disabled" | "false" => Some(Self::Disabled),
            _ => None,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }

    /// Chooses how to read the rows.
    pub fn choose(self, rows: OnlyRows) -> ChosenRows {
        let by_key = rows.by_key && self != Self::Disabled;
        let always = by_key && self == Self::Enabled;
        ChosenRows {
            collections: rows.collections,
            by_key,
            sparse: if always { 0 } else { SPARSE },
        }
    }
}
