//! The requests of a worker: chosen at random, copied from encoded templates.

use std::ops::Range;
use std::time::Instant;

use client::KeyForm;
use model::{Cas, DurabilityLevel, VbId};
use wire::{Opaque, Opcode};

use crate::distribution::KeySampler;
use crate::plan::Plan;
use crate::protocol::{OperationKind, Protocol};
use crate::random::Random;
use crate::sizes::Sizes;
use crate::times::{TIMES_BYTES, Times};
use crate::verify::{HEADER_BYTES, Stamp};

/// Size of a key in bytes, without collection id.
pub(crate) const KEY_BYTES: usize = 16;
const KEY_PREFIX: &[u8; 7] = b"settee:";
const DIGITS: usize = KEY_BYTES - KEY_PREFIX.len();
/// Extra size of the payload, in bytes. Each value is cut from the payload at a random offset.
const PAYLOAD_SLACK: usize = 4_096;

/// Offsets of the header fields that differ between requests.
const VBUCKET_AT: usize = 6;
const BODY_LEN_AT: usize = 8;
const OPAQUE_AT: usize = 12;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Kind of the operation.
    pub(crate) kind: OperationKind,
    /// Number of the key.
    pub(crate) key: u64,
}

/// Returns the key with this number.
pub(crate) fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
    let mut rest = number;
    for digit in key[KEY_PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Returns the number of a key that [`key_of`] made.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(KEY_PREFIX)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Creates requests; each worker has one.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Random,
    sampler: KeySampler,
    sets: u64,
    of: u64,
    key_form: KeyForm,
    get: Vec<u8>,
    set: Vec<u8>,
    delete: Vec<u8>,
    payload: Vec<u8>,
    sizes: Sizes,
    deletes_percent: u32,
    /// Random number of the run if values are verified.
    run: Option<u32>,
    /// Start time of the stamps in values, if values have stamps.
    stamped_since: Option<Instant>,
    protocol: Protocol,
}

impl Workload {
    /// Creates the workload of one worker. `stream` makes its choices differ from those of other workers.
    pub(crate) fn new(plan: &Plan, key_form: KeyForm, run: u32, stream: u64) -> Self {
        let mut random = Random::new(plan.seed, stream);
        let payload = printable(&mut random, plan.sizes.most + PAYLOAD_SLACK);
        Self {
            sampler: KeySampler::new(plan.distribution, plan.keys),
            sets: u64::from(plan.ratio.sets),
            of: u64::from(plan.ratio.sets) + u64::from(plan.ratio.gets),
            key_form,
            get: template(Opcode::GET, &[], key_form, None),
            set: template(Opcode::SET, &[0; 8], key_form, plan.durability),
            delete: template(Opcode::DELETE, &[], key_form, plan.durability),
            payload,
            sizes: plan.sizes,
            deletes_percent: plan.deletes_percent,
            run: plan.verify.then_some(run),
            stamped_since: plan.stamped_since,
            protocol: plan.protocol,
            random,
        }
    }

    /// Returns the next operation.
    pub(crate) fn draw(&mut self) -> Operation {
        let kind = match self.sets {
            0 => OperationKind::Get,
            sets if self.random.below(self.of) < sets => self.kind_of_write(),
            _ => OperationKind::Get,
        };
        let key = self.sampler.draw(&mut self.random);
        Operation { kind, key }
    }

    fn kind_of_write(&mut self) -> OperationKind {
        match self.deletes_percent {
            0 => OperationKind::Set,
            percent if self.random.below(100) < u64::from(percent) => OperationKind::Delete,
            _ => OperationKind::Set,
        }
    }

    /// Returns the vBucket of a key.
    pub(crate) fn vbucket(&self, key: u64) -> VbId {
        self.key_form.vbucket(&key_of(key))
    }

    /// Protocol of requests.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Random number of the run if values are verified.
    pub(crate) fn checked_run(&self) -> Option<u32> {
        self.run
    }

