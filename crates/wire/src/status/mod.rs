//! Status codes of answers, and the map of them that clients ask for.

mod attribute;
mod error_map;
mod table;

use std::fmt;

use attribute::Attribute;
pub use error_map::error_map;
use table::Row;
pub use table::Status;

impl Status {
    fn row(self) -> Option<&'static Row> {
        let index = table::ROWS
            .binary_search_by_key(&self, |row| row.status)
            .ok()?;
        table::ROWS.get(index)
    }

    /// The name in capitals, `"UNKNOWN"` for a number that means nothing.
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |row| row.name)
    }

    /// What it means, as a short phrase.
    pub fn description(self) -> &'static str {
        self.row().map_or("unknown status", |row| row.description)
    }

    /// Its attributes in the newest error map; empty for a number that means nothing.
    fn attributes(self) -> &'static [Attribute] {
        self.row().map_or(&[], |row| row.attributes)
    }

    /// Every status that means something, ascending.
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
