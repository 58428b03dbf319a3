//! Encodings of a value (JSON, Snappy, or neither), and parts of JSON documents.
//!
//! This crate may not do I/O or keep state, and does not know vBuckets or conversations.

mod bytes;
pub mod subdoc;

pub use bytes::{
    InflateError, SYSTEM_BYTES_MAX, Stored, VALUE_BYTES_MAX, Values, compress, inflate,
    inflate_stored, inflated, inflated_bytes, is_json, to_store,
};
