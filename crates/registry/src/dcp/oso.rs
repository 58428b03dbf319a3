//! When the rows of a filtered stream are read by key.

use bucket::ChosenRows;
use engine::dcp::OnlyRows;

/// Rows are read by key where they are at most one of so many: a snapshot that came without its order of seqnos in part must be
/// begun again, and what must be sorted is to be little.
const SPARSE: u64 = 25;

/// Whether consumers that take snapshots in any order get them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OsoBackfill {
    /// Where it is quicker.
    #[default]
    Auto,
    /// Wherever it is possible.
    Enabled,
    /// Never.
    Disabled,
}

impl OsoBackfill {
    /// The value of a name; `None` for an unknown one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "enabled" | "true" => Some(Self::Enabled),
            "disabled" | "false" => Some(Self::Disabled),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }

    /// How the rows are to be read.
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
