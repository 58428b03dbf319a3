//! The store on disk: a write-ahead log, sorted runs, and a manifest of them.
//!
//! ```text
//!  commit -> log --flush--> run --compaction--> run
//!             |  (values of a KiB and more stay, and runs refer to them)
//!             `- index in memory: the position of each row of the log, by name
//!  manifest: the runs and logs, and the states of the vBuckets in the runs
//!  tail: the last acknowledged commit
//! ```
//!
//! Only `files`, `directory` and `reading` touch files. Drawn in `docs/format/`. Functions return
//! the errors of the files and of the functions that they use: their comments list only other errors.

mod bytes;
mod check;
mod commit;
mod compaction;
mod current;
mod damage;
mod directory;
mod encryption;
mod fault;
mod file_draft;
mod file_lock;
mod files;
mod flush;
mod locate;
mod log;
mod maintain;
mod manifest;
mod open;
mod options;
mod pieces;
mod reading;
mod row;
mod run;
mod salvage;
mod sealed;
mod state;
mod store;
mod summary;
mod tail;
mod threads;
mod view;
mod writer;

pub use check::{CheckProgress, Checked, check};
pub use damage::{Damage, Keys, key_text};
pub use directory::{OpenError, OpenErrorKind};
pub use encryption::{FileEncryption, encryption};
pub use file_lock::FileLock;
pub use options::DiskOptions;
pub use salvage::{SalvageError, Salvaged, salvage};
pub use store::{DiskStore, OpenedStore};

#[cfg(test)]
mod golden;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
