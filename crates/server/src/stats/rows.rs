//! Writing rows: keys and values are put together in two buffers that are used again.

use std::fmt::{Display, Write as _};

use super::Sink;

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
    pub(super) fn prefix(&mut self, prefix: impl Display) {
        self.key.clear();
        write(&mut self.key, prefix);
        self.prefix_len = self.key.len();
    }

    /// One row.
    pub(super) fn row(&mut self, name: impl Display, value: impl Display) {
        self.value.clear();
        write(&mut self.value, value);
        self.key.truncate(self.prefix_len);
        write(&mut self.key, name);
        self.bytes += self.key.len() + self.value.len() + ROW_OVERHEAD_BYTES;
        (self.sink)(&self.key, &self.value);
    }

    /// One row of any value.
    pub(super) fn value(&mut self, name: impl Display, value: &Value) {
        match value {
            Value::Number(number) => self.row(name, number),
            Value::Flag(flag) => self.row(name, flag),
            Value::Text(text) => self.row(name, text),
            Value::Owned(text) => self.row(name, text),
            Value::Ratio(ratio) => self.row(name, ratio),
        }
    }
}

fn write(buffer: &mut String, what: impl Display) {
    write!(buffer, "{what}").expect("a string takes everything");
}
