//! The value log: sealed journals to which tables refer for their larger rows.
//!
//! A run refers to the larger rows of its journal, which thus are written once. Merges leave them there
//! while the journal is young; one takes over those that still live, and then nothing refers to the journal any more.
//!
//! ```text
//! journal --flush--> run: keys, and where the rows lie     the journal joins the value log
//!                     | merge
//!                     v
//!                    tables: the same for young journals   it stays
//!                     | merge
//!                     v
//!                    tables with the rows themselves       it goes
//! ```

mod list;
mod log;
mod values;

pub(crate) use list::{NAME, SegmentBytes, read};
pub(crate) use log::{LiveBytes, Segments, ValueLog, make_list};
pub(crate) use values::{InlineFactory, ValueReader};

#[cfg(test)]
mod tests;
