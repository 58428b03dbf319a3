//! The memcached protocols of a load: encodes requests and parses answers.

use client::Parsed;
use wire::Status;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// Reads a document.
    Get,
    /// Writes a document.
    Set,
    /// Removes a document.
    Delete,
}

/// Protocol of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// Binary frames
    #[default]
    Binary,
    /// Lines with words: get, set, delete
    Text,
    /// Lines with flags: mg, ms, md
    Meta,
}

/// Bytes that are not an answer; `Display` shows them.
#[derive(Debug, thiserror::Error)]
#[error("no answer of the text protocol: {0:?}")]
pub(crate) struct NoAnswer(String);

/// Longest line of an answer, in bytes.
const LINE_BYTES_MAX: usize = 2_048;

impl Protocol {
    /// Appends a request of a text protocol; `value` is the value of a write.
    pub(crate) fn encode(self, kind: OperationKind, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let (verb, behind): (&[u8], &[u8]) = match (self, kind) {
            (Self::Meta, OperationKind::Get) => (b"mg ", b" v"),
            (Self::Meta, OperationKind::Set) => (b"ms ", b" "),
            (Self::Meta, OperationKind::Delete) => (b"md ", b""),
            (_, OperationKind::Get) => (b"get ", b""),
            (_, OperationKind::Set) => (b"set ", b" 0 0 "),
            (_, OperationKind::Delete) => (b"delete ", b""),
        };
        out.extend_from_slice(verb);
        out.extend_from_slice(key);
        out.extend_from_slice(behind);
        if kind == OperationKind::Set {
            out.extend_from_slice(value.len().to_string().as_bytes());
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(value);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Parses the answer to the oldest request; returns its status and length.
    pub(crate) fn answer(self, bytes: &[u8]) -> Result<Parsed<Status>, NoAnswer> {
        let known = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let Some(end) = known.iter().position(|byte| *byte == b'\n') else {
            return match known.len() {
                LINE_BYTES_MAX => Err(NoAnswer(lossy(known))),
                _ => Ok(Parsed::Missing(1)),
            };
        };
        let line = bytes[..end].trim_ascii_end();
        let mut words = line.split(|byte| *byte == b' ');
        let verb = words.next().unwrap_or_default();
        let status = match verb {
            b"VALUE" => return self.value(bytes, end + 1, words.nth(2), line),
            b"VA" => return self.value(bytes, end + 1, words.next(), line),
            b"STORED" | b"DELETED" | b"HD" => Status::SUCCESS,
            b"END" | b"EN" | b"NF" | b"NOT_FOUND" => Status::KEY_ENOENT,
            b"NOT_STORED" | b"NS" => Status::NOT_STORED,
            b"SERVER_ERROR" if line.starts_with(b"SERVER_ERROR out of memory") => Status::ENOMEM,
            b"SERVER_ERROR" => Status::ETMPFAIL,
            _ => return Err(NoAnswer(lossy(line))),
        };
        Ok(Parsed::Whole(status, end + 1))
    }

    /// Parses an answer whose line of `head` bytes contains the length of the value after it.
    fn value(
        self,
        bytes: &[u8],
        head: usize,
        length: Option<&[u8]>,
        line: &[u8],
    ) -> Result<Parsed<Status>, NoAnswer> {
        let length = length.and_then(|word| str::from_utf8(word).ok()?.parse::<usize>().ok());
        let length = length.ok_or_else(|| NoAnswer(lossy(line)))?;
        let tail: &[u8] = match self {
            Self::Meta => b"\r\n",
            _ => b"\r\nEND\r\n",
        };
        let whole = head.saturating_add(length).saturating_add(tail.len());
        let Some(answer) = bytes.get(..whole) else {
            return Ok(Parsed::Missing(whole - bytes.len()));
        };
        if !answer.ends_with(tail) {
            return Err(NoAnswer(lossy(&answer[head + length..])));
        }
        Ok(Parsed::Whole(Status::SUCCESS, whole))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(protocol: Protocol, answer: &[u8]) -> Status {
        let bytes = [answer, b"more"].concat();
        for cut in 0..answer.len() {
            let found = protocol.answer(&bytes[..cut]).unwrap();
            assert!(matches!(found, Parsed::Missing(1..)), "{cut}");
        }
        match protocol.answer(&bytes).unwrap() {
            Parsed::Whole(status, length) => {
                assert_eq!(length, answer.len());
                status
            }
            Parsed::Missing(more) => panic!("{more} are missing"),
        }
    }

    #[test]
    fn text_answers_have_length_and_status() {
        let text = |answer: &str| whole(Protocol::Text, answer.as_bytes());
        assert_eq!(text("VALUE k 0 5\r\n\r\nEND\r\nEND\r\n"), Status::SUCCESS);
        assert_eq!(text("END\r\n"), Status::KEY_ENOENT);
        assert_eq!(text("STORED\r\n"), Status::SUCCESS);
        assert_eq!(text("DELETED\r\n"), Status::SUCCESS);
        assert_eq!(text("NOT_FOUND\r\n"), Status::KEY_ENOENT);
        let full = "SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(text(full), Status::ENOMEM);
        assert_eq!(text("SERVER_ERROR try again\r\n"), Status::ETMPFAIL);
        let meta = |answer: &str| whole(Protocol::Meta, answer.as_bytes());
        assert_eq!(meta("VA 2\r\nHD\r\n"), Status::SUCCESS);
        assert_eq!(meta("EN\r\n"), Status::KEY_ENOENT);
        assert_eq!(meta("HD\r\n"), Status::SUCCESS);
        assert_eq!(meta("NS\r\n"), Status::NOT_STORED);
    }

    #[test]
    fn invalid_text_answer_is_error() {
        let refused = |answer: &[u8]| Protocol::Text.answer(answer).unwrap_err().to_string();
        assert!(refused(b"ERROR\r\n").contains("ERROR"));
        assert!(refused(b"VALUE k 0 x\r\n").contains("VALUE k 0 x"));
        assert!(refused(b"VALUE k 0 1\r\n12345678\r\n").contains('2'));
        assert!(refused(&[b'a'; LINE_BYTES_MAX]).contains("aaa"));
    }

    #[test]
    fn requests_are_lines() {
        let line = |protocol: Protocol, kind| {
            let mut out = Vec::new();
            protocol.encode(kind, b"k", b"val", &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line(Protocol::Text, OperationKind::Get), "get k\r\n");
        assert_eq!(
            line(Protocol::Text, OperationKind::Set),
            "set k 0 0 3\r\nval\r\n"
        );
        assert_eq!(line(Protocol::Text, OperationKind::Delete), "delete k\r\n");
        assert_eq!(line(Protocol::Meta, OperationKind::Get), "mg k v\r\n");
        assert_eq!(
            line(Protocol::Meta, OperationKind::Set),
            "ms k 3\r\nval\r\n"
        );
        assert_eq!(line(Protocol::Meta, OperationKind::Delete), "md k\r\n");
    }
}
