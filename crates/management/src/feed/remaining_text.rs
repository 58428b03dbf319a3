//! A change with a large value as text, made part by part.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use changes::{Compact, Shown};

use super::large::LargeValue;
use super::piece::LargeLoan;

/// Bytes of a value that become text at once; base64 makes four of three.
const PART_BYTES: usize = 24 << 10;

/// Progress after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextPart {
    /// There is more.
    More,
    /// This was the last part.
    Last,
    /// The value was taken back: the text ends early.
    Gone,
}

/// The rest of a change's text: the rest of its value, and the text behind it.
pub(crate) struct RemainingText {
    loan: Arc<LargeLoan>,
    shown: Shown,
    at: usize,
    compact: Compact,
    tail: Vec<u8>,
}

impl RemainingText {
    /// Creates the text of a whole value.
    pub(crate) fn new(loan: Arc<LargeLoan>, shown: Shown, tail: Vec<u8>) -> Self {
        Self {
            loan,
            shown,
            at: 0,
            compact: Compact::default(),
            tail,
        }
    }

    /// Appends the next part.
    pub(crate) fn part(&mut self, now_ns: u64, out: &mut Vec<u8>) -> TextPart {
        let loan = Arc::clone(&self.loan);
        match loan.read(now_ns, |value| self.of(value, out)) {
            None => TextPart::Gone,
            Some(true) => TextPart::More,
            Some(false) => {
                out.append(&mut self.tail);
                TextPart::Last
            }
        }
    }

    /// Appends a part of the value; returns whether there is more.
    fn of(&mut self, value: &LargeValue, out: &mut Vec<u8>) -> bool {
        let rest = &value.bytes()[self.at..];
        let is_last = rest.len() <= PART_BYTES;
        let mut part = if is_last { rest } else { &rest[..PART_BYTES] };
        if !is_last && self.shown == Shown::Text {
            let whole = part.iter().rposition(|byte| byte & 0xc0 != 0x80);
            part = &part[..whole.unwrap_or(part.len())];
        }
        if self.at == 0 && self.shown != Shown::Json {
            out.push(b'"');
        }
        self.at += part.len();
        match self.shown {
            Shown::Json => self.compact.write(part, out),
            Shown::Text => escaped(part, out),
            Shown::Base64 => out.extend_from_slice(STANDARD.encode(part).as_bytes()),
        }
        if is_last && self.shown != Shown::Json {
            out.push(b'"');
        }
        !is_last
    }
}

/// Appends UTF-8 as the inside of a JSON string.
fn escaped(text: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    let start = out.len();
    serde_json::to_writer(&mut *out, &text).expect("a string is written to memory");
    // Remove the quotes around it.
    out.pop();
    out.remove(start);
}
