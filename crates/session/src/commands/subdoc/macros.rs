//! Macros: values of attributes that are known only when the change is made.

use model::{Cas, Seqno};
use wire::Status;

/// A macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro<'a> {
    /// The CAS of the change, in reverse byte order.
    Cas,
    /// The seqno of the change.
    Seqno,
    /// Checksum of the body after the change.
    BodyChecksum,
    /// A virtual attribute, or a part of one, before the change.
    Virtual(&'a [u8]),
}

/// Parses the value of an attribute, with the quotes of its string, as a macro.
///
/// # Errors
/// `SUBDOC_XATTR_UNKNOWN_MACRO` if it is no known macro.
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

/// Bytes of the text of a 64-bit number, without quotes.
const NUMBER_BYTES: usize = 18;
/// Bytes of the text of a 32-bit checksum, without quotes.
const CHECKSUM_BYTES: usize = 10;

/// Random texts that stand for the numbers until these are known. They cannot be guessed, so no other text in
/// a document equals them.
#[derive(Debug)]
pub(super) struct Placeholders {
    cas: [u8; NUMBER_BYTES],
    seqno: [u8; NUMBER_BYTES],
    checksum: [u8; CHECKSUM_BYTES],
}

impl Placeholders {
    /// Makes placeholders from random numbers.
    pub(super) fn new(random: &mut dyn FnMut() -> u64) -> Self {
        Self {
            cas: noise(random),
            seqno: noise(random),
            checksum: noise(random),
        }
    }

    /// Returns the string that stands for a macro; `None` for a virtual attribute.
    pub(super) fn string_of(&self, asked: Macro<'_>) -> Option<Vec<u8>> {
        let text: &[u8] = match asked {
            Macro::Cas => &self.cas,
            Macro::Seqno => &self.seqno,
            Macro::BodyChecksum => &self.checksum,
            Macro::Virtual(_) => return None,
        };
        Some([b"\"", text, b"\""].concat())
    }

    /// Replaces the placeholder of the checksum, and finds the places for CAS and seqno.
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

/// Offsets in a value where the CAS and seqno of the change are written.
#[derive(Debug, Default)]
pub(in crate::commands) struct Stamps {
    cas: Vec<usize>,
    seqno: Vec<usize>,
}

impl Stamps {
    /// Makes stamps from offsets; `None` if a number there would end beyond `end`.
    pub(in crate::commands) fn at(cas: Vec<usize>, seqno: Vec<usize>, end: usize) -> Option<Self> {
        let fits = |at: &usize| at.checked_add(NUMBER_BYTES).is_some_and(|to| to <= end);
        (cas.iter().all(fits) && seqno.iter().all(fits)).then_some(Self { cas, seqno })
    }

    /// Writes the CAS and the seqno at their offsets.
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

/// Returns a CAS as `${Mutation.CAS}` shows it: in reverse byte order.
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

/// Returns random characters that JSON strings need not escape, six random bits each.
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
    fn placeholders_of_macros_are_replaced_by_numbers() {
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
