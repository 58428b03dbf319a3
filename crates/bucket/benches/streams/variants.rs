//! Variants of `perf_latency`: documents, threads, and concurrent work.

use bucket::{Bucket, Hold};
use storage::MemStore;

use crate::{VB, key, now};

/// Concurrent work of the node, in a thread of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// Expiry passes over all documents; every document has an expiry.
    Expiry,
    /// Eviction of all values once they are flushed.
    Eviction,
}

/// Values of the documents.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// One letter, repeated so many times.
    Letters(usize),
    /// A JSON text of about so many bytes: one letter, repeated.
    Padded(usize),
    /// A JSON text of about so many bytes: random letters.
    Random(usize),
}

impl Value {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Letters(bytes) => vec![b'v'; bytes],
            Self::Padded(bytes) => json(&vec![b'v'; bytes]),
            Self::Random(bytes) => json(&letters(bytes)),
        }
    }
}

fn json(filler: &[u8]) -> Vec<u8> {
    [&b"{\"filler\":\""[..], filler, b"\"}"].concat()
}

fn letters(bytes: usize) -> Vec<u8> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let draw = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        b'A' + (random % 58) as u8
    };
    // A backslash would have to be escaped.
    let plain = |letter| if letter == b'\\' { b'-' } else { letter };
    (0..bytes).map(draw).map(plain).collect()
}

pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) documents: u32,
    pub(crate) value: Value,
    /// Number of threads that share the documents; all work on the same vBucket.
    pub(crate) threads: u32,
    pub(crate) beside: Beside,
}

impl Variant {
    const CORE: Self = Self {
        name: "perf_latency_core",
        documents: 100_000,
        value: Value::Letters(100),
        threads: 1,
        beside: Beside::Nothing,
    };

    const fn sized(name: &'static str, documents: u32, value: Value) -> Self {
        Self {
            name,
            documents,
            value,
            ..Self::CORE
        }
    }

    const fn beside(name: &'static str, beside: Beside) -> Self {
        Self {
            name,
            beside,
            ..Self::CORE
        }
    }

    /// Returns the expiry of documents in seconds since 1970; 0 for never.
    pub(crate) fn expiry(&self) -> u32 {
        if self.beside == Beside::Expiry {
            u32::MAX
        } else {
            0
        }
    }
}

pub(crate) const VARIANTS: [Variant; 8] = [
    Variant::CORE,
    Variant::sized("perf_latency_json_2k", 50_000, Value::Padded(2_000)),
    Variant::sized("perf_latency_random_2k", 50_000, Value::Random(2_000)),
    Variant::sized("perf_latency_json_25k", 8_000, Value::Padded(25_000)),
    Variant::sized("perf_latency_random_25k", 8_000, Value::Random(25_000)),
    Variant {
        name: "perf_latency_4_threads",
        threads: 4,
        ..Variant::CORE
    },
    Variant::beside("perf_latency_expiry", Beside::Expiry),
    Variant::beside("perf_latency_eviction", Beside::Eviction),
];

/// The concurrent work, step by step.
pub(crate) struct Work<'a> {
    bucket: &'a Bucket<MemStore>,
    variant: &'a Variant,
    /// Number of the next document.
    next: u32,
    /// Documents whose values were evicted.
    pub(crate) evicted: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(bucket: &'a Bucket<MemStore>, variant: &'a Variant) -> Self {
        Self {
            bucket,
            variant,
            next: 0,
            evicted: 0,
        }
    }

    /// Runs one step; `false` if there is nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        match self.variant.beside {
            Beside::Nothing => return false,
            Beside::Expiry => {
                self.bucket.expiry_step();
            }
            Beside::Eviction => self.evict_some(),
        }
        true
    }

    /// Evicts the next documents, cold or not, unless they are not flushed.
    fn evict_some(&mut self) {
        /// As many as the node's own thread visits under one lock hold.
        const KEYS_PER_HOLD: u32 = 128;
        let end = (self.next + KEYS_PER_HOLD).min(self.variant.documents);
        let keys: Vec<Vec<u8>> = (self.next..end).map(key).collect();
        self.next = end % self.variant.documents;
        let evicted = self.bucket.with_vbucket_for(Hold::Evict, VB, |vbucket| {
            let evicted = keys.iter().filter(|key| vbucket.evict(key, now()));
            evicted.count() as u64
        });
        self.evicted += evicted.unwrap_or(0);
    }
}
