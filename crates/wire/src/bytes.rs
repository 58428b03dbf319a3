//! Reading big-endian numbers off the front of a slice.

/// What is left of a slice; every read either takes all it asked for or nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    /// What was not read.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }
}
