//! The rules of the opcode table, for every opcode at its boundaries.

use model::{Cas, Datatype, VbId};
use wire::{
    CasRule, Envelope, Malformed, Opcode, OpcodeInfo, OpcodeSupport, Presence, RawParts, checks,
    encode_raw,
};

use crate::support::{bare, whole_frame};

/// A request of `info`'s opcode with the shortest accepted parts.
#[derive(Clone)]
struct Sample {
    opcode: Opcode,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    cas: Cas,
    datatype: Datatype,
    vbucket: VbId,
}

impl Sample {
    fn of(info: &OpcodeInfo) -> Self {
        let needed = |presence| {
            if presence == Presence::Required {
                vec![b'0'; 8]
            } else {
                vec![]
            }
        };
        let value = match info.opcode {
            Opcode::GET_ERROR_MAP => vec![0, 2],
            Opcode::OBSERVE => vec![0, 0, 0, 1, b'k'],
            _ => needed(info.value),
        };
        let extras = crate::support::valid_extras(info);
        Self {
            opcode: info.opcode,
            extras,
            key: needed(info.key),
            value,
            cas: Cas(u64::from(info.cas == CasRule::NonZero)),
            datatype: Datatype::RAW,
            vbucket: VbId(0),
        }
    }

    fn parse(&self) -> Result<(), Malformed> {
        let envelope = Envelope {
            vbucket: self.vbucket,
            cas: self.cas,
            datatype: self.datatype,
            ..Envelope::default()
        };
        let mut out = Vec::new();
        encode_raw(
            self.opcode,
            &envelope,
            RawParts {
                extras: &self.extras,
                key: &self.key,
                value: &self.value,
            },
            &mut out,
        )
        .expect("short parts");
        checks::readers(&whole_frame(&out)).map(drop)
    }
}

fn known() -> impl Iterator<Item = &'static OpcodeInfo> {
    OpcodeInfo::all()
        .iter()
        .filter(|info| info.standing == OpcodeSupport::Known)
}

#[test]
fn every_opcode_at_its_boundaries() {
    for info in known() {
        let sample = Sample::of(info);
        assert_eq!(sample.parse(), Ok(()), "{info:?}");
        for len in 0..=64_u8 {
            let sample = Sample {
                extras: vec![1; usize::from(len)],
                ..sample.clone()
            };
            if !info.extras.contains(&len) {
                assert!(
                    sample.parse().is_err(),
                    "{} with {len} bytes of extras",
                    info.name
                );
            }
        }
        let without_key = Sample {
            key: vec![],
            ..sample.clone()
        };
        assert_eq!(
            without_key.parse().is_ok(),
            info.key != Presence::Required,
            "{}",
            info.name
        );
        let with_key = Sample {
            key: vec![b'0'; 3],
            ..sample.clone()
        };
        assert_eq!(
            with_key.parse().is_ok(),
            info.key != Presence::Forbidden,
            "{}",
            info.name
        );
        let without_value = Sample {
            value: vec![],
            ..sample.clone()
        };
        let optional = info.value != Presence::Required;
        assert_eq!(without_value.parse().is_ok(), optional, "{}", info.name);
        if info.value == Presence::Forbidden {
            let with_value = Sample {
                value: vec![b'0'],
                ..sample.clone()
            };
            assert!(with_value.parse().is_err(), "{} with a value", info.name);
        }
    }
}

#[test]
fn every_opcode_with_and_without_a_cas() {
    for info in known() {
        let sample = Sample::of(info);
        let with = Sample {
            cas: Cas(7),
            ..sample.clone()
        };
        assert_eq!(
            with.parse().is_ok(),
            info.cas != CasRule::Zero,
            "{}",
            info.name
        );
        let without = Sample {
            cas: Cas(0),
            ..sample
        };
        assert_eq!(
            without.parse().is_ok(),
            info.cas != CasRule::NonZero,
            "{}",
            info.name
        );
    }
}

