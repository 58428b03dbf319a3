//! One event as one line of JSON.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::Value;

use crate::event::Event;
use crate::stamp::Stamp;

/// Longest part of a packet that is recorded, in bytes.
const PACKET_BYTES_MAX: usize = 256;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A user as named in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// `local`, `builtin`, `external`, or `unknown`.
    pub domain: &'a str,
    /// Name of the user.
    pub name: &'a str,
}

/// The connection and the users of an event, as JSON text. It is built once for many events.
#[derive(Clone, Debug, Default)]
pub struct Origin(String);

impl Origin {
    /// Creates the origin of a request on a connection: by user `real`, possibly on behalf of user `effective`.
    pub fn new(
        (remote, local): (Option<SocketAddr>, Option<SocketAddr>),
        real: User<'_>,
        effective: Option<User<'_>>,
    ) -> Self {
        let mut text = String::with_capacity(192);
        for (name, address) in [("remote", remote), ("local", local)] {
            if let Some(address) = address {
                let (ip, port) = (address.ip().to_canonical(), address.port());
                write(
                    &mut text,
                    format_args!(r#","{name}":{{"ip":"{ip}","port":{port}}}"#),
                );
            }
        }
        let users = [("real_userid", Some(real)), ("effective_userid", effective)];
        for (name, user) in users {
            if let Some(User { domain, name: of }) = user {
                let of = Value::from(of);
                let user = format_args!(r#","{name}":{{"domain":"{domain}","user":{of}}}"#);
                write(&mut text, user);
            }
        }
        Self(text)
    }
}

fn write(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a text takes what is written");
}

/// A line under construction.
pub struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    /// Starts a line at the end of `out`.
    pub fn begin(
        out: &'a mut Vec<u8>,
        event: Event,
        (stamp, unix_ns): (&mut Stamp, u64),
        origin: &Origin,
    ) -> Self {
        out.extend_from_slice(event.descriptor().head.as_bytes());
        stamp.append(unix_ns, out);
        out.push(b'"');
        out.extend_from_slice(origin.0.as_bytes());
        Self(out)
    }

    /// Adds a field with a text. Bytes that are not UTF-8 become replacement characters.
    #[must_use]
    pub fn text(mut self, name: &str, text: &[u8]) -> Self {
        self.name(name);
        escape(text, self.0);
        self
    }

    /// Adds the id of a collection, in hexadecimal.
    #[must_use]
    pub fn collection(mut self, id: u32) -> Self {
        self.name("collection_id");
        self.0.extend_from_slice(b"\"0x");
        let nibbles = (32 - id.leading_zeros()).div_ceil(4).max(1);
        for at in (0..nibbles).rev() {
            self.0.push(HEX[(id >> (4 * at) & 15) as usize]);
        }
        self.0.push(b'"');
        self
    }

    /// Adds bytes in hexadecimal. Only the first ones are recorded if there are many.
    #[must_use]
    pub fn packet(mut self, bytes: &[u8]) -> Self {
        self.name("packet");
        self.0.push(b'"');
        let shown = bytes.len().min(PACKET_BYTES_MAX);
        for byte in &bytes[..shown] {
            let (high, low) = (byte >> 4, byte & 15);
            self.0
                .extend([HEX[usize::from(high)], HEX[usize::from(low)]]);
        }
        if shown < bytes.len() {
            let left = format!(" [truncated {} bytes]", bytes.len() - shown);
            self.0.extend_from_slice(left.as_bytes());
        }
        self.0.push(b'"');
        self
    }

    /// Adds a field with any value.
    #[must_use]
    pub fn value(mut self, name: &str, value: &Value) -> Self {
        self.name(name);
        self.0.extend_from_slice(value.to_string().as_bytes());
        self
    }

    /// Ends the line.
    pub fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }

    /// Appends a name. Names are constants of this program and need no escapes.
    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let text = Value::from(String::from_utf8_lossy(text));
    out.extend_from_slice(text.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: User<'_> = User {
        domain: "local",
        name: "ada \"x\"",
    };

    fn line(origin: &Origin, fill: impl FnOnce(Line<'_>) -> Line<'_>) -> Value {
        let mut out = b"before".to_vec();
        let at = (&mut Stamp::default(), 1_709_251_199_123_456_789);
        fill(Line::begin(&mut out, Event::DocumentRead, at, origin)).end();
        let text = str::from_utf8(&out)
            .unwrap()
            .strip_prefix("before")
            .unwrap();
        assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn line_is_one_object_with_common_fields() {
        let address = |text: &str| Some(text.parse().unwrap());
        let connection = (address("[::ffff:192.0.2.1]:5"), address("127.0.0.1:11210"));
        let origin = Origin::new(connection, ADA, None);
        let key = "k\n\"\u{e9}".as_bytes();
        let of = line(&origin, |line| line.text("key", key).collection(0x1f));
        assert_eq!(
            of,
            serde_json::json!({
                "id": 20488,
                "name": "document read",
                "description": "Document was read",
                "timestamp": "2024-02-29T23:59:59.123456Z",
                "remote": { "ip": "192.0.2.1", "port": 5 },
                "local": { "ip": "127.0.0.1", "port": 11210 },
                "real_userid": { "domain": "local", "user": "ada \"x\"" },
                "key": "k\n\"\u{e9}",
                "collection_id": "0x1f",
            })
        );
    }

    #[test]
    fn line_names_effective_user() {
        let bob = User {
            domain: "local",
            name: "bob",
        };
        let of = line(&Origin::new((None, None), ADA, Some(bob)), |line| line);
        assert_eq!(
            of["effective_userid"],
            serde_json::json!({ "domain": "local", "user": "bob" })
        );
        assert_eq!(of["remote"], Value::Null);
    }

    #[test]
    fn line_limits_packets_and_replaces_invalid_utf8() {
        let of = line(&Origin::default(), |line| line.packet(&[0x80, 0x0f]));
        assert_eq!(of["packet"], "800f");
        let of = line(&Origin::default(), |line| {
            line.packet(&[0xab; 300]).collection(0)
        });
        let packet = of["packet"].as_str().unwrap();
        assert!(packet.ends_with("abab [truncated 44 bytes]"), "{packet}");
        assert_eq!(packet.find(' '), Some(512));
        assert_eq!(of["collection_id"], "0x0");
        let of = line(&Origin::default(), |line| line.text("key", b"\xff\x00a"));
        assert_eq!(of["key"], "\u{fffd}\0a");
    }
}
