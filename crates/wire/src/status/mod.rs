//! Status codes of answers, and the map of them that clients ask for.

mod error_map;
mod table;

use std::fmt;

pub use error_map::error_map;

/// Status of an answer; any number, known or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

/// What a client may conclude from a status that it does not know by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Of the reauthentication family.
    Auth,
    /// The connection can no longer be used.
    ConnStateInvalidated,
    /// Of the change stream protocol.
    Dcp,
    /// A newer cluster map is needed.
    FetchConfig,
    /// The server is at fault.
    Internal,
    /// The request was wrong.
    InvalidInput,
    /// The document is deleted.
    ItemDeleted,
    /// The document is locked.
    ItemLocked,
    /// Only this document is concerned.
    ItemOnly,
    /// Trying again is of no use.
    NoRetry,
    /// A limit on the rate of requests; since version 2.
    RateLimit,
    /// To be tried again later.
    RetryLater,
    /// To be tried again at once.
    RetryNow,
    /// The code needs its own handling.
    SpecialHandling,
    /// Of the sub-document family.
    Subdoc,
    /// No error.
    Success,
    /// The server does not support this, or not for this user.
    Support,
    /// A limit of the system; since version 2.
    SystemConstraint,
    /// Goes away by itself.
    Temp,
}

impl Attribute {
    /// The name in the error map.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::ConnStateInvalidated => "conn-state-invalidated",
            Self::Dcp => "dcp",
            Self::FetchConfig => "fetch-config",
            Self::Internal => "internal",
            Self::InvalidInput => "invalid-input",
            Self::ItemDeleted => "item-deleted",
            Self::ItemLocked => "item-locked",
            Self::ItemOnly => "item-only",
            Self::NoRetry => "no-retry",
            Self::RateLimit => "rate-limit",
            Self::RetryLater => "retry-later",
            Self::RetryNow => "retry-now",
            Self::SpecialHandling => "special-handling",
            Self::Subdoc => "subdoc",
            Self::Success => "success",
            Self::Support => "support",
            Self::SystemConstraint => "system-constraint",
            Self::Temp => "temp",
        }
    }

    /// Version of the error map that first had it.
    #[must_use]
    pub fn since_version(self) -> u16 {
        match self {
            Self::RateLimit | Self::SystemConstraint => 2,
            _ => 1,
        }
    }
}

/// One row of the status table.
struct Row {
    status: Status,
    name: &'static str,
    description: &'static str,
    attributes: &'static [Attribute],
}

impl Status {
    fn row(self) -> Option<&'static Row> {
        let index = table::ROWS
            .binary_search_by_key(&self, |row| row.status)
            .ok()?;
        table::ROWS.get(index)
    }

    /// The name in capitals, `"UNKNOWN"` for a number that means nothing.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |row| row.name)
    }

    /// What it means, as a short phrase.
    #[must_use]
    pub fn description(self) -> &'static str {
        self.row().map_or("unknown status", |row| row.description)
    }

    /// Its attributes in the newest error map; empty for a number that means nothing.
    #[must_use]
    pub fn attributes(self) -> &'static [Attribute] {
        self.row().map_or(&[], |row| row.attributes)
    }

    /// Every status that means something, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        table::ROWS.iter().map(|row| row.status)
    }

    /// Whether an answer with it keeps its own extras, key and value. Any other answer may only
    /// carry an error text as its value (or, [`Status::NOT_MY_VBUCKET`], a cluster map).
    #[must_use]
    pub fn keeps_body(self) -> bool {
        matches!(
            self,
            Self::SUCCESS
                | Self::AUTH_CONTINUE
                | Self::ROLLBACK
                | Self::SUBDOC_MULTI_PATH_FAILURE
                | Self::SUBDOC_SUCCESS_DELETED
                | Self::SUBDOC_MULTI_PATH_FAILURE_DELETED
                | Self::RANGE_SCAN_MORE
                | Self::RANGE_SCAN_COMPLETE
        )
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(0x{:02x})", self.name(), self.0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.write_str(row.name),
            None => write!(f, "0x{:02x}", self.0),
        }
    }
}
