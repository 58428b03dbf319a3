//! Words of a line, and numbers in them.

use crate::request::Arithmetic;

/// An expired expiry: more than 30 days, so it is a date, which is long past.
const EXPIRED: u32 = 30 * 24 * 60 * 60 + 1;

/// Maximum size of a key in bytes.
pub(super) const KEY_BYTES_MAX: usize = 250;

/// The words of a line, separated only by spaces.
#[derive(Clone, Debug)]
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| *byte != b' ')?;
        let (_, rest) = self.0.split_at_checked(start)?;
        let end = rest.iter().position(|byte| *byte == b' ');
        let (word, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        self.0 = rest;
        Some(word)
    }
}

impl<'a> Words<'a> {
    /// Returns the next word as a key of a valid length.
    pub(super) fn key(&mut self) -> Option<&'a [u8]> {
        self.next().filter(|key| key.len() <= KEY_BYTES_MAX)
    }

    /// Whether the last remaining word is `noreply`.
    pub(super) fn noreply(&self) -> bool {
        self.clone().last() == Some(b"noreply")
    }
}

/// Parses a number without a sign.
#[inline]
pub(super) fn decimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses a number of 32 bits.
pub(super) fn decimal_u32(word: &[u8]) -> Option<u32> {
    decimal(word)?.try_into().ok()
}

/// Parses an expiry into the form of the binary protocol. A negative one becomes a past date; one
/// above the maximum becomes the latest date.
pub(super) fn expiry(word: &[u8]) -> Option<u32> {
    if let Some(number) = word.strip_prefix(b"-") {
        return decimal(number).map(|number| if number == 0 { 0 } else { EXPIRED });
    }
    let latest = Arithmetic::DO_NOT_CREATE.wrapping_sub(1);
    let seconds = decimal(word)?.min(u64::from(latest));
    u32::try_from(seconds).ok()
}
