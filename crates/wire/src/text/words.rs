//! Words of a line, and the numbers that they are.

use crate::request::Arithmetic;

/// An expiry that is long past: a date, for it is more than 30 days.
const EXPIRED: u32 = 30 * 24 * 60 * 60 + 1;

/// Most bytes of a key.
pub(super) const KEY_BYTES_MAX: usize = 250;

/// The words of a line; only spaces lie between them.
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
    /// The next word as a key of a valid length.
    pub(super) fn key(&mut self) -> Option<&'a [u8]> {
        self.next().filter(|key| key.len() <= KEY_BYTES_MAX)
    }

    /// Whether the last word that is left asks for no answer.
    pub(super) fn noreply(&self) -> bool {
        self.clone().last() == Some(b"noreply")
    }
}

/// A number without a sign.
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

/// A number of 32 bits.
pub(super) fn decimal_u32(word: &[u8]) -> Option<u32> {
    decimal(word)?.try_into().ok()
}

/// An expiry as a frame has it. A negative one is a date that is past; one beyond what a frame can say is the latest
/// date.
pub(super) fn expiry(word: &[u8]) -> Option<u32> {
    if let Some(number) = word.strip_prefix(b"-") {
        return decimal(number).map(|number| if number == 0 { 0 } else { EXPIRED });
    }
    let latest = Arithmetic::DO_NOT_CREATE.wrapping_sub(1);
    let seconds = decimal(word)?.min(u64::from(latest));
    u32::try_from(seconds).ok()
}
