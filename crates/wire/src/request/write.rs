//! Writing documents.

use crate::bytes::debug_without_value;
use crate::message::message;

/// What must be true of a document before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Nothing.
    Set,
    /// It must not be there.
    Add,
    /// It must be there.
    Replace,
}

/// SET, ADD, REPLACE and their quiet forms.
///
/// [`Frame::key_and_value`] has both parts in one piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Condition of the write.
    pub mode: StoreMode,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Its new value.
    pub value: &'a [u8],
    /// Flags to store.
    pub flags: u32,
    /// Expiry, as sent.
    pub expiry: u32,
}

debug_without_value! { Store { mode, quiet, flags, expiry } text key, length value }

message! {
    #[inline]
    Store<'a> by (mode, quiet,) {
        SET: (StoreMode::Set, false,),
        SETQ: (StoreMode::Set, true,),
        ADD: (StoreMode::Add, false,),
        ADDQ: (StoreMode::Add, true,),
        REPLACE: (StoreMode::Replace, false,),
        REPLACEQ: (StoreMode::Replace, true,),
    }
    extras: flags, expiry;
    key: key;
    value: value;
}

/// DELETE, DELETEQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Whether success is not answered.
    pub quiet: bool,
}

message! { Delete<'a> by (quiet,) { DELETE: (false,), DELETEQ: (true,), } key: key; }

/// Which way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Up.
    Increment,
    /// Down.
    Decrement,
}

/// INCREMENT, DECREMENT and their quiet forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// Which way to count.
    pub direction: Direction,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// How far to count.
    pub delta: u64,
    /// What to start with when the document is not there.
    pub initial: u64,
    /// Expiry of a document that is created, as sent; [`Arithmetic::DO_NOT_CREATE`].
    pub expiry: u32,
}

impl Arithmetic<'_> {
    /// The expiry with which a document that is not there is not created.
    pub const DO_NOT_CREATE: u32 = 0xffff_ffff;
}

message! {
    Arithmetic<'a> by (direction, quiet,) {
        INCREMENT: (Direction::Increment, false,),
        INCREMENTQ: (Direction::Increment, true,),
        DECREMENT: (Direction::Decrement, false,),
        DECREMENTQ: (Direction::Decrement, true,),
    }
    extras: delta, initial, expiry;
    key: key;
}

/// At which end bytes are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConcatMode {
    /// Behind the value.
    Append,
    /// In front of it.
    Prepend,
}

/// APPEND, PREPEND and their quiet forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Concat<'a> {
    /// At which end.
    pub mode: ConcatMode,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Bytes to add.
    pub value: &'a [u8],
}

debug_without_value! { Concat { mode, quiet } text key, length value }

message! {
    Concat<'a> by (mode, quiet,) {
        APPEND: (ConcatMode::Append, false,),
        APPENDQ: (ConcatMode::Append, true,),
        PREPEND: (ConcatMode::Prepend, false,),
        PREPENDQ: (ConcatMode::Prepend, true,),
    }
    key: key;
    value: value;
}
