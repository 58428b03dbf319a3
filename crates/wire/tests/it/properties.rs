//! Round trips: every message with any parts is parsed as it was written.

use model::{
    Cas, CollectionId, Datatype, FailoverEntry, ManifestUid, Seqno, SnapshotRange, VbId, VbState,
    VbUuid,
};
use proptest::prelude::*;
use wire::dcp::{
    Abort, AddStream, BufferAck, CollectionEvent, Commit, DcpControl, DcpOpen, Deletion, EndReason,
    EventId, Expiration, MarkerFlags, MarkerVersion, Mutation, OpenFlags, OsoSnapshot, Prepare,
    SeqnoAcknowledged, SeqnoAdvanced, SetVbucketState, SnapshotMarker, StreamEnd, StreamFlags,
    StreamRequest, SystemEvent,
};
use wire::request::{
    Arithmetic, CollectionsGetId, CollectionsGetScopeId, CompactDb, Concat, ConcatMode, Delete,
    Direction, DocFlags, DropPrivilege, Get, GetAllVbSeqnos, GetAndTouch, GetClusterConfig,
    GetCmdTimer, GetErrorMap, GetEx, GetLocked, GetMeta, GetRandomKey, GetReplica, Hello,
    MetaAction, MetaOptions, MetaVersion, MutateWithMeta, Observe, ObserveKey, ObserveKeys,
    ObserveSeqno, PathFlags, RangeScanCancel, RangeScanContinue, RangeScanCreate, ReturnMeta, Sasl,
    SelectBucket, SeqnoPersistence, SetVbucket, Stat, Store, StoreMode, Subdoc, SubdocExtras,
    SubdocMulti, SubdocSpec, SubdocSpecs, Touch, Unlock, WithMeta, encode_spec,
};
use wire::response::{
    CollectionIdReply, Failover, FailoverEntries, ObserveSeqnoReply, VbSeqnos,
    encode_failover_entries, encode_vb_seqnos,
};
use wire::{
    CasRule, ClusterMapNotification, ConfigRev, Decoded, Durability, DurabilityLevel, Envelope,
    ExtraPrivileges, FeatureList, Limits, Opaque, Opcode, OpcodeSupport, RawParts, RequestInfos,
    Response, Status, checks, decode, encode_info, encode_raw,
};

use crate::support::{Sample, valid_extras, whole_frame};

type AnySample<'a> = Box<dyn Sample<'a> + 'a>;

/// Data from which one of every message is made.
#[derive(Clone, Debug)]
struct Seed {
    key: Vec<u8>,
    value: Vec<u8>,
    features: Vec<u8>,
    observed: Vec<u8>,
    long: (u64, u64),
    short: (u32, u16, u8),
    flags: [bool; 4],
    infos: InfoSeed,
}

#[derive(Clone, Debug)]
struct InfoSeed {
    section: Vec<u8>,
    user: Option<Vec<u8>>,
    level: Option<(u8, Option<u16>)>,
    ids: (Option<u16>, Option<u16>),
    flags: [bool; 2],
}

impl InfoSeed {
    fn infos(&self) -> RequestInfos<'_> {
        let levels = [
            DurabilityLevel::Majority,
            DurabilityLevel::MajorityAndPersistOnActive,
            DurabilityLevel::PersistToMajority,
        ];
        RequestInfos {
            barrier: self.flags[0],
            durability: self.level.map(|(level, timeout_ms)| Durability {
                level: levels[usize::from(level)],
                timeout_ms,
            }),
            stream_id: self.ids.0,
            impersonate: self.user.as_deref(),
            preserve_ttl: self.flags[1],
            extra_privileges: ExtraPrivileges::in_section(&self.section),
            auth_token_id: self.ids.1,
        }
    }
}

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

fn info_seed() -> impl Strategy<Value = InfoSeed> {
    let privileges = prop::collection::vec(bytes(0..40), 0..3);
    let level = prop::option::of((0..3_u8, prop::option::of(1..0xffff_u16)));
    (
        privileges,
        prop::option::of(bytes(1..100)),
        level,
        any::<(Option<u16>, Option<u16>)>(),
        any::<[bool; 2]>(),
    )
        .prop_map(|(privileges, user, level, ids, flags)| {
            let mut section = Vec::new();
            for privilege in privileges {
                encode_info(6, &privilege, &mut section).expect("a short name");
            }
            InfoSeed {
                section,
                user,
                level,
                ids,
                flags,
            }
        })
}