    /// Appends a request to `out`. `writer` and `version` become part of a verified value.
    pub(crate) fn encode(&mut self, request: &PlannedRequest, out: &mut Vec<u8>) {
        if self.protocol != Protocol::Binary {
            let Operation { kind, key } = request.operation;
            let value = match kind {
                OperationKind::Set => self.draw_payload(),
                OperationKind::Get | OperationKind::Delete => 0..0,
            };
            let value = &self.payload[value];
            return self.protocol.encode(kind, &key_of(key), value, out);
        }
        let start = out.len();
        out.extend_from_slice(match request.operation.kind {
            OperationKind::Get => &self.get,
            OperationKind::Set => &self.set,
            OperationKind::Delete => &self.delete,
        });
        let key = key_of(request.operation.key);
        let frame = &mut out[start..];
        frame[VBUCKET_AT..VBUCKET_AT + 2].copy_from_slice(&request.vbucket.0.to_be_bytes());
        frame[OPAQUE_AT..OPAQUE_AT + 4].copy_from_slice(&request.opaque.0);
        let digits_at = frame.len() - DIGITS;
        frame[digits_at..].copy_from_slice(&key[KEY_PREFIX.len()..]);
        if request.operation.kind == OperationKind::Set {
            self.append_value(request, start, out);
        }
    }

    /// Returns the range of a value in the payload.
    fn draw_payload(&mut self) -> Range<usize> {
        let at = self.random.below(PAYLOAD_SLACK as u64) as usize;
        at..at + self.sizes.draw(&mut self.random)
    }

    fn append_value(&mut self, request: &PlannedRequest, start: usize, out: &mut Vec<u8>) {
        let Range { start: at, end } = self.draw_payload();
        let value_bytes = end - at;
        match (self.stamped_since, self.run) {
            (Some(since), _) => {
                let filler = &self.payload[at..at + value_bytes - TIMES_BYTES];
                Times::now(since, request.late_ns).append_value(filler, out);
            }
            (None, Some(run)) => {
                let filler = &self.payload[at..at + value_bytes - HEADER_BYTES];
                request.stamp(run).append_value(filler, out);
            }
            (None, None) => out.extend_from_slice(&self.payload[at..at + value_bytes]),
        }
        let body_len = (out.len() - start - wire::HEADER_BYTES) as u32;
        let body_len_at = start + BODY_LEN_AT;
        out[body_len_at..body_len_at + 4].copy_from_slice(&body_len.to_be_bytes());
    }
}

/// A request before it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRequest {
    /// The operation.
    pub(crate) operation: Operation,
    /// The vBucket of its key.
    pub(crate) vbucket: VbId,
    /// Opaque, echoed by the server.
    pub(crate) opaque: Opaque,
    /// Number of the connection.
    pub(crate) writer: u32,
    /// Number of the request on the connection.
    pub(crate) version: u64,
    /// Delay against the schedule, in nanoseconds.
    pub(crate) late_ns: u64,
}

impl PlannedRequest {
    /// Returns the stamp of a verified value that this request writes.
    pub(crate) fn stamp(&self, run: u32) -> Stamp {
        Stamp {
            run,
            key: self.operation.key,
            writer: self.writer,
            version: self.version,
        }
    }
}

fn template(
    opcode: Opcode,
    extras: &[u8],
    key_form: KeyForm,
    durability: Option<DurabilityLevel>,
) -> Vec<u8> {
    let key = [key_form.prefix(), &key_of(0)].concat();
    let message = client::Request {
        extras,
        key: &key,
        cas: Cas::ANY,
        durability,
        ..client::Request::new(opcode)
    };
    let mut out = Vec::new();
    message
        .encode(Opaque([0; 4]), &mut out)
        .expect("a key of 17 bytes fits a frame");
    out
}

