//! Damage found while a whole store is read.

use std::fmt;
use std::path::PathBuf;

use model::{VbId, split_key};

/// Data of a store that is not as it was written. `Display` is one line that starts with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Description and position.
    pub reason: String,
    /// The vBucket, if it is a single one and known.
    pub vb: Option<VbId>,
    /// The affected keys.
    pub keys: Keys,
    /// Number of affected rows, if known.
    pub rows: Option<u64>,
}

/// Keys affected by damage, with their collection prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Unknown keys.
    #[default]
    Unknown,
    /// One key.
    One(Vec<u8>),
    /// Keys between these two; a missing one is no limit.
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
}

impl Damage {
    /// Creates damage of which only the file and the reason are known.
    pub(crate) fn of(file: PathBuf, reason: impl Into<String>) -> Self {
        Self {
            file,
            reason: reason.into(),
            vb: None,
            keys: Keys::Unknown,
            rows: None,
        }
    }
}

/// Returns a key as text: its collection, unless that is the default one, and the rest with escapes.
pub fn key_text(key: &[u8]) -> String {
    match split_key(key) {
        Some((collection, key)) if collection.0 == 0 => key.escape_ascii().to_string(),
        Some((collection, key)) => format!("{:#x}:{}", collection.0, key.escape_ascii()),
        None => key.escape_ascii().to_string(),
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown | Self::Between(None, None) => f.write_str("any key"),
            Self::One(key) => write!(f, "key {}", key_text(key)),
            Self::Between(Some(from), Some(to)) => {
                write!(f, "keys between {} and {}", key_text(from), key_text(to))
            }
            Self::Between(Some(from), None) => write!(f, "keys behind {}", key_text(from)),
            Self::Between(None, Some(to)) => write!(f, "keys before {}", key_text(to)),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)?;
        if let Some(vb) = self.vb {
            write!(f, ": {vb}")?;
        }
        if let Some(rows) = self.rows {
            write!(f, ", {rows} rows")?;
        }
        if self.keys != Keys::Unknown {
            write!(f, ", {}", self.keys)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_one_line_with_file_vbucket_and_keys() {
        let mut damage = Damage::of("a/run-1".into(), "the block at 64 is damaged");
        assert_eq!(damage.to_string(), "a/run-1: the block at 64 is damaged");
        damage.vb = Some(VbId(7));
        damage.rows = Some(3);
        damage.keys = Keys::Between(Some(b"\0a\n".to_vec()), Some(b"\x08b".to_vec()));
        let line = damage.to_string();
        assert!(
            line.ends_with(": vb_7, 3 rows, keys between a\\n and 0x8:b"),
            "{line}"
        );
        damage.keys = Keys::One(b"\0k".to_vec());
        assert!(damage.to_string().ends_with("3 rows, key k"));
    }
}
