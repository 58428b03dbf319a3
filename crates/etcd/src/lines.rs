//! Messages of a stream: one per line, regardless of the chunks of the stream.

/// Maximum length of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Error: a message is longer than [`MESSAGE_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Splits chunks into lines, without empty ones.
#[derive(Default)]
pub(crate) struct Lines {
    /// Beginning of an incomplete line.
    begun: Vec<u8>,
}

impl Lines {
    /// Takes a chunk; returns every line that ends in it.
    pub(crate) fn take(&mut self, mut chunk: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut ended = Vec::new();
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            self.begin(&chunk[..end])?;
            ended.push(std::mem::take(&mut self.begun));
            chunk = &chunk[end + 1..];
        }
        self.begin(chunk)?;
        ended.retain(|line| !line.is_empty());
        Ok(ended)
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.begun.len() + bytes.len() > MESSAGE_BYTES_MAX {
            return Err(TooLong);
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_chunks() {
        let text = b"one\ntwo\n\nthree\nfo";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let cut = text.chunks(size);
            let all: Vec<_> = cut.flat_map(|chunk| lines.take(chunk).unwrap()).collect();
            assert_eq!(all, [&b"one"[..], b"two", b"three"], "{size}");
            assert_eq!(lines.begun, b"fo");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; MESSAGE_BYTES_MAX / 2];
        assert!(lines.take(&chunk).is_ok() && lines.take(&chunk).is_ok());
        assert_eq!(lines.take(b"x"), Err(TooLong));
    }
}
