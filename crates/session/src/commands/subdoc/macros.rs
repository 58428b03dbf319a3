//! Macros: values of attributes that the change itself decides.
//!
//! ```text
//!   "${Mutation.CAS}" -> a placeholder of the same length -> edits -> found in the section
//!                     -> the CAS, written over it when the change gets one
//! ```

use model::{Cas, Seqno};
use wire::Status;

/// What a macro stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro<'a> {
    /// The CAS of the change, its bytes in reverse.
    Cas,
    /// The seqno of the change.
    Seqno,
    /// Checksum of the body after the change.
    BodyChecksum,
    /// A virtual attribute, or a part of one, before the change.
    Virtual(&'a [u8]),
}

/// The macro that a value is, the quotes of its string included.
///
/// # Errors
/// `SUBDOC_XATTR_UNKNOWN_MACRO` if it is none.
pub(super) fn parse(value: &[u8]) -> Result<Macro<'_>, Status> {
    let inner = value
        .strip_prefix(b"\"${")
        .and_then(|rest| rest.strip_suffix(b"}\""));
    match inner {
        Some(b"Mutation.CAS") => Ok(Macro::Cas),
        Some(b"Mutation.seqno") => Ok(Macro::Seqno),
        Some(b"Mutation.value_crc32c") => Ok(Macro::BodyChecksum),
        Some(path @ [b'$', ..]) => Ok(Macro::Virtual(path)),
        _ => Err(Status::SUBDOC_XATTR_UNKNOWN_MACRO),
    }
}

/// Bytes of a number of 64 bits as it is shown, without quotes.
const NUMBER_BYTES: usize = 18;
/// The same of 32 bits.
const CHECKSUM_BYTES: usize = 10;

/// What stands in the text until the numbers are known. It cannot be guessed, so nothing else in a
/// document looks like it.
#[derive(Debug)]
pub(super) struct Placeholders {
    cas: [u8; NUMBER_BYTES],
    seqno: [u8; NUMBER_BYTES],
    checksum: [u8; CHECKSUM_BYTES],
}

impl Placeholders {
    /// Of random numbers.
    pub(super) fn new(random: &mut dyn FnMut() -> u64) -> Self {
        Self {
            cas: noise(random),
            seqno: noise(random),
            checksum: noise(random),
        }
    }

    /// The string that stands for a macro; `None` if that is no matter of the change.
    pub(super) fn string_of(&self, asked: Macro<'_>) -> Option<Vec<u8>> {
        let text: &[u8] = match asked {
            Macro::Cas => &self.cas,
            Macro::Seqno => &self.seqno,
            Macro::BodyChecksum => &self.checksum,
            Macro::Virtual(_) => return None,
        };
        Some([b"\"", text, b"\""].concat())
    }

    /// Writes the body's checksum where it is to stand, and finds where CAS and seqno will.
    pub(super) fn settle(&self, value: &mut [u8], body_at: usize) -> Stamps {
        let checksum = crc32c::crc32c(&value[body_at..]);
        let checksum = format!("{checksum:#010x}");
        for at in positions(value, &self.checksum) {
            write_over(value, at, checksum.as_bytes());
        }
        Stamps {
            cas: positions(value, &self.cas),
            seqno: positions(value, &self.seqno),
        }
    }
}

/// Where in a value the numbers of the change belong.
#[derive(Debug, Default)]
pub(in crate::commands) struct Stamps {
    cas: Vec<usize>,
    seqno: Vec<usize>,
}

impl Stamps {
    /// The CAS and the seqno at these places; `None` where one does not fit into the first `end` bytes.
    pub(in crate::commands) fn at(cas: Vec<usize>, seqno: Vec<usize>, end: usize) -> Option<Self> {
        let fits = |at: &usize| at.checked_add(NUMBER_BYTES).is_some_and(|to| to <= end);
        (cas.iter().all(fits) && seqno.iter().all(fits)).then_some(Self { cas, seqno })
    }

    /// Writes them.
    pub(in crate::commands) fn write(&self, value: &mut [u8], cas: Cas, seqno: Seqno) {
        if self.cas.is_empty() && self.seqno.is_empty() {
            return;
        }
        let (cas, seqno) = (cas_text(cas), format!("{:#018x}", seqno.0));
        for at in &self.cas {
            write_over(value, *at, cas.as_bytes());
        }
        for at in &self.seqno {
            write_over(value, *at, seqno.as_bytes());
        }
    }
}

/// A CAS as `${Mutation.CAS}` shows it: its bytes in reverse.
fn cas_text(cas: Cas) -> String {
    format!("{:#018x}", cas.0.swap_bytes())
}

fn write_over(value: &mut [u8], at: usize, text: &[u8]) {
    if let Some(place) = value.get_mut(at..at + text.len()) {
        place.copy_from_slice(text);
    }
}

fn positions(value: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = value.windows(wanted.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == wanted);
    found.map(|(at, _)| at).collect()
}

/// Characters that stand for themselves in a string of JSON, six random bits each.
fn noise<const N: usize>(random: &mut dyn FnMut() -> u64) -> [u8; N] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = [0; N];
    for chunk in out.chunks_mut(10) {
        let mut bits = random();
        for byte in chunk {
            *byte = ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_strings_are_macros() {
        assert_eq!(parse(b"\"${Mutation.CAS}\""), Ok(Macro::Cas));
        assert_eq!(parse(b"\"${Mutation.seqno}\""), Ok(Macro::Seqno));
        assert_eq!(
            parse(b"\"${Mutation.value_crc32c}\""),
            Ok(Macro::BodyChecksum)
        );
        let path: &[u8] = b"$document.CAS";
        assert_eq!(parse(b"\"${$document.CAS}\""), Ok(Macro::Virtual(path)));
        for other in [
            "\"${Mutation.cas}\"",
            "\"a ${Mutation.CAS}\"",
            "1",
            "\"${",
            "",
        ] {
            let unknown = Err(Status::SUBDOC_XATTR_UNKNOWN_MACRO);
            assert_eq!(parse(other.as_bytes()), unknown, "{other}");
        }
    }

    #[test]
    fn numbers_take_the_places_of_their_macros() {
        let mut last = 0_u64;
        let mut random = || {
            last = last.wrapping_add(0x9e37_79b9_7f4a_7c15);
            last ^ last >> 29
        };
        let placeholders = Placeholders::new(&mut random);
        let mut value = Vec::new();
        for asked in [Macro::Seqno, Macro::BodyChecksum, Macro::Cas, Macro::Cas] {
            value.extend(placeholders.string_of(asked).unwrap());
        }
        let body_at = value.len();
        value.extend(b"123456789");
        let stamps = placeholders.settle(&mut value, body_at);
        stamps.write(&mut value, Cas(0x0102_0304_0506_0708), Seqno(0x1f));
        let expected = "\"0x000000000000001f\"\"0xe3069283\"\
                        \"0x0807060504030201\"\"0x0807060504030201\"123456789";
        assert_eq!(String::from_utf8(value).unwrap(), expected);
    }
}
