//! Writing rows: keys and values are put together in two buffers that are used again.

use std::fmt::{Arguments, Write as _};

use model::{Seqno, VbId};

use super::Sink;

/// What keys and values are made of. Texts and numbers, of which there may be millions, go without
/// formatting.
pub(super) trait Text {
    fn write(&self, out: &mut String);
}

impl Text for str {
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl Text for String {
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl<T: Text + ?Sized> Text for Box<T> {
    fn write(&self, out: &mut String) {
        T::write(self, out);
    }
}

impl<T: Text + ?Sized> Text for &T {
    fn write(&self, out: &mut String) {
        T::write(self, out);
    }
}

/// One after the other.
impl<const N: usize> Text for [&dyn Text; N] {
    fn write(&self, out: &mut String) {
        for part in self {
            part.write(out);
        }
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Text for $type {
            fn write(&self, out: &mut String) {
                out.push_str(itoa::Buffer::new().format(*self));
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
}

/// An identifier, as `0x8`.
pub(super) struct Hex(pub(super) u32);

impl Text for Hex {
    fn write(&self, out: &mut String) {
        out.push_str("0x");
        let digits = (32 - self.0.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let digit = (self.0 >> (4 * digit)) & 0xf;
            out.extend(char::from_digit(digit, 16));
        }
    }
}

/// What a statistic says.
pub(crate) enum Value {
    Number(u64),
    Flag(bool),
    Text(&'static str),
    Owned(String),
    /// A fraction, shown as short as it is exact.
    Ratio(f64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Owned(text)
    }
}

/// Bytes of an answer beyond key and value.
const ROW_OVERHEAD_BYTES: usize = 24;

/// Rows on their way to the sink; allocates per group, not per row.
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
            key: String::new(),
            prefix_len: 0,
            value: String::new(),
            bytes: 0,
        }
    }

    /// Bytes that the rows so far take as answers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the keys of the following rows begin with.
    pub(super) fn prefix(&mut self, prefix: impl Text) {
        self.key.clear();
        prefix.write(&mut self.key);
        self.prefix_len = self.key.len();
    }

    /// One row.
    pub(super) fn row(&mut self, name: impl Text, value: impl Text) {
        self.value.clear();
        value.write(&mut self.value);
        self.key.truncate(self.prefix_len);
        name.write(&mut self.key);
        self.bytes += self.key.len() + self.value.len() + ROW_OVERHEAD_BYTES;
        (self.sink)(&self.key, &self.value);
    }

    /// One row of any value.
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
