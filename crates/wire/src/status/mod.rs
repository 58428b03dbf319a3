//! Status codes of answers, and the error map for clients.

mod attribute;
mod error_map;
mod table;

use std::fmt;

use attribute::Attribute;
pub use error_map::error_map;
pub use table::Status;
use table::StatusRow;

impl Status {
    fn row(self) -> Option<&'static StatusRow> {
        let index = table::ROWS
            .binary_search_by_key(&self, |row| row.status)
            .ok()?;
        table::ROWS.get(index)
    }

    /// Name in capitals; `"UNKNOWN"` if it is undefined.
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |row| row.name)
    }

    /// Meaning, as a short phrase.
    pub fn description(self) -> &'static str {
        self.row().map_or("unknown status", |row| row.description)
    }

    /// Attributes in the newest error map; empty if it is undefined.
    fn attributes(self) -> &'static [Attribute] {
        self.row().map_or(&[], |row| row.attributes)
    }

    /// All defined statuses, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        table::ROWS.iter().map(|row| row.status)
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