fn seed() -> impl Strategy<Value = Seed> {
    let features = prop::collection::vec(any::<[u8; 2]>(), 0..20).prop_map(|list| list.concat());
    let observed = prop::collection::vec((any::<u16>(), bytes(0..40)), 1..4).prop_map(|keys| {
        let mut value = Vec::new();
        for (vbucket, key) in keys {
            let key = ObserveKey {
                vbucket: VbId(vbucket),
                key: &key,
            };
            key.encode(&mut value).expect("a short key");
        }
        value
    });
    let texts = (bytes(1..251), bytes(0..600), features, observed);
    (
        texts,
        any::<(u64, u64)>(),
        any::<(u32, u16, u8)>(),
        any::<[bool; 4]>(),
        info_seed(),
    )
        .prop_map(
            |((key, value, features, observed), long, short, flags, infos)| Seed {
                key,
                value,
                features,
                observed,
                long,
                short,
                flags,
                infos,
            },
        )
}

fn reads(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, expiry) = (seed.key.as_slice(), seed.short.0);
    let [quiet, with_key, option, _] = seed.flags;
    let version = if option {
        MetaVersion::V1
    } else {
        MetaVersion::V2
    };
    let collection = with_key.then_some(CollectionId(expiry));
    vec![
        Box::new(Get {
            key,
            with_key,
            quiet,
        }),
        Box::new(Touch { key, expiry }),
        Box::new(GetAndTouch { key, expiry, quiet }),
        Box::new(GetLocked {
            key,
            lock_s: option.then_some(expiry),
        }),
        Box::new(Unlock { key }),
        Box::new(GetReplica { key }),
        Box::new(GetEx {
            key,
            replica: option,
        }),
        Box::new(GetMeta {
            key,
            version,
            quiet,
        }),
        Box::new(GetRandomKey {
            collection,
            include_xattrs: with_key && option,
        }),
    ]
}

fn writes(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value, expiry) = (seed.key.as_slice(), seed.value.as_slice(), seed.short.0);
    let [quiet, always, option, _] = seed.flags;
    let mode = match (always, option) {
        (true, _) => StoreMode::Set,
        (_, true) => StoreMode::Add,
        _ => StoreMode::Replace,
    };
    let direction = if option {
        Direction::Increment
    } else {
        Direction::Decrement
    };
    let end = if option {
        ConcatMode::Append
    } else {
        ConcatMode::Prepend
    };
    let (delta, initial) = seed.long;
    vec![
        Box::new(Store {
            mode,
            quiet,
            key,
            value,
            flags: delta as u32,
            expiry,
        }),
        Box::new(Delete { key, quiet }),
        Box::new(Arithmetic {
            direction,
            quiet,
            key,
            delta,
            initial,
            expiry,
        }),
        Box::new(Concat {
            mode: end,
            quiet,
            key,
            value,
        }),
    ]
}

fn writes_of_metadata(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value, expiry) = (seed.key.as_slice(), seed.value.as_slice(), seed.short.0);
    let [quiet, always, option, _] = seed.flags;
    let action = match (always, option) {
        (true, _) => MetaAction::Set,
        (_, true) => MetaAction::Add,
        _ => MetaAction::Delete,
    };
    let (delta, initial) = seed.long;
    vec![
        Box::new(ReturnMeta {
            action: MetaAction::Add,
            flags: delta as u32,
            expiry,
            key,
            value,
        }),
        Box::new(MutateWithMeta {
            key,
            value,
            json: b"{}",
        }),
        Box::new(WithMeta {
            action,
            quiet,
            key,
            value,
            flags: delta as u32,
            expiry,
            rev: delta,
            cas: Cas(initial),
            options: option.then_some(MetaOptions::SKIP_CONFLICT_RESOLUTION),
            extended: always.then_some(&[1, 7, 0, 1, 0]),
        }),
    ]
}

fn parts_of_documents(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, bytes) = (seed.key.as_slice(), seed.value.as_slice());
    let (expiry, flags, byte) = seed.short;
    let [mutate, with_flags, with_expiry, with_item_flags] = seed.flags;
    let with_expiry = mutate && with_expiry;
    let extras = SubdocExtras {
        expiry: with_expiry.then_some(expiry),
        item_flags: (with_expiry && with_item_flags).then_some(u32::from(flags)),
        doc_flags: with_flags.then_some(DocFlags(byte)),
    };
    let (path, value) = bytes.split_at(bytes.len().min(usize::from(byte)));
    let lookups = [0xc5, 0xc6, 0xd2].as_slice();
    let changes = [0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd3];
    let one = |opcode: &u8| -> AnySample<'_> {
        Box::new(Subdoc {
            key,
            spec: SubdocSpec {
                opcode: Opcode(*opcode),
                flags: PathFlags(byte),
                path,
                value,
            },
            extras,
        })
    };
    let opcodes = if mutate { &changes } else { lookups };
    let mut all: Vec<_> = opcodes.iter().map(one).collect();
    all.push(Box::new(SubdocMulti {
        key,
        specs: SubdocSpecs::new(bytes, mutate),
        extras,
    }));
    all
}