#[test]
fn every_opcode_with_every_datatype() {
    for info in known() {
        for bits in 0..=u8::MAX {
            let datatype = Datatype(bits);
            let sample = Sample {
                datatype,
                ..Sample::of(info)
            };
            let accepted = Datatype::ALL.contains(datatype) && info.datatypes.contains(datatype);
            assert_eq!(
                sample.parse().is_ok(),
                accepted,
                "{} with {bits:#x}",
                info.name
            );
        }
    }
}

#[test]
fn every_opcode_with_a_vbucket() {
    for info in known() {
        let sample = Sample {
            vbucket: VbId(1),
            ..Sample::of(info)
        };
        assert_eq!(sample.parse().is_ok(), !info.vbucket_zero, "{}", info.name);
    }
}

#[test]
fn removed_and_unknown_opcodes_have_no_rules() {
    let mut seen = 0;
    for number in 0..=u8::MAX {
        let opcode = Opcode(number);
        let standing = opcode.info().map(|info| info.standing);
        if standing == Some(OpcodeSupport::Known) {
            continue;
        }
        seen += 1;
        let sample = Sample {
            opcode,
            extras: vec![1; 7],
            key: b"k".to_vec(),
            value: b"v".to_vec(),
            cas: Cas(1),
            datatype: Datatype(0xff),
            vbucket: VbId(9),
        };
        assert_eq!(sample.parse(), Ok(()), "{opcode}");
        assert_eq!(standing.is_none(), opcode.name() == "UNKNOWN");
    }
    assert_eq!(seen, 256 - known().count());
}

#[test]
fn rows_are_found_by_their_number() {
    let mut last = None;
    for info in OpcodeInfo::all() {
        assert!(last < Some(info.opcode), "{info:?} is out of order");
        last = Some(info.opcode);
        assert_eq!(info.opcode.info(), Some(info));
        if let Some(base) = info.quiet {
            let loud = base.info().unwrap();
            assert_eq!(loud.quiet, None);
            assert_eq!(
                (loud.extras, loud.key, loud.value),
                (info.extras, info.key, info.value)
            );
        }
    }
    assert_eq!(Opcode(0xff).info(), None);
}

