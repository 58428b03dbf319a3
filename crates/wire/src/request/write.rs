//! Writing documents.

use crate::bytes::debug_without_value;
use crate::message::message;

/// Condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// No condition.
    Set,
    /// The document must not exist.
    Add,
    /// The document must exist.
    Replace,
}

/// SET, ADD, REPLACE and their quiet forms.
///
/// [`Frame::key_and_value`] has key and value in one slice.
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

/// Direction of counting.
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
    /// Direction of counting.
    pub direction: Direction,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Amount to add or subtract.
    pub delta: u64,
    /// Initial value of a missing counter.
    pub initial: u64,
    /// Expiry of a created counter, as sent; or [`Arithmetic::DO_NOT_CREATE`].
    pub expiry: u32,
}

impl Arithmetic<'_> {
    /// Expiry with which a missing counter is not created.
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

/// Side of the value at which bytes are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConcatMode {
    /// After the value.
    Append,
    /// Before the value.
    Prepend,
}

/// APPEND, PREPEND and their quiet forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Concat<'a> {
    /// Side of the value.
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
