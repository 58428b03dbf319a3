//! Requests of the classic text protocol.

use super::meta::MetaRequest;
use crate::bytes::debug_without_value;
use crate::request::Direction;

/// Kind of a retrieval: `get`, `gets`, `gat`, `gats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieval {
    /// Whether the answer has the CAS.
    pub with_cas: bool,
    /// New expiry, if the documents are touched.
    pub expiry: Option<u32>,
}

/// Kind of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStoreMode {
    /// Stores.
    Set,
    /// Stores if the document does not exist.
    Add,
    /// Stores if the document exists.
    Replace,
    /// Appends to the value.
    Append,
    /// Prepends to the value.
    Prepend,
    /// Stores if the document has this CAS.
    Cas(u64),
}

/// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TextStore<'a> {
    /// Kind of the command.
    pub mode: TextStoreMode,
    /// Key of the document.
    pub key: &'a [u8],
    /// Flags to store.
    pub flags: u32,
    /// Expiry in the form of the binary protocol.
    pub expiry: u32,
    /// Whether no answer is sent.
    pub noreply: bool,
    /// Its new value, or the bytes to add.
    pub value: &'a [u8],
}

debug_without_value! { TextStore { mode, flags, expiry, noreply } text key, length value }

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRequest<'a> {
    /// One key of a retrieval.
    Key(Retrieval, &'a [u8]),
    /// End of the keys of a retrieval.
    EndOfKeys,
    /// A storage command.
    Store(TextStore<'a>),
    /// `delete`.
    Delete {
        /// Key of the document.
        key: &'a [u8],
        /// Whether no answer is sent.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// Direction of counting.
        direction: Direction,
        /// Key of the document.
        key: &'a [u8],
        /// Amount to add or subtract.
        delta: u64,
        /// Whether no answer is sent.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Key of the document.
        key: &'a [u8],
        /// Expiry in the form of the binary protocol.
        expiry: u32,
        /// Whether no answer is sent.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// Delay in seconds.
        delay: u64,
        /// Whether no answer is sent.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The words after the command.
        group: &'a [u8],
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// Whether no answer is sent.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// `mn`.
    MetaNoop,
    /// The other meta commands.
    Meta(MetaRequest<'a>),
    /// An invalid request.
    Refused {
        /// The answer, without the end of its line.
        line: &'static str,
        /// Size in bytes of the following value, which is skipped.
        skip: usize,
    },
}

impl<'a> TextRequest<'a> {
    /// Returns the key of the document, if it was sent without encoding.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Key(_, key)
            | Self::Delete { key, .. }
            | Self::Count { key, .. }
            | Self::Touch { key, .. } => Some(key),
            Self::Store(store) => Some(store.key),
            Self::Meta(meta) => (!meta.options.base64).then_some(meta.key),
            _ => None,
        }
    }

    /// Returns the request with its value.
    pub(super) fn with_value(self, value: &'a [u8]) -> Self {
        match self {
            Self::Store(store) => Self::Store(TextStore { value, ..store }),
            Self::Meta(meta) => Self::Meta(MetaRequest { value, ..meta }),
            other => other,
        }
    }
}
