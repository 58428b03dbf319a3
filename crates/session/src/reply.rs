//! The parts of an answer that a command decides.

use model::{Cas, Datatype};
use wire::{Opcode, Status};

/// An answer; what is not said is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: Status,
    pub(crate) cas: Cas,
    pub(crate) datatype: Datatype,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// When the document expires; only answers in text tell it.
    pub(crate) expiry: u32,
    /// Whether the document is stale; only answers in text tell it.
    pub(crate) stale: bool,
    /// The opcode to answer with, where it is not the request's own.
    pub(crate) opcode: Option<Opcode>,
}

impl<'a> Reply<'a> {
    /// Success without anything else.
    pub(crate) const EMPTY: Self = Self {
        status: Status::SUCCESS,
        cas: Cas(0),
        datatype: Datatype::RAW,
        extras: &[],
        key: &[],
        value: &[],
        expiry: 0,
        stale: false,
        opcode: None,
    };

    /// A status without anything else.
    pub(crate) fn status(status: Status) -> Self {
        Self {
            status,
            ..Self::EMPTY
        }
    }

    /// A refusal with a JSON text, if there is one.
    pub(crate) fn error(status: Status, body: &'a str) -> Self {
        if body.is_empty() {
            return Self::status(status);
        }
        Self {
            status,
            ..Self::json(body)
        }
    }

    /// Success with a value.
    pub(crate) fn value(value: &'a [u8]) -> Self {
        Self {
            value,
            ..Self::EMPTY
        }
    }

    /// Success with a JSON text.
    pub(crate) fn json(text: &'a str) -> Self {
        Self {
            value: text.as_bytes(),
            datatype: Datatype::JSON,
            ..Self::EMPTY
        }
    }

    /// Success with extras.
    pub(crate) fn extras(extras: &'a [u8]) -> Self {
        Self {
            extras,
            ..Self::EMPTY
        }
    }

    /// Success with a CAS.
    pub(crate) fn cas(cas: Cas) -> Self {
        Self { cas, ..Self::EMPTY }
    }
}
