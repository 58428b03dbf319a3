//! Reader of the numbers in files.

/// Reader of big-endian numbers from the front of a slice. Each read returns `None` if the slice is too short.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Bytes that were not read yet.
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    /// Reads `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    /// Reads a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Reads a number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    /// Reads a number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    /// Reads a number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// Reads a count of four bytes, and so many items.
    pub fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| item(self)).collect()
    }
}