fn connections(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value) = (seed.key.as_slice(), seed.value.as_slice());
    let (long, other) = seed.long;
    let (_, word, byte) = seed.short;
    let [_, option, ..] = seed.flags;
    let revision = ConfigRev {
        epoch: long.cast_signed(),
        rev: other.cast_signed(),
    };
    vec![
        Box::new(Hello {
            agent: key,
            features: FeatureList::parse(&seed.features).expect("pairs"),
        }),
        Box::new(Sasl {
            step: option,
            mechanism: key,
            payload: value,
        }),
        Box::new(SelectBucket { name: key }),
        Box::new(DropPrivilege { name: key }),
        Box::new(GetErrorMap { version: word }),
        Box::new(GetClusterConfig {
            known: option.then_some(revision),
        }),
        Box::new(Stat {
            group: if option { key } else { b"" },
            arguments: value,
        }),
        Box::new(GetCmdTimer {
            timed: Opcode(byte),
            bucket: key,
        }),
        Box::new(CollectionsGetId { path: value }),
        Box::new(RangeScanCreate {
            json: if value.is_empty() { b"{}" } else { value },
        }),
        Box::new(CollectionsGetScopeId { path: value }),
    ]
}

fn vbuckets(seed: &Seed) -> Vec<AnySample<'_>> {
    let (long, _) = seed.long;
    let (number, _, byte) = seed.short;
    let [_, dcp, one_collection, _] = seed.flags;
    let state = VbState::from_wire(byte % 4 + 1).expect("1 to 4");
    vec![
        Box::new(Observe {
            keys: ObserveKeys::parse(&seed.observed).expect("whole keys"),
        }),
        Box::new(ObserveSeqno { uuid: VbUuid(long) }),
        Box::new(GetAllVbSeqnos {
            state: dcp.then_some(state),
            collection: one_collection.then_some(CollectionId(number)),
        }),
        Box::new(SetVbucket {
            state,
            meta: &seed.value,
        }),
        Box::new(CompactDb {
            before_s: long,
            up_to: Seqno(number.into()),
            drop_deletes: dcp,
        }),
        Box::new(SeqnoPersistence { seqno: Seqno(long) }),
        Box::new(RangeScanContinue {
            id: u128::from(long).to_be_bytes(),
            items_max: number,
            time_ms_max: !number,
            bytes_max: number >> 1,
        }),
        Box::new(RangeScanCancel {
            id: u128::from(long).to_le_bytes(),
        }),
    ]
}

fn dcp_connections(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value) = (seed.key.as_slice(), seed.value.as_slice());
    let (a, b) = seed.long;
    let (number, _, byte) = seed.short;
    let state = VbState::from_wire(byte % 4 + 1).expect("1 to 4");
    let range = SnapshotRange {
        start: Seqno(b),
        end: Seqno(a),
    };
    let mut requests: Vec<AnySample<'_>> = vec![
        Box::new(DcpOpen {
            flags: OpenFlags(number),
            name: key,
            value,
        }),
        Box::new(AddStream {
            flags: StreamFlags(number),
        }),
        Box::new(StreamRequest {
            flags: StreamFlags(number),
            start: Seqno(a),
            end: Seqno(b),
            uuid: VbUuid(a ^ b),
            snapshot: range,
            value,
        }),
        Box::new(StreamEnd {
            reason: EndReason(number),
        }),
        Box::new(SetVbucketState { state }),
        Box::new(BufferAck { bytes: number }),
    ];
    // A setting always has a value, so an empty one of the seed is replaced.
    let value = if value.is_empty() { b"true" } else { value };
    requests.push(Box::new(DcpControl { name: key, value }));
    requests
}

