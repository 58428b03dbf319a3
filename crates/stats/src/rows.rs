//! Writes rows: keys and values are built in two buffers that are reused.

use std::fmt::{Arguments, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Seqno, VbId};

use super::scope::Sink;

/// Number of bytes after which a part of a long answer ends. Other connections of the thread wait for a part,
/// some 10 us. A thousand collections in every vBucket make a gigabyte of rows.
pub(super) const PART_BYTES: usize = 8 << 10;

/// A part of a key or value. Texts and numbers, of which there may be millions, are written without `format!`.
pub(super) trait Text {
    fn write(&self, out: &mut String);

    /// Returns the whole text. It is built in `buffer`, unless it exists already.
    #[inline]
    fn shown<'a>(&'a self, buffer: &'a mut String) -> &'a str {
        buffer.clear();
        self.write(buffer);
        buffer
    }
}

impl Text for str {
    #[inline]
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }

    #[inline]
    fn shown<'a>(&'a self, _: &'a mut String) -> &'a str {
        self
    }
}

macro_rules! as_what_it_holds {
    ($($holder:ty: $held:ident),*) => {$(
        impl<$held: Text + ?Sized> Text for $holder {
            #[inline]
            fn write(&self, out: &mut String) {
                $held::write(self, out);
            }

            #[inline]
            fn shown<'a>(&'a self, buffer: &'a mut String) -> &'a str {
                $held::shown(self, buffer)
            }
        }
    )*};
}

as_what_it_holds! { Box<T>: T, &T: T }

impl Text for String {
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }
}

macro_rules! one_after_the_other {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: Text),*> Text for ($($part,)*) {
            #[inline]
            fn write(&self, out: &mut String) {
                #[expect(non_snake_case, reason = "a part has the name of its type")]
                let ($($part,)*) = self;
                $($part.write(out);)*
            }
        }
    )*};
}

one_after_the_other! { (A B) (A B C) (A B C D) (A B C D E) }

/// Digits as texts: most counters of a thousand collections have one digit.
const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Text for $type {
            #[inline]
            fn write(&self, out: &mut String) {
                out.push_str(itoa::Buffer::new().format(*self));
            }

            #[inline]
            fn shown<'a>(&'a self, buffer: &'a mut String) -> &'a str {
                if *self < 10 {
                    return DIGITS[*self as usize];
                }
                buffer.clear();
                self.write(buffer);
                buffer
            }
        }
    )*};
}

numbers! { u16 u32 u64 u128 usize }

macro_rules! formatted {
    ($($type:ty)*) => {$(
        impl Text for $type {
            fn write(&self, out: &mut String) {
                write!(out, "{self}").expect("a string takes everything");
            }
        }
    )*};
}

formatted! { Arguments<'_> VbId bool f64 serde_json::Value }

impl Text for Seqno {
    fn write(&self, out: &mut String) {
        self.0.write(out);
    }

    #[inline]
    fn shown<'a>(&'a self, buffer: &'a mut String) -> &'a str {
        self.0.shown(buffer)
    }
}

/// An id in hexadecimal, such as `0x8`.
pub(super) struct Hex(pub(super) u32);

impl Text for Hex {
    #[inline]
    fn write(&self, out: &mut String) {
        let digits = (32 - self.0.leading_zeros()).div_ceil(4).max(1);
        out.push_str("0x");
        for digit in (0..digits).rev() {
            let digit = char::from_digit((self.0 >> (4 * digit)) & 0xf, 16);
            out.push(digit.unwrap_or_default());
        }
    }
}

/// Value of a statistic.
pub(crate) enum Value {
    Number(u64),
    Flag(bool),
    Text(&'static str),
    Owned(String),
    /// A fraction, written with as few digits as are exact.
    Ratio(f64),
}

macro_rules! values {
    ($($type:ty, |$from:ident| $value:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($from: $type) -> Self {
                $value
            }
        }
    )*};
}

values! {
    u64, |number| Self::Number(number);
    &AtomicU64, |counter| Self::Number(counter.load(Ordering::Relaxed));
    usize, |number| Self::Number(number as u64);
    u32, |number| Self::Number(number.into());
    bool, |flag| Self::Flag(flag);
    &'static str, |text| Self::Text(text);
    String, |text| Self::Owned(text);
}

/// Bytes of an answer beyond key and value.
const ROW_OVERHEAD_BYTES: usize = 24;

/// Capacity of the two buffers at first: most keys and values fit.
const TEXT_BYTES: usize = 64;

/// A writer of rows to the sink. It allocates once per group, not per row.
pub(super) struct Rows<'a, 's> {
    sink: &'a mut Sink<'s>,
    key: String,
    prefix_len: usize,
    value: String,
    bytes: usize,
}

impl<'a, 's> Rows<'a, 's> {
    pub(super) fn new(sink: &'a mut Sink<'s>) -> Self {
        Self {
            sink,
            key: String::with_capacity(TEXT_BYTES),
            prefix_len: 0,
            value: String::with_capacity(TEXT_BYTES),
            bytes: 0,
        }
    }

    /// Bytes of the rows so far, as answers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the prefix of the following keys.
    #[inline]
    pub(super) fn prefix(&mut self, prefix: impl Text) {
        self.key.clear();
        prefix.write(&mut self.key);
        self.prefix_len = self.key.len();
    }

    /// Writes a row.
    #[expect(
        clippy::inline_always,
        reason = "names of a constant length are copied without a call, in two thirds of the time"
    )]
    #[inline(always)]
    pub(super) fn row(&mut self, name: impl Text, value: impl Text) {
        let value = value.shown(&mut self.value);
        self.key.truncate(self.prefix_len);
        name.write(&mut self.key);
        self.bytes += self.key.len() + value.len() + ROW_OVERHEAD_BYTES;
        (self.sink)(&self.key, value);
    }

    /// Writes a row with a value of any kind.
    pub(super) fn value(&mut self, name: impl Text, value: &Value) {
        match value {
            Value::Number(number) => self.row(name, number),
            Value::Flag(flag) => self.row(name, flag),
            Value::Text(text) => self.row(name, text),
            Value::Owned(text) => self.row(name, text),
            Value::Ratio(ratio) => self.row(name, ratio),
        }
    }
}
