//! The text protocols of memcached, classic and meta: lines to requests, and the numbers of
//! answers.
//!
//! [`decode_text`] splits one request off a buffer. Requests borrow from the buffer, and nothing is
//! allocated. A retrieval of many keys is many requests: one for each key and one for the end of
//! its line. So a line of keys has no length limit, and takes no memory.

mod answer;
mod decode;
mod meta;
mod request;
mod words;

pub use answer::{push_decimal, push_signed};
pub use decode::{TEXT_LINE_BYTES_MAX, TextDecoded, TextError, TextPlace, decode_text};
pub use meta::{MetaFlags, MetaMode, MetaModifiers, MetaRequest, MetaVerb};
pub use request::{Retrieval, TextRequest, TextStore, TextStoreMode};
