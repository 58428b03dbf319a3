//! Splitting text requests off a buffer.

use super::meta::{MetaFlags, MetaModifiers, MetaRequest, MetaVerb};
use super::request::{Retrieval, TextRequest, TextStore, TextStoreMode};
use super::words::{KEY_BYTES_MAX, Words, decimal, decimal_u32, expiry};
use crate::Magic;
use crate::request::Direction;

/// Maximum size of a line in bytes, except for lines of keys.
pub const TEXT_LINE_BYTES_MAX: usize = 2048;

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
const UNKNOWN: &str = "ERROR";

/// Position in the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextPlace {
    /// At the start of a line.
    #[default]
    Line,
    /// Among the keys of a retrieval.
    Keys(Retrieval),
}

/// Result of [`decode_text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextDecoded<'a> {
    /// A whole request.
    Request {
        /// The request.
        request: TextRequest<'a>,
        /// Number of bytes that it takes of the buffer.
        consumed: usize,
        /// Position after the request.
        place: TextPlace,
    },
    /// At least `more` further bytes are needed. Never 0.
    Incomplete {
        /// Number of bytes to wait for.
        more: usize,
    },
    /// A request whose value is incomplete.
    AwaitsValue {
        /// The request, without its value.
        request: TextRequest<'a>,
        /// Number of missing bytes. Never 0.
        more: usize,
    },
}

/// The rest of the input cannot be parsed: the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// A line is too long, or a key in a line of keys is.
    TooLong,
    /// A request begins like one of the binary protocol.
    Binary,
    /// A line begins a request of HTTP. A page in a browser can send one to any port, with commands in its body.
    Http,
}

impl TextError {
    /// Last line sent to the peer.
    pub fn line(self) -> &'static str {
        match self {
            Self::TooLong => "CLIENT_ERROR line too long",
            Self::Binary => "CLIENT_ERROR a binary request on a text connection",
            Self::Http => "CLIENT_ERROR an HTTP request on a text connection",
        }
    }
}

/// Result of parsing the line of a request.
enum Line<'a> {
    Request(TextRequest<'a>),
    /// A request with a value of so many bytes.
    Value(TextRequest<'a>, usize),
    /// A retrieval; its keys begin after so many bytes of the line.
    Keys(Retrieval, usize),
    /// The first line of a request of HTTP.
    Http,
}

impl Line<'_> {
    fn refused(line: &'static str) -> Self {
        Self::Request(TextRequest::Refused { line, skip: 0 })
    }
}

/// Splits the first request off `input`, which begins at `place`. Values have at most
/// `value_bytes_max` bytes.
///
/// # Errors
/// The rest of the input cannot be parsed.
#[inline]
pub fn decode_text(
    input: &[u8],
    place: TextPlace,
    value_bytes_max: usize,
) -> Result<TextDecoded<'_>, TextError> {
    if let TextPlace::Keys(retrieval) = place {
        return decode_key(input, retrieval, 0);
    }
    match input.first() {
        Some(first) if !first.is_ascii() && Magic::from_byte(*first).is_some() => {
            return Err(TextError::Binary);
        }
        None => return Ok(TextDecoded::Incomplete { more: 1 }),
        _ => {}
    }
    let Some(end) = input
        .iter()
        .take(TEXT_LINE_BYTES_MAX)
        .position(|byte| *byte == b'\n')
    else {
        if input.len() < TEXT_LINE_BYTES_MAX {
            return Ok(TextDecoded::Incomplete { more: 1 });
        }
        return match long_retrieval(input) {
            Some((retrieval, at)) => decode_key(input, retrieval, at),
            None => Err(TextError::TooLong),
        };
    };
    let line = input.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let head = end.saturating_add(1);
    match read_line(line) {
        Line::Request(request) => Ok(TextDecoded::Request {
            request,
            consumed: head,
            place: TextPlace::Line,
        }),
        Line::Keys(retrieval, at) => decode_key(input, retrieval, at),
        Line::Http => Err(TextError::Http),
        Line::Value(request, bytes) => Ok(with_value(input, head, request, bytes, value_bytes_max)),
    }
}

/// Decodes the next key of a retrieval from `at` on, or its end.
fn decode_key(input: &[u8], retrieval: Retrieval, at: usize) -> Result<TextDecoded<'_>, TextError> {
    let rest = input.get(at..).unwrap_or_default();
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let rest = rest.get(spaces..).unwrap_or_default();
    let at = at.saturating_add(spaces);
    let Some(length) = rest.iter().position(|byte| matches!(byte, b' ' | b'\n')) else {
        if rest.len() > KEY_BYTES_MAX.saturating_add(1) || at > TEXT_LINE_BYTES_MAX {
            return Err(TextError::TooLong);
        }
        return Ok(TextDecoded::Incomplete { more: 1 });
    };
    let (word, end) = rest.split_at_checked(length).unwrap_or_default();
    let ends = end.first() == Some(&b'\n');
    let key = if ends {
        word.strip_suffix(b"\r").unwrap_or(word)
    } else {
        word
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(TextError::TooLong);
    }
    if key.is_empty() {
        return Ok(TextDecoded::Request {
            request: TextRequest::EndOfKeys,
            consumed: at.saturating_add(length).saturating_add(1),
            place: TextPlace::Line,
        });
    }
    Ok(TextDecoded::Request {
        request: TextRequest::Key(retrieval, key),
        consumed: at.saturating_add(key.len()),
        place: TextPlace::Keys(retrieval),
    })
}