fn dcp_documents(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value) = (seed.key.as_slice(), seed.value.as_slice());
    let (seqno, rev) = (Seqno(seed.long.0), seed.long.1);
    let (number, word, heat) = seed.short;
    let [deleted, timed, ..] = seed.flags;
    let level = DurabilityLevel::from_number(heat % 3 + 1).expect("1 to 3");
    let (flags, expiry, lock_time) = (number, number ^ 1, u32::from(word));
    vec![
        Box::new(Mutation {
            seqno,
            rev,
            flags,
            expiry,
            lock_time,
            heat,
            key,
            value,
        }),
        Box::new(Deletion {
            seqno,
            rev,
            delete_time: timed.then_some(number),
            key,
            value,
        }),
        Box::new(Expiration {
            seqno,
            rev,
            delete_time: number,
            key,
            value,
        }),
        Box::new(Prepare {
            seqno,
            rev,
            flags,
            expiry,
            lock_time,
            heat,
            deleted,
            level,
            key,
            value,
        }),
    ]
}

fn dcp_seqnos(seed: &Seed) -> Vec<AnySample<'_>> {
    let (key, value) = (seed.key.as_slice(), seed.value.as_slice());
    let (a, b) = (Seqno(seed.long.0), Seqno(seed.long.1));
    let (number, _, byte) = seed.short;
    let (prepared, seqno) = (a, b);
    let marker = |version| {
        Box::new(SnapshotMarker {
            range: SnapshotRange { start: a, end: b },
            flags: MarkerFlags(number),
            version,
        })
    };
    vec![
        marker(MarkerVersion::V1),
        marker(MarkerVersion::V2_0 {
            visible_end: a,
            high_completed: b,
        }),
        marker(MarkerVersion::V2_2 {
            visible_end: b,
            high_completed: a,
            purge_seqno: b,
            high_prepared: a,
        }),
        Box::new(Commit {
            prepared,
            seqno,
            key,
        }),
        Box::new(Abort {
            prepared,
            seqno,
            key,
        }),
        Box::new(SeqnoAcknowledged { prepared }),
        Box::new(SeqnoAdvanced { seqno }),
        Box::new(OsoSnapshot::Start),
        Box::new(OsoSnapshot::End),
        Box::new(SystemEvent {
            seqno,
            event: EventId(number),
            version: byte,
            name: key,
            value,
        }),
    ]
}

/// Returns one of every message.
fn requests(seed: &Seed) -> impl Iterator<Item = AnySample<'_>> {
    reads(seed)
        .into_iter()
        .chain(writes(seed))
        .chain(writes_of_metadata(seed))
        .chain(parts_of_documents(seed))
        .chain(connections(seed))
        .chain(vbuckets(seed))
        .chain(dcp_connections(seed))
        .chain(dcp_documents(seed))
        .chain(dcp_seqnos(seed))
}

/// Returns an envelope with the parts of the seed that the request's row allows.
fn envelope_for(opcode: Opcode, seed: &Seed) -> Envelope<'_> {
    let info = opcode.info().expect("a known opcode");
    let infos = seed.infos.infos();
    Envelope {
        vbucket: VbId(if info.vbucket_zero { 0 } else { seed.short.1 }),
        opaque: Opaque(seed.short.0.to_ne_bytes()),
        cas: match info.cas {
            CasRule::Zero => Cas(0),
            CasRule::Any => Cas(seed.long.1),
            CasRule::NonZero => Cas(seed.long.1.max(1)),
        },
        datatype: Datatype(seed.short.2 & info.datatypes.0),
        infos: RequestInfos {
            durability: infos.durability.filter(|_| info.durability),
            preserve_ttl: infos.preserve_ttl && info.preserve_ttl,
            ..infos
        },
    }
}

#[test]
fn the_samples_have_every_opcode_with_a_type() {
    let mut sampled = std::collections::BTreeSet::new();
    for bits in 0..16_u8 {
        let seed = Seed {
            key: vec![1],
            value: vec![],
            features: vec![],
            observed: vec![0; 4],
            long: (0, 0),
            short: (0, 0, 0),
            flags: [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 8 != 0],
            infos: InfoSeed {
                section: vec![],
                user: None,
                level: None,
                ids: (None, None),
                flags: [false; 2],
            },
        };
        sampled.extend(requests(&seed).map(|request| request.opcode_of()));
    }
    for opcode in Opcode::all() {
        let sample = encoded_sample(opcode);
        let typed = checks::readers(&whole_frame(&sample)) != Ok(0);
        assert_eq!(typed, sampled.contains(&opcode), "{opcode}");
    }
}

