//! The meta protocol: a command of two letters, a key, and flags of one letter with an optional
//! token.

use super::words::{Words, decimal, decimal_u32, expiry};
use crate::bytes::debug_without_value;

/// Maximum size of an opaque in bytes, with its letter.
const OPAQUE_BYTES_MAX: usize = 33;

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const INVALID: &str = "CLIENT_ERROR invalid flag";

/// A command of the meta protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
    /// `me`.
    Debug,
}

impl MetaVerb {
    /// Returns the text that memcached uses for this error with this command.
    fn said(self, line: &'static str) -> &'static str {
        match self {
            Self::Arithmetic | Self::Delete if [BAD_TOKEN, DUPLICATE, INVALID].contains(&line) => {
                "CLIENT_ERROR invalid or duplicate flag"
            }
            _ => line,
        }
    }

    /// Returns the flags that the command accepts.
    fn flags(self) -> &'static [u8] {
        match self {
            // `h` and `l` have no answer: documents do not record when they were read.
            Self::Get => b"bcfhklOqstuvNRT",
            Self::Set => b"bcCFIkOqsTMN",
            Self::Delete => b"bCIkOqT",
            Self::Arithmetic => b"bckOqtvNJDMTC",
            Self::Debug => b"bkO",
        }
    }
}

/// Mode, set by the flag `M`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaMode {
    /// Store, or increment.
    #[default]
    Usual,
    /// Store if the document does not exist.
    Add,
    /// Store if the document exists.
    Replace,
    /// Append to the value.
    Append,
    /// Prepend to the value.
    Prepend,
    /// Decrement.
    Decrement,
}

impl MetaMode {
    fn of(verb: MetaVerb, token: &[u8]) -> Result<Self, &'static str> {
        match (verb, token.first().map(u8::to_ascii_uppercase)) {
            (MetaVerb::Set, Some(b'S')) | (MetaVerb::Arithmetic, Some(b'I' | b'+')) => {
                Ok(Self::Usual)
            }
            (MetaVerb::Set, Some(b'E')) => Ok(Self::Add),
            (MetaVerb::Set, Some(b'R')) => Ok(Self::Replace),
            (MetaVerb::Set, Some(b'A')) => Ok(Self::Append),
            (MetaVerb::Set, Some(b'P')) => Ok(Self::Prepend),
            (MetaVerb::Arithmetic, Some(b'D' | b'-')) => Ok(Self::Decrement),
            (MetaVerb::Arithmetic, _) => Err("CLIENT_ERROR invalid mode for ma M token"),
            _ => Err("CLIENT_ERROR invalid mode for ms M token"),
        }
    }
}

/// Options set by the flags of a request. Flags that request a part of the answer are only in
/// [`MetaRequest::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol"
)]
pub struct MetaModifiers {
    /// Whether the key is in base64.
    pub base64: bool,
    /// Whether the usual answer is not sent.
    pub quiet: bool,
    /// Whether the value is sent.
    pub value: bool,
    /// Expiry to set.
    pub expiry: Option<u32>,
    /// Expiry of a document to create if it does not exist.
    pub vivify: Option<u32>,
    /// Whether the document becomes stale; a set then stores it as stale, even over a later
    /// revision.
    pub invalidate: bool,
    /// Remaining time to live in seconds, below which one client is asked to renew the document.
    pub recache: Option<u32>,
    /// CAS that the document must have.
    pub cas: Option<u64>,
    /// Flags to store.
    pub flags: u32,
    /// The mode.
    pub mode: MetaMode,
    /// Amount to add or subtract.
    pub delta: Option<u64>,
    /// Initial value of a counter.
    pub initial: u64,
}

/// `mg`, `ms`, `md`, `ma`, `me`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The command.
    pub verb: MetaVerb,
    /// The key as sent.
    pub key: &'a [u8],
    /// Options set by its flags.
    pub options: MetaModifiers,
    /// The flags as sent.
    pub flags: MetaFlags<'a>,
    /// The value of `ms`.
    pub value: &'a [u8],
}

debug_without_value! { MetaRequest { verb, options, flags } text key, length value }

/// Flags in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlags<'a>(pub(super) &'a [u8]);

impl<'a> MetaFlags<'a> {
    /// Wraps encoded flags.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The flags as sent.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The flags, each with its token.
    pub fn iter(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        Words(self.0).filter_map(|word| word.split_first().map(|(letter, token)| (*letter, token)))
    }
}

impl MetaModifiers {
    /// Parses the flags of a command.
    pub(super) fn read(verb: MetaVerb, flags: MetaFlags<'_>) -> Result<Self, &'static str> {
        let mut options = Self::default();
        let mut seen = 0_u128;
        for (letter, token) in flags.iter() {
            let bit = 1_u128.checked_shl(u32::from(letter)).unwrap_or(0);
            if seen & bit != 0 {
                return Err(verb.said(DUPLICATE));
            }
            seen |= bit;
            // Flags for a proxy in front of the server are ignored.
            if !verb.flags().contains(&letter) && !b"PL".contains(&letter) {
                return Err(verb.said(unserved(letter)));
            }
            let taken = options.take(verb, letter, token);
            taken.map_err(|line| verb.said(line))?;
        }
        Ok(options)
    }

    fn take(&mut self, verb: MetaVerb, letter: u8, token: &[u8]) -> Result<(), &'static str> {
        match letter {
            b'b' => self.base64 = true,
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'I' => self.invalidate = true,
            b'T' => self.expiry = Some(expiry(token).ok_or(BAD_TOKEN)?),
            b'N' => self.vivify = Some(expiry(token).ok_or(BAD_TOKEN)?),
            b'R' => self.recache = Some(seconds_left(token).ok_or(BAD_TOKEN)?),
            b'C' => self.cas = Some(decimal(token).ok_or(BAD_TOKEN)?),
            b'F' => {
                let wrong = "CLIENT_ERROR bad command line format";
                self.flags = decimal_u32(token).ok_or(wrong)?;
            }
            b'D' => self.delta = Some(decimal(token).ok_or(BAD_TOKEN)?),
            b'J' => self.initial = decimal(token).ok_or(BAD_TOKEN)?,
            b'M' => self.mode = MetaMode::of(verb, token)?,
            b'O' if token.len() >= OPAQUE_BYTES_MAX => {
                return Err("CLIENT_ERROR opaque token too long");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Parses remaining seconds; a negative number counts as 0.
fn seconds_left(token: &[u8]) -> Option<u32> {
    let (negative, digits) = match token.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, token),
    };
    let seconds = decimal(digits)?.min(u64::from(u32::MAX));
    u32::try_from(if negative { 0 } else { seconds }).ok()
}

/// Returns the error for a flag that a command does not support here.
fn unserved(letter: u8) -> &'static str {
    match letter {
        b'E' => "CLIENT_ERROR the server alone gives documents their CAS: no E",
        b'x' => "CLIENT_ERROR a document is deleted as a whole: no x",
        _ => INVALID,
    }
}