/// Returns the retrieval that an incomplete long line begins, and the start of its keys.
fn long_retrieval(input: &[u8]) -> Option<(Retrieval, usize)> {
    let start = input.get(..TEXT_LINE_BYTES_MAX)?;
    let mut words = Words(start);
    let retrieval = read_retrieval(words.next()?, &mut words)?.ok()?;
    let at = start.len().saturating_sub(words.0.len());
    // Truncated words would be parsed wrong.
    (at < TEXT_LINE_BYTES_MAX).then_some((retrieval, at))
}

/// Parses a retrieval verb, if it is one; consumes its arguments, so that the keys are next.
fn read_retrieval(verb: &[u8], words: &mut Words<'_>) -> Option<Result<Retrieval, &'static str>> {
    let (with_cas, touches) = match verb {
        b"get" => (false, false),
        b"gets" => (true, false),
        b"gat" => (false, true),
        b"gats" => (true, true),
        _ => return None,
    };
    let expiry = if touches {
        let Some(word) = words.next() else {
            return Some(Err(UNKNOWN));
        };
        match expiry(word) {
            Some(expiry) => Some(expiry),
            None => return Some(Err(BAD_EXPTIME)),
        }
    } else {
        None
    };
    Some(Ok(Retrieval { with_cas, expiry }))
}

/// Parses a line without its end.
fn read_line(line: &[u8]) -> Line<'_> {
    let mut words = Words(line);
    let Some(verb) = words.next() else {
        return Line::refused(UNKNOWN);
    };
    if let Some(retrieval) = read_retrieval(verb, &mut words) {
        let retrieval = match retrieval {
            Ok(retrieval) => retrieval,
            Err(reason) => return Line::refused(reason),
        };
        let mut keys = words.clone();
        if keys.next().is_none() {
            return Line::refused(UNKNOWN);
        }
        if Words(words.0).any(|key| key.len() > KEY_BYTES_MAX) {
            return Line::refused(BAD_FORMAT);
        }
        return Line::Keys(retrieval, line.len().saturating_sub(words.0.len()));
    }
    let noreply = words.noreply();
    let read = match verb {
        b"set" => return read_store(TextStoreMode::Set, words),
        b"add" => return read_store(TextStoreMode::Add, words),
        b"replace" => return read_store(TextStoreMode::Replace, words),
        b"append" => return read_store(TextStoreMode::Append, words),
        b"prepend" => return read_store(TextStoreMode::Prepend, words),
        b"cas" => return read_store(TextStoreMode::Cas(0), words),
        b"ms" => return read_meta_set(words),
        b"mg" => read_meta(MetaVerb::Get, words),
        b"md" => read_meta(MetaVerb::Delete, words),
        b"ma" => read_meta(MetaVerb::Arithmetic, words),
        b"me" => read_meta(MetaVerb::Debug, words),
        b"mn" => Ok(TextRequest::MetaNoop),
        b"delete" => read_delete(words),
        b"incr" => read_count(Direction::Increment, words),
        b"decr" => read_count(Direction::Decrement, words),
        b"touch" => read_touch(words),
        b"flush_all" => read_flush(words),
        b"stats" => Ok(TextRequest::Stats {
            group: words.0.trim_ascii(),
        }),
        b"version" => Ok(TextRequest::Version),
        b"verbosity" if (1..=2).contains(&words.clone().count()) => {
            Ok(TextRequest::Verbosity { noreply })
        }
        b"quit" => Ok(TextRequest::Quit),
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => return Line::Http,
        _ => Err(UNKNOWN),
    };
    match read {
        Ok(request) => Line::Request(request),
        Err(reason) => Line::refused(reason),
    }
}

