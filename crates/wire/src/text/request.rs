//! Requests of the classic text protocol.

use super::meta::MetaRequest;
use crate::bytes::debug_without_value;
use crate::request::Direction;

/// How a line asks for documents: `get`, `gets`, `gat`, `gats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieval {
    /// Whether the CAS is told.
    pub with_cas: bool,
    /// The new expiry, if they are touched.
    pub expiry: Option<u32>,
}

/// What a storage command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStoreMode {
    /// Stores.
    Set,
    /// Stores what is not there.
    Add,
    /// Stores what is there.
    Replace,
    /// Adds behind the value.
    Append,
    /// Adds in front of the value.
    Prepend,
    /// Stores over this revision.
    Cas(u64),
}

/// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TextStore<'a> {
    /// What it does.
    pub mode: TextStoreMode,
    /// Key of the document.
    pub key: &'a [u8],
    /// Flags to store.
    pub flags: u32,
    /// Expiry, as a frame has it.
    pub expiry: u32,
    /// Whether it is not answered.
    pub noreply: bool,
    /// Its new value, or what is added to it.
    pub value: &'a [u8],
}

debug_without_value! { TextStore { mode, flags, expiry, noreply } text key, length value }

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRequest<'a> {
    /// One key of a retrieval.
    Key(Retrieval, &'a [u8]),
    /// All keys of a retrieval were there.
    EndOfKeys,
    /// A storage command.
    Store(TextStore<'a>),
    /// `delete`.
    Delete {
        /// Key of the document.
        key: &'a [u8],
        /// Whether it is not answered.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// Which way.
        direction: Direction,
        /// Key of the document.
        key: &'a [u8],
        /// How far.
        delta: u64,
        /// Whether it is not answered.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Key of the document.
        key: &'a [u8],
        /// Expiry, as a frame has it.
        expiry: u32,
        /// Whether it is not answered.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// Seconds until it happens.
        delay: u64,
        /// Whether it is not answered.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The words behind it.
        group: &'a [u8],
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// Whether it is not answered.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// `mn`.
    MetaNoop,
    /// The other meta commands.
    Meta(MetaRequest<'a>),
    /// It is no valid request.
    Refused {
        /// The answer, without the end of its line.
        line: &'static str,
        /// Bytes behind it that are its value, and are not looked at.
        skip: usize,
    },
}

impl<'a> TextRequest<'a> {
    /// The key of the document that it is about, where it came as it is.
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

    /// The same with its value.
    pub(super) fn with_value(self, value: &'a [u8]) -> Self {
        match self {
            Self::Store(store) => Self::Store(TextStore { value, ..store }),
            Self::Meta(meta) => Self::Meta(MetaRequest { value, ..meta }),
            other => other,
        }
    }
}
