//! The position of a stream of a whole bucket, as text.
//!
//! ```text
//! "s1." base64url(  varint(vBuckets)  place of each vBucket in order  CRC-32, big-endian )
//!
//! place   varint(seqno * 2 + partial)
//!         varint(uuid)                      if seqno > 0 or partial
//!         varint(seqno - snapshot start)    if partial
//!         varint(snapshot end - seqno)      if partial
//! ```
//! `varint` is unsigned LEB128. A vBucket at a snapshot's end takes 8 to 10 bytes, an untouched
//! one a single byte; 1,024 vBuckets take at most some 14 KB of text.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::{Seqno, SnapshotRange, VbUuid};

use crate::vb_position::VbPosition;

/// Longest text that is accepted as a position, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

const PREFIX: &str = "s1.";
const CHECKSUM_BYTES: usize = 4;

/// Position of the streams of all vBuckets of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Position of each vBucket, in order.
    pub places: Vec<VbPosition>,
}

/// Reason why a text is not a position; one line for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// A text of another kind, or of a later release.
    #[error("a position begins with s1.")]
    Prefix,
    /// Longer than any position.
    #[error("a position has at most {TEXT_BYTES_MAX} characters")]
    Length,
    /// A text with lost or changed characters.
    #[error("the position is damaged: copy all of it")]
    Damaged,
}

impl Position {
    /// Returns the beginning of a bucket with `vbuckets` vBuckets.
    pub fn beginning(vbuckets: u16) -> Self {
        Self {
            places: vec![VbPosition::default(); usize::from(vbuckets)],
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(self.places.len() * 10 + 8);
        put(self.places.len() as u64, &mut bytes);
        for place in &self.places {
            write_place(place, &mut bytes);
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PositionError::Length);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(PositionError::Prefix)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).ok();
        bytes
            .as_deref()
            .and_then(read)
            .ok_or(PositionError::Damaged)
    }
}

fn write_place(place: &VbPosition, out: &mut Vec<u8>) {
    let partial = !place.is_whole();
    put(place.seqno.0 << 1 | u64::from(partial), out);
    if place.seqno.0 > 0 || partial {
        put(place.uuid.0, out);
    }
    if partial {
        put(place.seqno.0.saturating_sub(place.snapshot.start.0), out);
        put(place.snapshot.end.0.saturating_sub(place.seqno.0), out);
    }
}

fn read(bytes: &[u8]) -> Option<Position> {
    let (mut body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
    if checksum != crc32fast::hash(body).to_be_bytes() {
        return None;
    }
    let count = take(&mut body)?;
    // Every place takes at least one byte, so a false count allocates little memory.
    let count = usize::try_from(count).ok().filter(|&n| n <= body.len())?;
    let places: Option<Vec<VbPosition>> = (0..count).map(|_| read_place(&mut body)).collect();
    let places = places.filter(|_| body.is_empty())?;
    Some(Position { places })
}

fn read_place(bytes: &mut &[u8]) -> Option<VbPosition> {
    let first = take(bytes)?;
    let (seqno, partial) = (first >> 1, first & 1 == 1);
    if seqno == 0 && !partial {
        return Some(VbPosition::default());
    }
    let mut place = VbPosition::at(VbUuid(take(bytes)?), Seqno(seqno));
    if partial {
        place.snapshot = SnapshotRange {
            start: Seqno(seqno.checked_sub(take(bytes)?)?),
            end: Seqno(seqno.checked_add(take(bytes)?)?),
        };
    }
    Some(place)
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = VbPosition> {
        let seqno = prop_oneof![Just(0), 1..1000_u64, 0..u64::MAX >> 1];
        (any::<u64>(), seqno, 0..500_u64, 0..500_u64).prop_map(|(uuid, seqno, before, after)| {
            let mut place = VbPosition::at(VbUuid(uuid), Seqno(seqno));
            if after > 0 {
                place.snapshot.start = Seqno(seqno.saturating_sub(before));
                place.snapshot.end = Seqno(seqno + after);
            } else if seqno == 0 {
                place = VbPosition::default();
            }
            place
        })
    }

    proptest! {
        #[test]
        fn position_text_round_trips(places in prop::collection::vec(place(), 0..40)) {
            let position = Position { places };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn no_text_panics(text in "(s1\\.)?[A-Za-z0-9_-]{0,80}") {
            let parsed: Result<Position, _> = text.parse();
            prop_assert!(parsed.is_err() || parsed.is_ok_and(|position| position.to_string() == text));
        }

        #[test]
        fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = body.clone();
            bytes.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
            if let Some(position) = read(&bytes) {
                prop_assert!(position.places.len() <= body.len());
            }
        }
    }

    #[test]
    fn position_at_beginning_is_short() {
        let text = Position::beginning(1024).to_string();
        assert!(
            text.len() < 1400 && text.starts_with("s1."),
            "{}",
            text.len()
        );
        assert_eq!(text.parse(), Ok(Position::beginning(1024)));
    }

    #[test]
    fn full_position_fits_http_header() {
        let places = (0..1024)
            .map(|n| VbPosition::at(VbUuid(0xffff_ffff_0000 + n), Seqno(10_000_000 + n)))
            .collect();
        let text = Position { places }.to_string();
        assert!(text.len() < 16 * 1024, "{}", text.len());
    }

    #[test]
    fn position_parser_refuses_invalid_texts() {
        let good = Position {
            places: vec![VbPosition::at(VbUuid(7), Seqno(300))],
        };
        let good = good.to_string();
        let parse = |text: &str| text.parse::<Position>();
        assert_eq!(parse("now"), Err(PositionError::Prefix));
        assert_eq!(parse(""), Err(PositionError::Prefix));
        assert_eq!(parse("s1."), Err(PositionError::Damaged));
        assert_eq!(parse(&good[..good.len() - 1]), Err(PositionError::Damaged));
        assert_eq!(parse(&format!("{good}A")), Err(PositionError::Damaged));
        let long = "s1.".to_owned() + &"A".repeat(TEXT_BYTES_MAX);
        assert_eq!(parse(&long), Err(PositionError::Length));
    }
}