/// Parses a storage command: key, flags, expiry and length, and the CAS of `cas`.
fn read_store(mode: TextStoreMode, mut words: Words<'_>) -> Line<'_> {
    let noreply = words.noreply();
    let (key, flags, seconds) = (words.next(), words.next(), words.next());
    let (Some(key), Some(flags), Some(seconds), Some(length)) = (key, flags, seconds, words.next())
    else {
        return Line::refused(UNKNOWN);
    };
    let Some(length) = decimal_u32(length).map(|length| length as usize) else {
        return Line::refused(BAD_FORMAT);
    };
    let mode = match mode {
        TextStoreMode::Cas(_) => match words.next() {
            Some(cas) => decimal(cas).map(TextStoreMode::Cas),
            None => return refused_value(UNKNOWN, length),
        },
        mode => Some(mode),
    };
    match (mode, decimal_u32(flags), expiry(seconds)) {
        (Some(mode), Some(flags), Some(expiry)) if key.len() <= KEY_BYTES_MAX => {
            let store = TextStore {
                mode,
                key,
                flags,
                expiry,
                noreply,
                value: &[],
            };
            Line::Value(TextRequest::Store(store), length)
        }
        _ => refused_value(BAD_FORMAT, length),
    }
}

/// Refuses a request with a value of `bytes`.
fn refused_value(line: &'static str, bytes: usize) -> Line<'static> {
    let skip = bytes.saturating_add(2);
    Line::Request(TextRequest::Refused { line, skip })
}

fn read_delete(mut words: Words<'_>) -> Result<TextRequest<'_>, &'static str> {
    const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    let key = words.next().ok_or(UNKNOWN)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    // A key may be named `noreply`.
    let noreply = words.noreply();
    // Very old clients send a time, which must be 0.
    match (words.next(), words.next()) {
        (None | Some(b"0" | b"noreply"), None) | (Some(b"0"), Some(b"noreply")) => {
            Ok(TextRequest::Delete { key, noreply })
        }
        _ => Err(USAGE),
    }
}

fn read_count(direction: Direction, mut words: Words<'_>) -> Result<TextRequest<'_>, &'static str> {
    let noreply = words.noreply();
    let (Some(key), Some(delta)) = (words.next(), words.next()) else {
        return Err(UNKNOWN);
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    let delta = decimal(delta).ok_or("CLIENT_ERROR invalid numeric delta argument")?;
    Ok(TextRequest::Count {
        direction,
        key,
        delta,
        noreply,
    })
}

fn read_touch(mut words: Words<'_>) -> Result<TextRequest<'_>, &'static str> {
    let noreply = words.noreply();
    let (Some(key), Some(seconds)) = (words.next(), words.next()) else {
        return Err(UNKNOWN);
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(BAD_FORMAT);
    }
    Ok(TextRequest::Touch {
        key,
        expiry: expiry(seconds).ok_or(BAD_EXPTIME)?,
        noreply,
    })
}

fn read_flush(mut words: Words<'_>) -> Result<TextRequest<'_>, &'static str> {
    let noreply = words.noreply();
    let delay = match words.next() {
        None | Some(b"noreply") => 0,
        Some(delay) => decimal(delay).ok_or(BAD_EXPTIME)?,
    };
    Ok(TextRequest::FlushAll { delay, noreply })
}

fn read_meta(verb: MetaVerb, mut words: Words<'_>) -> Result<TextRequest<'_>, &'static str> {
    let key = words.key().ok_or(BAD_FORMAT)?;
    let flags = MetaFlags(words.0);
    let options = MetaModifiers::read(verb, flags)?;
    Ok(TextRequest::Meta(MetaRequest {
        verb,
        key,
        options,
        flags,
        value: &[],
    }))
}

fn read_meta_set(mut words: Words<'_>) -> Line<'_> {
    let key = words.next();
    let Some(length) = words.next().and_then(decimal_u32) else {
        return Line::refused(BAD_FORMAT);
    };
    let length = length as usize;
    let flags = MetaFlags(words.0);
    match (key, MetaModifiers::read(MetaVerb::Set, flags)) {
        (Some(key), Ok(options)) if key.len() <= KEY_BYTES_MAX => {
            let meta = MetaRequest {
                verb: MetaVerb::Set,
                key,
                options,
                flags,
                value: &[],
            };
            Line::Value(TextRequest::Meta(meta), length)
        }
        (_, Err(reason)) => refused_value(reason, length),
        _ => refused_value(BAD_FORMAT, length),
    }
}

/// Returns a request with its value of `bytes`, which begins at `head` and has its own line end.
fn with_value<'a>(
    input: &'a [u8],
    head: usize,
    request: TextRequest<'a>,
    bytes: usize,
    bytes_max: usize,
) -> TextDecoded<'a> {
    let with_end = bytes.saturating_add(2);
    let refused = |line, consumed, skip| TextDecoded::Request {
        request: TextRequest::Refused { line, skip },
        consumed,
        place: TextPlace::Line,
    };
    if bytes > bytes_max {
        return refused(TOO_LARGE, head, with_end);
    }
    let rest = input.get(head..).unwrap_or_default();
    let Some((block, _)) = rest.split_at_checked(with_end) else {
        return TextDecoded::AwaitsValue {
            request,
            more: with_end.saturating_sub(rest.len()),
        };
    };
    let consumed = head.saturating_add(with_end);
    match block.strip_suffix(b"\r\n") {
        Some(value) => TextDecoded::Request {
            request: request.with_value(value),
            consumed,
            place: TextPlace::Line,
        },
        None => refused(BAD_CHUNK, consumed, 0),
    }
}
