//! The store on disk. Files and directories are touched nowhere else.
//!
//! ```text
//! DiskStore -- writer: Mutex<Writer>        one at a time: commit, rollback, remove, compact
//!     |          |- directory               LOCK, FORMAT, CLEAN
//!     |          |- tails                   last acknowledged commit of each vBucket
//!     |          `- states                  last acknowledged state of each vBucket
//!     `------- engine: RwLock<Option<Arc>>  the database; taken out to be opened again
//! ```
//!
//! A commit goes into the journal, as one group that counts as a whole or not at all. A full
//! journal becomes tables in the background, while an empty one has taken over; a very large commit
//! becomes tables at once, with what is journaled. Rows above the high seqno
//! of their vBucket's record do not count; opening removes them.
//!
//! A failed sync of the journal poisons the store, because what the device holds is unknown from then
//! on. A full file system does not: what was begun of the commit does not count. What fails in the
//! background (a journal that becomes tables, a merge of tables) is given up whole and tried again; commits
//! go on while the journal has space.

mod acknowledged;
mod commit;
mod durable_tails;
mod engine;
mod fault;
mod flush;
mod framed;
mod history;
mod journal;
mod journal_files;
mod kv_store;
mod layout;
mod links;
mod locate;
mod log_index;
mod maintain;
mod manifest;
mod merge;
pub mod names;
mod options;
mod per_vb;
mod recover;
mod rotation;
mod salvage;
mod store;
mod survey;
mod table_lists;
mod tables;
mod threads;
mod value_log;
mod value_position;
mod view;
mod writer;

pub use layout::{OpenError, OpenErrorKind};
pub use options::DiskOptions;
pub use salvage::{SalvageError, Salvaged, salvage};
pub use store::{DiskStore, Opened};

#[cfg(test)]
mod tests;
