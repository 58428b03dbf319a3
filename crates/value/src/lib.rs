//! What the bytes of a value are: JSON, Snappy, or neither; and parts of JSON documents.
//!
//! What this crate may not do: do I/O, keep state, know vBuckets or conversations.

mod bytes;
pub mod subdoc;

pub use bytes::{
    InflateError, SYSTEM_BYTES_MAX, Stored, VALUE_BYTES_MAX, Values, compress, inflate,
    inflate_stored, inflated, inflated_bytes, is_json, to_store,
};
