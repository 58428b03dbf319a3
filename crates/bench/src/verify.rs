//! Verification: values with a checksum, and the newest revisions that a connection has seen.

use std::collections::HashMap;

use model::Cas;

use crate::measure::Violations;

/// Size of the header of a verified value, in bytes.
///
/// Format: `"STV1" | run u32 | key u64 | writer u32 | version u64 | crc32 u32`, big-endian. The checksum covers
/// the 28 bytes before it and the filler after it.
pub(crate) const HEADER_BYTES: usize = 32;

const MAGIC: &[u8; 4] = b"STV1";
const CRC_AT: usize = HEADER_BYTES - 4;

/// The origin of a value: run, key, connection and number of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Random number of the run.
    pub(crate) run: u32,
    /// Number of the key.
    pub(crate) key: u64,
    /// Number of the writing connection.
    pub(crate) writer: u32,
    /// Number of the write on that connection.
    pub(crate) version: u64,
}

impl Stamp {
    /// Appends a value of `filler.len()` + [`HEADER_BYTES`] bytes to `out`.
    pub(crate) fn append_value(self, filler: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.run.to_be_bytes());
        out.extend_from_slice(&self.key.to_be_bytes());
        out.extend_from_slice(&self.writer.to_be_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        let crc = checksum(&out[start..], filler);
        out.extend_from_slice(&crc.to_be_bytes());
        out.extend_from_slice(filler);
    }

    /// Parses the stamp of a value; `None` if [`Stamp::append_value`] did not write it.
    pub(crate) fn of_value(value: &[u8]) -> Option<Self> {
        let (header, filler) = value.split_first_chunk::<HEADER_BYTES>()?;
        let crc = u32::from_be_bytes(*header.last_chunk()?);
        if !header.starts_with(MAGIC) || crc != checksum(&header[..CRC_AT], filler) {
            return None;
        }
        let u32_at = |at: usize| header[at..].first_chunk().copied().map(u32::from_be_bytes);
        let u64_at = |at: usize| header[at..].first_chunk().copied().map(u64::from_be_bytes);
        Some(Self {
            run: u32_at(4)?,
            key: u64_at(8)?,
            writer: u32_at(16)?,
            version: u64_at(20)?,
        })
    }
}

fn checksum(header: &[u8], filler: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(filler);
    hasher.finalize()
}

/// The newest revision of a key that a connection has seen.
#[derive(Clone, Copy, Debug, Default)]
struct NewestRevision {
    cas: Cas,
    /// Version of the connection's own newest acknowledged write.
    version: u64,
}

/// Writes and reads of one connection. Answers must arrive in the order of execution.
///
/// Two rules: the CAS of a key never decreases, and a value that the connection wrote is never older than its
/// newest acknowledged one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    known: HashMap<u64, NewestRevision>,
}

impl Memory {
    /// Records an acknowledged write.
    pub(crate) fn wrote(&mut self, stamp: Stamp, cas: Cas, violations: &mut Violations) {
        let known = self.known.entry(stamp.key).or_default();
        if cas < known.cas {
            violations.stale += 1;
        }
        *known = NewestRevision {
            cas,
            version: stamp.version,
        };
    }

    /// Checks a value that was read. `wanted` holds the requested key, and run and number of the reading connection.
    pub(crate) fn read(
        &mut self,
        wanted: Stamp,
        value: &[u8],
        cas: Cas,
        violations: &mut Violations,
    ) {
        let Some(stamp) = Stamp::of_value(value) else {
            violations.corrupt += 1;
            return;
        };
        if stamp.key != wanted.key {
            violations.wrong_key += 1;
            return;
        }
        let known = self.known.entry(wanted.key).or_default();
        let own = stamp.run == wanted.run && stamp.writer == wanted.writer;
        if cas < known.cas || own && stamp.version < known.version {
            violations.stale += 1;
        } else if cas != Cas::LOCKED {
            known.cas = cas;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        run: 9,
        key: 77,
        writer: 3,
        version: 12,
    };

    fn value(stamp: Stamp) -> Vec<u8> {
        let mut value = Vec::new();
        stamp.append_value(b"filler", &mut value);
        value
    }

    #[test]
    fn value_holds_its_stamp() {
        let value = value(STAMP);
        assert_eq!(value.len(), HEADER_BYTES + 6);
        assert_eq!(Stamp::of_value(&value), Some(STAMP));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let value = value(STAMP);
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert_eq!(Stamp::of_value(&damaged), None, "byte {at}");
            assert_eq!(Stamp::of_value(&value[..at]), None, "cut at {at}");
        }
    }

    fn check(memory: &mut Memory, stamp: Stamp, cas: u64) -> Violations {
        let mut violations = Violations::default();
        memory.read(STAMP, &value(stamp), Cas(cas), &mut violations);
        violations
    }

    #[test]
    fn violations_are_counted_by_kind() {
        let mut memory = Memory::default();
        let mut violations = Violations::default();
        memory.wrote(STAMP, Cas(100), &mut violations);
        assert_eq!(violations.total(), 0);

        let older = Stamp {
            version: 11,
            ..STAMP
        };
        let newer = Stamp {
            version: 13,
            ..STAMP
        };
        let other_key = Stamp { key: 78, ..STAMP };
        let other_writer = Stamp {
            writer: 4,
            version: 1,
            ..STAMP
        };
        let other_run = Stamp {
            run: 8,
            version: 1,
            ..STAMP
        };
        let stale = Violations {
            stale: 1,
            ..Violations::default()
        };
        let wrong_key = Violations {
            wrong_key: 1,
            ..Violations::default()
        };
        let fine = Violations::default();
        assert_eq!(check(&mut memory, STAMP, 100), fine);
        assert_eq!(check(&mut memory, STAMP, 99), stale, "CAS went back");
        assert_eq!(check(&mut memory, older, 101), stale, "own older version");
        assert_eq!(check(&mut memory, other_key, 101), wrong_key);
        assert_eq!(check(&mut memory, other_writer, 102), fine);
        assert_eq!(check(&mut memory, other_run, 103), fine);
        assert_eq!(
            check(&mut memory, other_writer, 102),
            stale,
            "CAS went back"
        );
        assert_eq!(check(&mut memory, newer, 104), fine);
        memory.read(STAMP, b"something else", Cas(105), &mut violations);
        assert_eq!(
            violations,
            Violations {
                corrupt: 1,
                ..Violations::default()
            }
        );
    }

    #[test]
    fn a_locked_document_shows_no_cas() {
        let mut memory = Memory::default();
        assert_eq!(check(&mut memory, STAMP, u64::MAX), Violations::default());
        assert_eq!(check(&mut memory, STAMP, 5), Violations::default());
    }
}