/// Returns a frame that obeys the rules of the opcode; only such a frame shows that the opcode has
/// a type.
fn encoded_sample(opcode: Opcode) -> Vec<u8> {
    let info = opcode.info().expect("a known opcode");
    let required = |presence| match presence {
        wire::Presence::Required => vec![0; 8],
        _ => vec![],
    };
    let mut value = required(info.value);
    if opcode == Opcode::GET_ERROR_MAP {
        value.truncate(2);
    }
    let extras = valid_extras(info);
    let envelope = Envelope {
        cas: Cas(u64::from(
            info.standing == OpcodeSupport::Known && info.cas == CasRule::NonZero,
        )),
        ..Envelope::default()
    };
    let mut out = Vec::new();
    let parts = RawParts {
        extras: &extras,
        key: &required(info.key),
        value: &value,
    };
    encode_raw(opcode, &envelope, parts, &mut out).expect("short parts");
    out
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_request(seed in seed()) {
        for request in requests(&seed) {
            let envelope = envelope_for(request.opcode_of(), &seed);
            let mut out = b"before".to_vec();
            let encoded = request.write(&envelope, &mut out);
            prop_assume!(encoded.is_ok());
            let frame = whole_frame(&out.leak()[6..]);
            prop_assert!(request.is_read_in(&frame), "{request:?}");
            prop_assert_eq!(Envelope::parse(&frame), Ok(envelope));
        }
    }

    #[test]
    fn a_message_is_read_by_its_own_type_only(seed in seed()) {
        for request in requests(&seed) {
            let mut out = Vec::new();
            let infos = RequestInfos::default();
            let envelope = Envelope { infos, ..envelope_for(request.opcode_of(), &seed) };
            request.write(&envelope, &mut out).expect("the parts fit a frame");
            prop_assert_eq!(checks::readers(&whole_frame(&out)), Ok(1));
        }
    }

    #[test]
    fn request_infos(seed in info_seed()) {
        let infos = seed.infos();
        let mut section = Vec::new();
        infos.encode(&mut section).expect("short names");
        prop_assert_eq!(RequestInfos::parse(&section), Ok(infos));
        for len in 0..section.len() {
            checks::request_infos(&section[..len]);
        }
    }

    #[test]
    fn frames(seed in seed(), opcode in any::<u8>(), extras in bytes(0..256)) {
        let envelope = Envelope {
            vbucket: VbId(seed.short.1),
            opaque: Opaque(seed.short.0.to_ne_bytes()),
            cas: Cas(seed.long.0),
            datatype: Datatype(seed.short.2),
            infos: seed.infos.infos(),
        };
        let mut out = Vec::new();
        let parts = RawParts {
            extras: &extras,
            key: &seed.key,
            value: &seed.value,
        };
        prop_assume!(encode_raw(Opcode(opcode), &envelope, parts, &mut out).is_ok());
        let frame = whole_frame(&out);
        prop_assert_eq!(frame.header.opcode, Opcode(opcode));
        prop_assert_eq!(frame.extras, parts.extras);
        prop_assert_eq!(frame.key_and_value(), [parts.key, parts.value].concat());
        prop_assert_eq!(frame.header.cas, envelope.cas);
        prop_assert_eq!(frame.header.datatype, envelope.datatype);
        prop_assert_eq!(frame.vbucket(), envelope.vbucket);
        prop_assert_eq!(frame.header.opaque, envelope.opaque);
        prop_assert_eq!(RequestInfos::parse(frame.frame_infos), Ok(envelope.infos));
        for len in 24..out.len() {
            let more = out.len() - len;
            let expected = Ok(Decoded::Incomplete { more });
            prop_assert_eq!(decode(&out[..len], Limits::AUTHENTICATED), expected);
        }
    }

    #[test]
    fn responses(
        seed in seed(),
        status in any::<u16>(),
        duration in any::<Option<u16>>(),
        key in bytes(0..300),
    ) {
        let response = Response {
            opcode: Opcode(seed.short.2),
            status: Status(status),
            opaque: Opaque(seed.short.0.to_ne_bytes()),
            cas: Cas(seed.long.0),
            datatype: Datatype(seed.short.1 as u8),
            server_duration: duration,
            extras: &seed.features,
            key: &key,
            value: &seed.value,
        };
        let mut whole = Vec::new();
        response.encode(&mut whole);
        let server_duration = duration.filter(|_| key.len() <= 255);
        let expected = Response { server_duration, ..response };
        prop_assert_eq!(Response::parse(&whole_frame(&whole)), Ok(expected));
        let mut head = Vec::new();
        response.encode_head(response.value.len(), &mut head);
        head.extend_from_slice(response.value);
        prop_assert_eq!(head, whole);
    }

    #[test]
    fn bodies_of_responses(seed in seed()) {
        let (a, b) = seed.long;
        let (number, vbucket, _) = seed.short;
        let reply = CollectionIdReply { manifest: ManifestUid(a), id: CollectionId(number) };
        prop_assert_eq!(CollectionIdReply::parse(&reply.to_bytes()), Ok(reply));
        let mut out = Vec::new();
        let failover = Failover { old_uuid: VbUuid(b), last_seqno: Seqno(a) };
        let reply = ObserveSeqnoReply {
            vbucket: VbId(vbucket),
            uuid: VbUuid(a),
            persisted: Seqno(b),
            current: Seqno(a),
            failover: seed.flags[1].then_some(failover),
        };
        reply.encode(&mut out);
        prop_assert_eq!(out.len(), if seed.flags[1] { 43 } else { 27 });
        prop_assert_eq!(ObserveSeqnoReply::parse(&out), Ok(reply));
        let collection = seed.flags[2].then_some(CollectionId(number));
        let event = CollectionEvent {
            manifest: ManifestUid(a),
            scope: number,
            collection,
            expiry_max_s: collection.map(|id| id.0 ^ 1).filter(|_| seed.flags[3]),
        };
        out.clear();
        event.encode(&mut out);
        prop_assert_eq!(CollectionEvent::parse(&out), Ok(event));
    }

    #[test]
    fn lists_in_responses(
        pairs in prop::collection::vec(any::<(u16, u64)>(), 0..9),
    ) {
        let seqnos: Vec<_> = pairs.iter().map(|&(vb, seqno)| (VbId(vb), Seqno(seqno))).collect();
        let mut out = Vec::new();
        encode_vb_seqnos(seqnos.iter().copied(), &mut out);
        prop_assert!(VbSeqnos::parse(&out).expect("whole entries").iter().eq(seqnos));
        let log: Vec<_> = pairs
            .iter()
            .map(|&(seqno, uuid)| FailoverEntry { uuid: VbUuid(uuid), seqno: Seqno(seqno.into()) })
            .collect();
        out.clear();
        encode_failover_entries(&log, &mut out);
        prop_assert!(FailoverEntries::parse(&out).expect("whole entries").iter().eq(log));
    }

    #[test]
    fn pushes(seed in seed()) {
        let push = ClusterMapNotification {
            revision: ConfigRev {
                epoch: seed.long.0.cast_signed(),
                rev: seed.long.1.cast_signed(),
            },
            bucket: &seed.key,
            map: Some(seed.value.as_slice()).filter(|map| !map.is_empty()),
            datatype: Datatype(seed.short.2),
        };
        let mut out = Vec::new();
        push.encode(Opaque::default(), &mut out);
        prop_assert_eq!(ClusterMapNotification::parse(&whole_frame(&out)), Ok(push));
    }

    #[test]
    fn any_bytes(bytes in bytes(0..400)) {
        checks::frame(&bytes);
        checks::request_infos(&bytes);
        checks::request(&bytes);
        checks::response(&bytes);
        checks::push(&bytes);
    }
}

proptest! {
    #[test]
    fn specs_are_read_as_they_were_written(
        parts in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<Vec<u8>>(), any::<Vec<u8>>()), 0..6),
        mutate: bool,
        cut in 0_usize..100,
    ) {
        let specs: Vec<_> = parts.iter().map(|(opcode, flags, path, value)| SubdocSpec {
            opcode: Opcode(*opcode),
            flags: PathFlags(*flags),
            path,
            value: if mutate { value } else { &[] },
        }).collect();
        let mut bytes = Vec::new();
        for spec in &specs {
            encode_spec(spec, mutate, &mut bytes);
        }
        let read: Result<Vec<_>, _> = SubdocSpecs::new(&bytes, mutate).into_iter().collect();
        prop_assert_eq!(read, Ok(specs));
        // A prefix of the specs ends with an error, or between two specs.
        let cut = cut.min(bytes.len());
        let mut whole = Vec::new();
        for spec in SubdocSpecs::new(&bytes[..cut], mutate) {
            match spec {
                Ok(spec) => encode_spec(&spec, mutate, &mut whole),
                Err(_) => break,
            }
        }
        prop_assert!(bytes[..cut].starts_with(&whole));
    }
}
