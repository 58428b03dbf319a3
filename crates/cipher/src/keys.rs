//! The keys of encryption at rest, as given by the operator.

use std::fmt;

use ring::hkdf::{HKDF_SHA256, Prk, Salt};

/// Bytes of a key.
const SECRET_BYTES: usize = 32;
/// Maximum bytes of a key's ID, and the bytes of its field in a file's header.
pub const KEY_ID_BYTES: usize = 11;

/// The given keys. The first one writes; all of them read.
///
/// Format: lines of `ID:KEY`, or several of them separated by commas. An ID has 1 to 11 letters,
/// digits, `-`, `_` and `.`; a key is 64 hexadecimal digits. Empty lines and comments after `#` are
/// ignored.
pub struct EncryptionKeys {
    keys: Vec<MasterKey>,
    random: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Reason why a file of keys is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// A line is invalid: its number, from 1, and the reason.
    #[error("line {0}: {1}")]
    Line(usize, &'static str),
    /// The file has no key.
    #[error("it holds no key")]
    Empty,
}

/// One of the keys.
#[derive(PartialEq, Eq)]
pub(crate) struct MasterKey {
    pub(crate) id: KeyId,
    secret: [u8; SECRET_BYTES],
}

impl MasterKey {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (id, secret) = text.split_once(':').ok_or("it is not of the form ID:KEY")?;
        let id = KeyId::parse(id.trim())
            .ok_or("the ID of a key has 1 to 11 letters, digits, '-', '_' and '.'")?;
        let secret = hex(secret.trim()).ok_or("a key has 64 hexadecimal digits")?;
        Ok(Self { id, secret })
    }

    /// Returns the secret from which keys of files are derived.
    pub(crate) fn secret(&self) -> Prk {
        Salt::new(HKDF_SHA256, b"settee at rest").extract(&self.secret)
    }
}

/// ID of a key, padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; KEY_ID_BYTES]);

impl KeyId {
    fn parse(text: &str) -> Option<Self> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let mut id = [0; KEY_ID_BYTES];
        id.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.is_empty() && text.bytes().all(is_fit)).then_some(Self(id))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}",
            self.0.escape_ascii().to_string().trim_end_matches("\\x00")
        )
    }
}

impl EncryptionKeys {
    /// Parses a file of keys. `random` returns unpredictable numbers.
    ///
    /// # Errors
    /// The first invalid line, without its content.
    pub fn parse(
        text: &str,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, KeysError> {
        let mut keys: Vec<MasterKey> = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let said = line.split('#').next().unwrap_or_default();
            for one in said.split(',').map(str::trim).filter(|one| !one.is_empty()) {
                let key =
                    MasterKey::parse(one).map_err(|reason| KeysError::Line(number, reason))?;
                if keys.iter().any(|known| known.id == key.id) {
                    let reason = "there is a key with this ID before";
                    return Err(KeysError::Line(number, reason));
                }
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        let random = Box::new(random);
        Ok(Self { keys, random })
    }

    /// Returns the line of a key: its ID, and 32 bytes that should be random. `None` if the ID is invalid.
    pub fn line(id: &str, secret: &[u8; SECRET_BYTES]) -> Option<String> {
        KeyId::parse(id)?;
        let mut line = format!("{id}:");
        let digit = |half: u8| char::from_digit(u32::from(half), 16);
        for byte in secret {
            line.extend([digit(byte >> 4), digit(byte & 15)].into_iter().flatten());
        }
        Some(line)
    }

    /// Returns the writing key.
    pub(crate) fn first(&self) -> &MasterKey {
        &self.keys[0]
    }

    pub(crate) fn find(&self, id: KeyId) -> Option<&MasterKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }
}

/// Equal if they have the same keys in the same order.
impl PartialEq for EncryptionKeys {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for EncryptionKeys {}

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| key.id.to_string());
        f.debug_list().entries(ids).finish()
    }
}

fn hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let digits: Vec<u32> = text
        .chars()
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let pairs = digits.as_chunks::<2>().0.iter();
    let bytes: Vec<u8> = pairs.map(|[high, low]| (high << 4 | low) as u8).collect();
    (digits.len() == 2 * SECRET_BYTES)
        .then(|| bytes.try_into().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<EncryptionKeys, KeysError> {
        EncryptionKeys::parse(text, || 0)
    }

    #[test]
    fn keys_are_parsed_and_never_shown_in_messages() {
        let line = |id: &str, byte: u8| EncryptionKeys::line(id, &[byte; 32]).expect("an ID");
        let text = format!(
            "# keys\n\n{} # new\n  {} , {}\n",
            line("k.2", 2),
            line("a-1_b2c3d4e", 1),
            line("3", 3)
        );
        let keys = parse(&text).expect("three keys");
        assert_eq!(format!("{keys:?}"), r#"["k.2", "a-1_b2c3d4e", "3"]"#);
        assert_eq!(EncryptionKeys::line("no:id", &[0; 32]), None);
        let refused = |text: &str| parse(text).expect_err("it is refused").to_string();
        assert_eq!(refused("# none\n"), "it holds no key");
        assert_eq!(refused("\nk1"), "line 2: it is not of the form ID:KEY");
        assert!(refused("k1:00").starts_with("line 1: a key has 64"));
        assert!(refused(&line("k1", 7)[..66]).starts_with("line 1: a key has 64"));
        assert!(refused(":00").starts_with("line 1: the ID"));
        assert!(refused("abcdefghijkl:00").starts_with("line 1: the ID"));
        let twice = format!("{}\n{}", line("k1", 1), line("k1", 2));
        assert_eq!(
            refused(&twice),
            "line 2: there is a key with this ID before"
        );
    }
}
