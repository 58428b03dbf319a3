//! Large values are received into the block of their document, so that they are in memory once.
//!
//! The input then has the frame without its value. This holds for SET, ADD and REPLACE of an uncompressed value, in a
//! bucket whose documents can leave memory: there, memory for the document is reserved before the value is received.

use bucket::Eviction;
use model::Datatype;
use value::VALUE_BYTES_MAX;
use wire::request::Store;
use wire::{Feature, Frame, Message as _};

use crate::incoming_value::IncomingValue;
use crate::key::StoredKey;
use crate::session::Session;

/// Size from which values are received into their document.
const LARGE_VALUE_BYTES: usize = 256 << 10;

impl Session {
    /// Returns the frame at the front of `input` without its value, and the number of bytes before the value, if the
    /// value is to be received into its document.
    fn large_store<'i>(&self, input: &'i [u8]) -> Option<(Frame<'i>, usize)> {
        let bucket = &self.bucket.as_ref()?.bucket;
        if self.text.is_some() || self.is_dcp() || bucket.eviction() == Eviction::None {
            return None;
        }
        let (frame, head_bytes) = Frame::without_value(input)?;
        let value_bytes = frame.wire_bytes().checked_sub(head_bytes)?;
        let applies = (LARGE_VALUE_BYTES..=VALUE_BYTES_MAX).contains(&value_bytes)
            && frame.header.magic.is_client_request()
            && Datatype::JSON.contains(frame.header.datatype)
            && Store::parse(&frame).is_ok();
        applies.then_some((frame, head_bytes))
    }

    /// Whether the value of the frame at the front of `input` is to be received into its document.
    pub fn receives_in_place(&self, input: &[u8]) -> bool {
        self.large_store(input).is_some()
    }

    /// Begins to receive a value into its document, if it is to be received there. Moves the part that came out of
    /// `input`, which keeps the bytes before it.
    pub fn receive_in_place(&mut self, input: &mut Vec<u8>) -> bool {
        let Some((frame, head_bytes)) = self.large_store(input) else {
            return false;
        };
        let Ok((_, key)) = StoredKey::of(frame.key, self.has(Feature::COLLECTIONS)) else {
            return false;
        };
        let value_bytes = frame.wire_bytes() - head_bytes;
        self.incoming = Some(IncomingValue::new(key.bytes(), value_bytes));
        self.fill_value(&input[head_bytes..]);
        input.truncate(head_bytes);
        input.shrink_to_fit();
        true
    }

    /// Returns the number of missing bytes of the value that is received into its document, if there is one.
    pub fn value_bytes_missing(&self) -> Option<usize> {
        self.incoming.as_ref().map(IncomingValue::bytes_missing)
    }

    /// Lets `read` write missing bytes of the value; it returns their number.
    pub fn read_value<T>(&mut self, read: impl FnOnce(&mut [u8]) -> (usize, T)) -> Option<T> {
        let value = self.incoming.as_mut()?;
        (value.bytes_missing() > 0).then(|| value.read(read))
    }

    /// Moves the front of `input` to the value. Returns the number of bytes that belong to it.
    pub fn fill_value(&mut self, input: &[u8]) -> usize {
        let filled = self.read_value(|space| {
            let count = space.len().min(input.len());
            space[..count].copy_from_slice(&input[..count]);
            (count, count)
        });
        filled.unwrap_or(0)
    }
}