/// Returns letters and signs, which compress badly and cannot be JSON.
pub(crate) fn printable(random: &mut Random, len: usize) -> Vec<u8> {
    const SIGNS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&*+<>?@^";
    (0..len)
        .map(|_| SIGNS[(random.next_u64() >> 58) as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use wire::{Decoded, Limits, decode};

    use super::*;
    use crate::tests::small_plan;

    fn plan(verify: bool) -> Plan {
        Plan {
            verify,
            ..small_plan()
        }
    }

    fn request(kind: OperationKind) -> PlannedRequest {
        PlannedRequest {
            operation: Operation {
                kind,
                key: 123_456_789,
            },
            vbucket: VbId(77),
            opaque: Opaque(*b"opaq"),
            writer: 5,
            version: 6,
            late_ns: 0,
        }
    }

    #[test]
    fn keys_have_nine_digits() {
        assert_eq!(&key_of(42), b"settee:000000042");
        assert_eq!(&key_of(999_999_999), b"settee:999999999");
        assert_eq!(number_of(&key_of(42)), Some(42));
        assert_eq!(number_of(b"touch:1"), None);
    }

    #[test]
    fn requests_are_whole_frames() {
        let key_form = KeyForm {
            collections: true,
            vbuckets: Some(1024),
        };
        for (verify, kind) in [
            (false, OperationKind::Get),
            (false, OperationKind::Set),
            (true, OperationKind::Get),
            (true, OperationKind::Set),
        ] {
            let mut workload = Workload::new(&plan(verify), key_form, 9, 0);
            let mut out = b"before".to_vec();
            workload.encode(&request(kind), &mut out);
            let decoded = decode(&out[6..], Limits::AUTHENTICATED).unwrap();
            let Decoded::Frame { frame, consumed } = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!(consumed, out.len() - 6);
            assert_eq!(frame.key, b"\0settee:123456789");
            assert_eq!(frame.header.opaque, Opaque(*b"opaq"));
            assert_eq!(frame.vbucket(), VbId(77));
            let vbucket = VbId::of_key(b"settee:123456789", 1024);
            assert_eq!(workload.vbucket(123_456_789), vbucket);
            assert_eq!(
                frame.value.len(),
                if kind == OperationKind::Set { 100 } else { 0 }
            );
            let stamp = Stamp::of_value(frame.value);
            assert_eq!(stamp.is_some(), verify && kind == OperationKind::Set);
        }
    }

    #[test]
    fn durable_writes_contain_level() {
        let level = Some(DurabilityLevel::PersistToMajority);
        let plan = Plan {
            durability: level,
            ..plan(false)
        };
        let mut workload = Workload::new(&plan, KeyForm::default(), 0, 0);
        for kind in [OperationKind::Get, OperationKind::Set] {
            let mut out = Vec::new();
            workload.encode(&request(kind), &mut out);
            let Ok(Decoded::Frame { frame, consumed }) = decode(&out, Limits::AUTHENTICATED) else {
                panic!("{out:?}")
            };
            assert_eq!((consumed, frame.key), (out.len(), &b"settee:123456789"[..]));
            let infos = wire::RequestInfos::parse(frame.frame_infos).unwrap();
            let asked = infos.durability.map(|durability| durability.level);
            assert_eq!(asked, level.filter(|_| kind == OperationKind::Set));
        }
    }

    #[test]
    fn memcached_keys_have_neither_prefix_nor_vbucket() {
        let mut workload = Workload::new(&plan(false), KeyForm::default(), 0, 0);
        let mut out = Vec::new();
        workload.encode(&request(OperationKind::Get), &mut out);
        assert_eq!(out.len(), 24 + 16);
        assert_eq!(workload.vbucket(123_456_789), VbId(0));
    }

    #[test]
    fn operations_keep_their_ratio() {
        let mut workload = Workload::new(&plan(false), KeyForm::default(), 0, 0);
        let sets = (0..10_000)
            .filter(|_| workload.draw().kind == OperationKind::Set)
            .count();
        assert!((2_300..2_700).contains(&sets), "{sets}");
    }

    #[test]
    fn payload_is_no_json() {
        let payload = printable(&mut Random::new(1, 1), 1_000);
        assert!(
            payload
                .iter()
                .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_digit())
        );
    }
}
