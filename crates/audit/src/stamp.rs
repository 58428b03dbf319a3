//! Times as text.

/// Cache of the text of the last second, for many lines in one second.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    second: u64,
    text: String,
}

impl Stamp {
    /// Appends a time as ISO 8601 with microseconds, in UTC.
    pub fn append(&mut self, unix_ns: u64, out: &mut Vec<u8>) {
        let second = unix_ns / 1_000_000_000;
        if self.text.is_empty() || self.second != second {
            self.second = second;
            self.text = seconds(second, ':');
        }
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'.');
        let micros = unix_ns / 1000 % 1_000_000;
        let mut unit = 100_000;
        while unit > 0 {
            out.push(b'0' + (micros / unit % 10) as u8);
            unit /= 10;
        }
        out.push(b'Z');
    }
}

/// Returns `YYYY-MM-DDTHH-MM-SS` in UTC, with `between` as separator of the time of day.
pub(crate) fn seconds(unix_s: u64, between: char) -> String {
    let mut text =
        model::utc(unix_s * 1_000_000_000).replace(':', between.encode_utf8(&mut [0; 4]));
    text.truncate("YYYY-MM-DDTHH-MM-SS".len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_microseconds() {
        let mut stamp = Stamp::default();
        let mut text = |unix_ns| {
            let mut out = Vec::new();
            stamp.append(unix_ns, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            text(1_709_251_199_123_456_789),
            "2024-02-29T23:59:59.123456Z"
        );
        assert_eq!(
            text(1_709_251_199_000_001_000),
            "2024-02-29T23:59:59.000001Z"
        );
        assert_eq!(
            text(1_709_251_200_999_999_999),
            "2024-03-01T00:00:00.999999Z"
        );
        assert_eq!(
            text(4_102_444_800_000_000_000),
            "2100-01-01T00:00:00.000000Z"
        );
    }

    #[test]
    fn names_of_files_have_no_colons() {
        assert_eq!(seconds(1_715_000_828, '-'), "2024-05-06T13-07-08");
    }
}
