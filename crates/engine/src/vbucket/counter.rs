//! Counters: documents whose value is a decimal number.

use model::{Datatype, Draft, KEY_BYTES_MAX, Meta, Now};

use super::VBucket;
use super::attributes::plain_meta;
use super::attributes::{Plain, behind};
use crate::codec::Codec;
use crate::durability::Requirement;
use crate::error::OpError;
use crate::mutated::CounterResult;
use crate::types::{Arithmetic, Outcome};

impl VBucket {
    /// Increments, decrements or creates a counter. Returns the new number.
    ///
    /// An existing counter keeps its flags and attributes, and its expiry unless it is touched. The
    /// value is stored as decimal text, which is JSON. Increments wrap modulo 2^64, decrements stop
    /// at zero.
    ///
    /// # Errors
    /// `DeltaBadValue` if the value is not a number; `KeyNotFound` if the counter is missing and is
    /// not to be created; `Locked`; `KeyExists` if its CAS differs; `InvalidArgument` if the stored
    /// value cannot be read or the key is too long; `NotMyVbucket`, `WouldBlockPending`.
    pub fn arithmetic(
        &mut self,
        key: &[u8],
        arithmetic: Arithmetic,
        codec: &dyn Codec,
        now: Now,
    ) -> Result<Outcome<CounterResult>, OpError> {
        self.check_key(key)?;
        let durable = self.requirement(arithmetic.durability, now)?;
        let place = seek!(self, key);
        self.check_undecided(place, key)?;
        let Some(document) = self.live(place, now).cloned() else {
            return self.create_counter(key, arithmetic, durable, now);
        };
        self.check_writer(place, arithmetic.cas, now)?;
        if !document.is_resident() {
            return Ok(self.needs_fetch(&document));
        }
        let plain = Plain::of(&document, codec)?;
        let number = parse(plain.body()).ok_or(OpError::DeltaBadValue)?;
        let number = if arithmetic.decrement {
            number.saturating_sub(arithmetic.delta)
        } else {
            number.wrapping_add(arithmetic.delta)
        };
        let asked = arithmetic.touch;
        let asked = asked.map(|expiry| self.effective_expiry(key, expiry, now));
        let expiry = asked.unwrap_or(document.expiry());
        let meta = Meta {
            datatype: behind(plain.section(), Datatype::JSON),
            expiry,
            ..plain_meta(&document)
        };
        let joined = [key, plain.section(), number.to_string().as_bytes()].concat();
        let draft = Draft::from_joined(&joined, key.len(), &meta);
        let outcome = self.write(place, draft, durable, now);
        self.count_write(key, true);
        Ok(outcome.map(|mutated| CounterResult {
            number,
            expiry,
            mutated,
        }))
    }

    fn create_counter(
        &mut self,
        key: &[u8],
        arithmetic: Arithmetic,
        durable: Option<Requirement>,
        now: Now,
    ) -> Result<Outcome<CounterResult>, OpError> {
        let number = arithmetic.initial.ok_or(OpError::KeyNotFound)?;
        if key.len() > KEY_BYTES_MAX {
            return Err(OpError::InvalidArgument("the key is too long"));
        }
        let expiry = self.effective_expiry(key, arithmetic.expiry, now);
        let meta = Meta {
            datatype: Datatype::JSON,
            expiry,
            ..Meta::default()
        };
        let draft = Draft::new(key, number.to_string().as_bytes(), &meta);
        let outcome = self.write(self.table.place(key), draft, durable, now);
        self.count_write(key, false);
        Ok(outcome.map(|mutated| CounterResult {
            number,
            expiry,
            mutated,
        }))
    }
}

/// Whether the byte is white space as in C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Parses the text of a counter: white space, a plus sign, digits; then the end or white space.
///
/// Source: protocol 4.1. Test: `counter::tests::parse_reads_decimal_texts`.
fn parse(text: &[u8]) -> Option<u64> {
    let start = text.iter().position(|&byte| !is_space(byte))?;
    let text = &text[start..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 || text.get(end).is_some_and(|&byte| !is_space(byte)) {
        return None;
    }
    text[..end].iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parse_reads_decimal_texts() {
        let known: [(&[u8], Option<u64>); 16] = [
            (b"0", Some(0)),
            (b"42", Some(42)),
            (b" \t\n\x0b\x0c\r7", Some(7)),
            (b"+7", Some(7)),
            (b"007", Some(7)),
            (b"7 what follows", Some(7)),
            (b"7\0", None),
            (b"7x", None),
            (b"-7", None),
            (b"++7", None),
            (b"+ 7", None),
            (b"", None),
            (b"  ", None),
            (b"+", None),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
        ];
        for (text, number) in known {
            assert_eq!(parse(text), number, "{:?}", text.escape_ascii().to_string());
        }
    }
}