#[test]
fn parse_checks_values_beyond_lengths() {
    let mut refused: Vec<Sample> = Vec::new();
    let mut add = |opcode: Opcode, extras: &[u8], key: &[u8], value: &[u8]| {
        let sample = Sample {
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
            ..Sample::of(opcode.info().unwrap())
        };
        refused.push(sample);
    };
    add(Opcode::GET_META, &[3], b"k", b"");
    let options = |options: u32| [&[0; 24][..], &options.to_be_bytes()].concat();
    add(Opcode::SET_WITH_META, &options(0x04), b"k", b"v");
    add(Opcode::SET_WITH_META, &options(0x18), b"k", b"v");
    add(Opcode::DEL_WITH_META, &options(0x20), b"k", b"");
    let extended = [&[0; 25][..], &[3]].concat();
    add(Opcode::SET_WITH_META, &extended, b"k", b"v");
    add(Opcode::SET_WITH_META, &extended, b"k", b"v\x02\0\0");
    add(Opcode::SET_WITH_META, &extended, b"k", b"v\x01\0\0");
    add(Opcode::SET_VBUCKET, &[0], b"", b"");
    add(Opcode::SET_VBUCKET, &[5], b"", b"");
    add(Opcode::SET_VBUCKET, &[1, 0, 0, 1], b"", b"");
    add(Opcode::GET_ALL_VB_SEQNOS, &[0, 0, 0, 5], b"", b"");
    add(Opcode::GET_ERROR_MAP, &[], b"", &[2]);
    add(Opcode::OBSERVE_SEQNO, &[], b"", &[0; 7]);
    add(Opcode::OBSERVE_SEQNO, &[], b"", &[0; 9]);
    add(Opcode::OBSERVE, &[], b"", &[0, 0, 0, 2, b'k']);
    add(Opcode::OBSERVE, &[], b"", &[0, 0, 0]);
    add(Opcode::HELLO, &[], b"", &[0, 1, 0]);
    add(Opcode::COLLECTIONS_GET_ID, &[], b"a.b", b"a.b");
    add(Opcode::COLLECTIONS_GET_SCOPE_ID, &[], b"a", b"a");
    add(Opcode::DCP_SET_VBUCKET_STATE, &[0], b"", b"");
    add(Opcode::DCP_SET_VBUCKET_STATE, &[5], b"", b"");
    add(Opcode::DCP_OSO_SNAPSHOT, &[0, 0, 0, 0], b"", b"");
    add(Opcode::DCP_OSO_SNAPSHOT, &[0, 0, 0, 3], b"", b"");
    let level = |level: u8| [&[0; 30][..], &[level]].concat();
    add(Opcode::DCP_PREPARE, &level(0), b"k", b"");
    add(Opcode::DCP_PREPARE, &level(4), b"k", b"");
    let extended = [&[0; 28][..], &[0, 1, 0]].concat();
    add(Opcode::DCP_MUTATION, &extended, b"k", b"v");
    let extended = [&[0; 16][..], &[1, 0]].concat();
    add(Opcode::DCP_DELETION, &extended, b"k", b"");
    for (version, len) in [
        (0, 0),
        (0, 35),
        (0, 37),
        (0, 52),
        (1, 36),
        (1, 44),
        (2, 36),
        (2, 53),
        (3, 52),
    ] {
        add(Opcode::DCP_SNAPSHOT_MARKER, &[version], b"", &vec![0; len]);
    }
    add(Opcode::DCP_SNAPSHOT_MARKER, &[0; 20], b"", &[0]);
    for sample in refused {
        let parsed = sample.parse();
        assert!(
            parsed.is_err(),
            "{} {:?} {:?}",
            sample.opcode,
            sample.extras,
            sample.value
        );
    }
}

#[test]
fn responses_are_refused_as_requests() {
    let mut out = bare(&Envelope::default(), Opcode::NOOP);
    for magic in [0x81, 0x18, 0x82, 0x83] {
        out[0] = magic;
        assert!(checks::readers(&whole_frame(&out)).is_err(), "{magic:#x}");
    }
}

#[test]
fn rows_match_the_protocol() {
    use CasRule::{Any, NonZero, Zero};
    let cas = [
        (
            Zero,
            "GET ADD INCREMENT TOUCH GAT GET_LOCKED GET_META NOOP STAT GET_ERROR_MAP",
        ),
        (
            Any,
            "SET REPLACE DELETE APPEND PREPEND SETQ SET_VBUCKET LIST_BUCKETS SELECT_BUCKET",
        ),
        (NonZero, "UNLOCK_KEY"),
    ];
    for (rule, names) in cas {
        for name in names.split(' ') {
            let info = OpcodeInfo::all()
                .iter()
                .find(|info| info.name == name)
                .unwrap();
            assert_eq!(info.cas, rule, "{name}");
        }
    }
    let having = |trait_of: fn(&OpcodeInfo) -> bool| {
        let plain = |info: &&OpcodeInfo| info.opcode < Opcode::GET_EX && trait_of(info);
        let names = OpcodeInfo::all().iter().filter(plain).map(|info| info.name);
        names.collect::<Vec<_>>().join(" ")
    };
    let durable = "SET ADD REPLACE DELETE INCREMENT DECREMENT APPEND PREPEND TOUCH GAT";
    assert_eq!(having(|info| info.durability), durable);
    let keeping = "SET REPLACE INCREMENT DECREMENT APPEND PREPEND SETQ REPLACEQ";
    assert_eq!(having(|info| info.preserve_ttl), keeping);
    let quiet = "GETQ GETKQ SETQ ADDQ REPLACEQ DELETEQ INCREMENTQ DECREMENTQ QUITQ FLUSHQ APPENDQ \
                 PREPENDQ GATQ";
    assert_eq!(having(|info| info.quiet.is_some()), quiet);
}
