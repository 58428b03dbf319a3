//! The store on disk: a write-ahead log, sorted runs, and a manifest of them.

mod files;
