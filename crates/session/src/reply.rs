//! Parts of an answer that a command decides.

use model::{Cas, Datatype};
use wire::{Opcode, Status};

/// An answer; unset parts are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: Status,
    pub(crate) cas: Cas,
    pub(crate) datatype: Datatype,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Whether the value follows the answer, see [`Session::send_apart`](crate::Session).
    pub(crate) apart: bool,
    /// Expiry of the document; only answers in text show it.
    pub(crate) expiry: u32,
    /// Whether the document is stale; only answers in text show it.
    pub(crate) stale: bool,
    /// Opcode of the answer, if it is not that of the request.
    pub(crate) opcode: Option<Opcode>,
}

impl<'a> Reply<'a> {
    /// Success without other parts.
    pub(crate) const EMPTY: Self = Self {
        status: Status::SUCCESS,
        cas: Cas(0),
        datatype: Datatype::RAW,
        extras: &[],
        key: &[],
        value: &[],
        apart: false,
        expiry: 0,
        stale: false,
        opcode: None,
    };

    /// A status without other parts.
    pub(crate) fn status(status: Status) -> Self {
        Self {
            status,
            ..Self::EMPTY
        }
    }

    /// A refusal with a JSON text, which may be empty.
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
