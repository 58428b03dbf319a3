//! The opcode table of protocol section 3.

use model::Datatype;

use super::info::{CasRule, Family, Opcode, OpcodeInfo, OpcodeSupport, Presence};
use CasRule::{Any, NonZero};
use Presence::{Optional, Required};

/// No extras, key or value; CAS zero; datatype raw.
const BARE: OpcodeInfo = OpcodeInfo {
    opcode: Opcode(0xff),
    name: "",
    standing: OpcodeSupport::Known,
    extras: &[0],
    key: Presence::Forbidden,
    value: Presence::Forbidden,
    cas: CasRule::Zero,
    datatypes: Datatype::RAW,
    durability: false,
    preserve_ttl: false,
    keyed: false,
    quiet: None,
    reorder: false,
    write: false,
    vbucket_zero: false,
    family: Family::Other,
    extras_mask: 1,
};

impl OpcodeInfo {
    const fn extras(mut self, lengths: &'static [u8]) -> Self {
        self.extras = lengths;
        self.extras_mask = mask_of(lengths);
        self
    }

    const fn key(mut self, presence: Presence) -> Self {
        self.key = presence;
        self
    }

    const fn value(mut self, presence: Presence) -> Self {
        self.value = presence;
        self
    }

    const fn cas(mut self, rule: CasRule) -> Self {
        self.cas = rule;
        self
    }

    const fn datatypes(mut self, bits: Datatype) -> Self {
        self.datatypes = bits;
        self
    }

    const fn durable(mut self) -> Self {
        self.durability = true;
        self
    }

    const fn ttl(mut self) -> Self {
        self.preserve_ttl = true;
        self
    }

    const fn write(mut self) -> Self {
        self.write = true;
        self
    }

    const fn vbucket_zero(mut self) -> Self {
        self.vbucket_zero = true;
        self
    }

    const fn reorder(mut self) -> Self {
        self.reorder = true;
        self
    }

    const fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    const fn row(mut self, number: u8, name: &'static str) -> Self {
        self.opcode = Opcode(number);
        self.name = name;
        self
    }

    /// Returns the quiet form of `base`: the same rules, but in order and without frame infos.
    const fn quiet(mut self, base: Opcode) -> Self {
        self.quiet = Some(base);
        self.reorder = false;
        self.durability = false;
        self.preserve_ttl = false;
        self
    }
}

const JSON: Datatype = Datatype::JSON;
const BODY: Datatype = Datatype(0x03);

const REMOVED: OpcodeInfo = OpcodeInfo {
    standing: OpcodeSupport::Removed,
    ..BARE
};
/// Reads a document by key.
const READ: OpcodeInfo = OpcodeInfo {
    keyed: true,
    ..BARE.key(Required).reorder()
};
/// Returns a document.
const GET: OpcodeInfo = READ.family(Family::Get);
/// Writes a whole document.
const STORE: OpcodeInfo = READ
    .family(Family::Set)
    .extras(&[8])
    .value(Optional)
    .datatypes(BODY)
    .durable()
    .write();
const JOIN: OpcodeInfo = STORE.extras(&[0]).cas(Any).ttl();
const COUNT: OpcodeInfo = READ.extras(&[20]).durable().ttl().write();
const TOUCH: OpcodeInfo = READ.family(Family::Touch).extras(&[4]).durable().write();
const META: OpcodeInfo = OpcodeInfo {
    reorder: false,
    ..READ.extras(&[24, 26, 28, 30]).value(Optional).cas(Any)
}
.datatypes(Datatype::ALL)
.write();
const LOOKUP: OpcodeInfo = READ
    .family(Family::SubdocLookup)
    .extras(&[3, 4])
    .value(Optional);
const EDIT: OpcodeInfo = READ
    .family(Family::SubdocMutation)
    .extras(&[3, 4, 7, 8, 11, 12])
    .value(Optional)
    .cas(Any)
    .durable()
    .ttl()
    .write();
/// A name only.
const NAMED: OpcodeInfo = BARE.key(Required);
/// A JSON text only.
const TEXT: OpcodeInfo = BARE.value(Required).datatypes(JSON);
const PATH: OpcodeInfo = BARE.key(Optional).value(Optional).vbucket_zero();
const DCP: OpcodeInfo = BARE.cas(Any).datatypes(Datatype::ALL);

macro_rules! opcodes {
    ($($name:ident $number:literal $row:expr;)*) => {
        impl Opcode {
            $(
                #[doc = concat!("`", stringify!($name), "`, ", stringify!($number), ".")]
                pub const $name: Self = Self($number);
            )*
        }

        pub(super) static ROWS: [OpcodeInfo; COUNT_OF_ROWS] =
            [$(($row).row($number, stringify!($name)),)*];

        const NUMBERS: &[u8] = &[$($number),*];
    };
}

const COUNT_OF_ROWS: usize = NUMBERS.len();
const NO_ROW: u8 = 0xff;

/// Index in [`ROWS`] by number.
pub(super) static ROW_OF: [u8; 256] = row_of();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler, where a wrong index is a compile error"
)]
const fn mask_of(lengths: &[u8]) -> u64 {
    let mut mask = 0;
    let mut index = 0;
    while index < lengths.len() {
        mask |= 1 << lengths[index];
        index += 1;
    }
    mask
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler, where a wrong index is a compile error"
)]
const fn row_of() -> [u8; 256] {
    let mut rows = [NO_ROW; 256];
    let mut row = 0;
    while row < NUMBERS.len() {
        rows[NUMBERS[row] as usize] = row as u8;
        row += 1;
    }
    rows
}

opcodes! {
    GET 0x00 GET;
    SET 0x01 STORE.cas(Any).ttl();
    ADD 0x02 STORE;
    REPLACE 0x03 STORE.cas(Any).ttl();
    DELETE 0x04 READ.family(Family::Delete).cas(Any).durable();
    INCREMENT 0x05 COUNT.family(Family::Increment);
    DECREMENT 0x06 COUNT.family(Family::Decrement);
    QUIT 0x07 BARE;
    FLUSH 0x08 BARE.extras(&[0, 4]);
    GETQ 0x09 GET.quiet(Opcode::GET);
    NOOP 0x0a BARE;
    VERSION 0x0b BARE;
    GETK 0x0c GET;
    GETKQ 0x0d GET.quiet(Opcode::GETK);
    APPEND 0x0e JOIN;
    PREPEND 0x0f JOIN;
    STAT 0x10 BARE.key(Optional).value(Optional).datatypes(JSON);
    SETQ 0x11 STORE.cas(Any).quiet(Opcode::SET).ttl();
    ADDQ 0x12 STORE.quiet(Opcode::ADD);
    REPLACEQ 0x13 STORE.cas(Any).quiet(Opcode::REPLACE).ttl();
    DELETEQ 0x14 READ.family(Family::Delete).cas(Any).quiet(Opcode::DELETE);
    INCREMENTQ 0x15 COUNT.family(Family::Increment).quiet(Opcode::INCREMENT);
    DECREMENTQ 0x16 COUNT.family(Family::Decrement).quiet(Opcode::DECREMENT);
    QUITQ 0x17 BARE.quiet(Opcode::QUIT);
    FLUSHQ 0x18 BARE.extras(&[0, 4]).quiet(Opcode::FLUSH);
    APPENDQ 0x19 JOIN.quiet(Opcode::APPEND);
    PREPENDQ 0x1a JOIN.quiet(Opcode::PREPEND);
    VERBOSITY 0x1b BARE.extras(&[4]);
    TOUCH 0x1c TOUCH;
    GAT 0x1d TOUCH.family(Family::Get);
    GATQ 0x1e TOUCH.family(Family::Get).quiet(Opcode::GAT);
    HELLO 0x1f BARE.key(Optional).value(Optional);
    SASL_LIST_MECHS 0x20 BARE;
    SASL_AUTH 0x21 NAMED.value(Optional);
    SASL_STEP 0x22 NAMED.value(Optional);
    IOCTL_GET 0x23 NAMED;
    IOCTL_SET 0x24 NAMED.value(Optional);
    CONFIG_VALIDATE 0x25 TEXT;
    CONFIG_RELOAD 0x26 BARE;
    AUDIT_PUT 0x27 TEXT.extras(&[4]);
    AUDIT_CONFIG_RELOAD 0x28 BARE;
    SHUTDOWN 0x29 BARE.cas(Any);
    SET_BUCKET_THROTTLE_PROPERTIES 0x2a TEXT.key(Required).reorder();
    SET_BUCKET_DATA_LIMIT_EXCEEDED 0x2b NAMED.extras(&[2]).reorder();
    SET_NODE_THROTTLE_PROPERTIES 0x2c REMOVED;
    SET_ACTIVE_ENCRYPTION_KEYS 0x2d TEXT.key(Required).reorder();
    PRUNE_ENCRYPTION_KEYS 0x2e TEXT.key(Required).reorder();
    REGISTER_AUTH_TOKEN 0x2f TEXT;
    RGET 0x30 REMOVED;
    RSET 0x31 REMOVED;
    RSETQ 0x32 REMOVED;
    RAPPEND 0x33 REMOVED;
    RAPPENDQ 0x34 REMOVED;
    RPREPEND 0x35 REMOVED;
    RPREPENDQ 0x36 REMOVED;
    RDELETE 0x37 REMOVED;
    RDELETEQ 0x38 REMOVED;
    RINCR 0x39 REMOVED;
    RINCRQ 0x3a REMOVED;
    RDECR 0x3b REMOVED;
    RDECRQ 0x3c REMOVED;
    SET_VBUCKET 0x3d BARE.extras(&[1, 4]).value(Optional).cas(Any).datatypes(JSON);
    GET_VBUCKET 0x3e BARE;
    DEL_VBUCKET 0x3f BARE.value(Optional).cas(Any);
    TAP_CONNECT 0x40 REMOVED;
    TAP_MUTATION 0x41 REMOVED;
    TAP_DELETE 0x42 REMOVED;
    TAP_FLUSH 0x43 REMOVED;
    TAP_OPAQUE 0x44 REMOVED;
    TAP_VBUCKET_SET 0x45 REMOVED;
    TAP_CHECKPOINT_START 0x46 REMOVED;
    TAP_CHECKPOINT_END 0x47 REMOVED;
    GET_ALL_VB_SEQNOS 0x48 BARE.extras(&[0, 4, 8]).reorder();
    GET_EX 0x49 READ;
    GET_EX_REPLICA 0x4a READ;
    MUTATE_WITH_META 0x4b META.extras(&[4]).value(Required).reorder();
    DCP_OPEN 0x50 DCP.extras(&[8]).key(Required).value(Optional);
    DCP_ADD_STREAM 0x51 DCP.extras(&[4]);
    DCP_CLOSE_STREAM 0x52 DCP;
    DCP_STREAM_REQ 0x53 DCP.extras(&[48]).value(Optional);
    DCP_GET_FAILOVER_LOG 0x54 DCP;
    DCP_STREAM_END 0x55 DCP.extras(&[4]);
    DCP_SNAPSHOT_MARKER 0x56 DCP.extras(&[1, 20]).value(Optional);
    DCP_MUTATION 0x57 DCP.extras(&[31]).key(Required).value(Optional);
    DCP_DELETION 0x58 DCP.extras(&[18, 21]).key(Required).value(Optional);
    DCP_EXPIRATION 0x59 DCP.extras(&[20]).key(Required).value(Optional);
    DCP_FLUSH 0x5a REMOVED;
    DCP_SET_VBUCKET_STATE 0x5b DCP.extras(&[1]);
    DCP_NOOP 0x5c DCP;
    DCP_BUFFER_ACK 0x5d DCP.extras(&[4]);
    DCP_CONTROL 0x5e DCP.key(Required).value(Required);
    DCP_SYSTEM_EVENT 0x5f DCP.extras(&[13]).key(Optional).value(Optional);
    DCP_PREPARE 0x60 DCP.extras(&[31]).key(Required).value(Optional);
    DCP_SEQNO_ACKNOWLEDGED 0x61 DCP.extras(&[8]);
    DCP_COMMIT 0x62 DCP.extras(&[16]).key(Required);
    DCP_ABORT 0x63 DCP.extras(&[16]).key(Required);
    DCP_SEQNO_ADVANCED 0x64 DCP.extras(&[8]);
    DCP_OSO_SNAPSHOT 0x65 DCP.extras(&[4]);
    DCP_CACHE_TRANSFER 0x66 DCP.value(Required);
    DCP_CACHE_TRANSFER_END 0x67 DCP.value(Optional);
    FUSION_70 0x70 REMOVED;
    FUSION_71 0x71 REMOVED;
    FUSION_72 0x72 REMOVED;
    FUSION_73 0x73 REMOVED;
    FUSION_74 0x74 REMOVED;
    FUSION_75 0x75 REMOVED;
    FUSION_76 0x76 REMOVED;
    FUSION_77 0x77 REMOVED;
    FUSION_78 0x78 REMOVED;
    FUSION_79 0x79 REMOVED;
    STOP_PERSISTENCE 0x80 BARE;
    START_PERSISTENCE 0x81 BARE;
    SET_PARAM 0x82 NAMED.extras(&[4]).value(Required);
    GET_REPLICA 0x83 GET;
    SET_CHRONICLE_AUTH_TOKEN 0x84 TEXT;
    CREATE_BUCKET 0x85 NAMED.value(Required).cas(Any);
    DELETE_BUCKET 0x86 NAMED.value(Optional).cas(Any).datatypes(JSON);
    LIST_BUCKETS 0x87 BARE.cas(Any);
    SELECT_BUCKET 0x89 NAMED.cas(Any);
    PAUSE_BUCKET 0x8a NAMED;
    RESUME_BUCKET 0x8b NAMED;
    VALIDATE_BUCKET_CONFIG 0x8c BARE.key(Optional).value(Required);
    OBSERVE_SEQNO 0x91 BARE.value(Required);
    OBSERVE 0x92 BARE.value(Required);
    EVICT_KEY 0x93 READ;
    GET_LOCKED 0x94 READ.family(Family::Lock).extras(&[0, 4]);
    UNLOCK_KEY 0x95 READ.cas(NonZero);
    GET_FAILOVER_LOG 0x96 BARE;
    LAST_CLOSED_CHECKPOINT 0x97 REMOVED;
    DEREGISTER_TAP_CLIENT 0x9e REMOVED;
    RESET_REPLICATION_CHAIN 0x9f REMOVED;
    GET_META 0xa0 OpcodeInfo { reorder: false, ..READ.family(Family::Meta).extras(&[0, 1]) };
    GETQ_META 0xa1 READ.family(Family::Meta).extras(&[0, 1]).quiet(Opcode::GET_META);
    SET_WITH_META 0xa2 META;
    SETQ_WITH_META 0xa3 META.quiet(Opcode::SET_WITH_META);
    ADD_WITH_META 0xa4 META;
    ADDQ_WITH_META 0xa5 META.quiet(Opcode::ADD_WITH_META);
    SNAPSHOT_VB_STATES 0xa6 REMOVED;
    VBUCKET_BATCH_COUNT 0xa7 REMOVED;
    DEL_WITH_META 0xa8 OpcodeInfo { write: false, ..META };
    DELQ_WITH_META 0xa9 OpcodeInfo { write: false, ..META }.quiet(Opcode::DEL_WITH_META);
    CREATE_CHECKPOINT 0xaa REMOVED;
    NOTIFY_VBUCKET_UPDATE 0xac REMOVED;
    ENABLE_TRAFFIC 0xad BARE;
    DISABLE_TRAFFIC 0xae BARE;
    IFCONFIG 0xaf NAMED.value(Optional).datatypes(JSON);
    CHANGE_VB_FILTER 0xb0 REMOVED;
    CHECKPOINT_PERSISTENCE 0xb1 REMOVED;
    RETURN_META 0xb2 META.extras(&[12]).datatypes(BODY);
    COMPACT_DB 0xb3 BARE.extras(&[24]).value(Optional).datatypes(JSON);
    SET_CLUSTER_CONFIG 0xb4 TEXT.extras(&[16]).key(Optional);
    GET_CLUSTER_CONFIG 0xb5 BARE.extras(&[0, 16]).reorder();
    GET_RANDOM_KEY 0xb6 BARE.family(Family::Get).extras(&[0, 4, 5]);
    SEQNO_PERSISTENCE 0xb7 BARE.extras(&[8]);
    GET_KEYS 0xb8 OpcodeInfo { reorder: false, ..READ.extras(&[0, 4]) };
    COLLECTIONS_SET_MANIFEST 0xb9 TEXT.vbucket_zero();
    COLLECTIONS_GET_MANIFEST 0xba BARE.vbucket_zero();
    COLLECTIONS_GET_ID 0xbb PATH;
    COLLECTIONS_GET_SCOPE_ID 0xbc PATH;
    SET_DRIFT_COUNTER_STATE 0xc1 REMOVED;
    GET_ADJUSTED_TIME 0xc2 REMOVED;
    SUBDOC_GET 0xc5 LOOKUP;
    SUBDOC_EXISTS 0xc6 LOOKUP;
    SUBDOC_DICT_ADD 0xc7 EDIT;
    SUBDOC_DICT_UPSERT 0xc8 EDIT;
    SUBDOC_DELETE 0xc9 EDIT;
    SUBDOC_REPLACE 0xca EDIT;
    SUBDOC_ARRAY_PUSH_LAST 0xcb EDIT;
    SUBDOC_ARRAY_PUSH_FIRST 0xcc EDIT;
    SUBDOC_ARRAY_INSERT 0xcd EDIT;
    SUBDOC_ARRAY_ADD_UNIQUE 0xce EDIT;
    SUBDOC_COUNTER 0xcf EDIT;
    SUBDOC_MULTI_LOOKUP 0xd0 LOOKUP.extras(&[0, 1]);
    SUBDOC_MULTI_MUTATION 0xd1 EDIT.extras(&[0, 1, 4, 5, 8, 9]);
    SUBDOC_GET_COUNT 0xd2 LOOKUP;
    SUBDOC_REPLACE_BODY_WITH_XATTR 0xd3 EDIT;
    RANGE_SCAN_CREATE 0xda TEXT;
    RANGE_SCAN_CONTINUE 0xdb BARE.extras(&[28]);
    RANGE_SCAN_CANCEL 0xdc BARE.extras(&[16]);
    SNAPSHOT_TRANSFER_0 0xe0 BARE.key(Optional).value(Optional).datatypes(JSON);
    SNAPSHOT_TRANSFER_1 0xe1 BARE.key(Optional).value(Optional).datatypes(JSON);
    SNAPSHOT_TRANSFER_2 0xe2 BARE.key(Optional).value(Optional).datatypes(JSON);
    SNAPSHOT_TRANSFER_3 0xe3 BARE.key(Optional).value(Optional).datatypes(JSON);
    SCRUB 0xf0 REMOVED;
    ISASL_REFRESH 0xf1 BARE;
    SSL_CERTS_REFRESH 0xf2 REMOVED;
    GET_CMD_TIMER 0xf3 BARE.extras(&[1]).key(Optional);
    SET_CTRL_TOKEN 0xf4 BARE.extras(&[8]).cas(Any);
    GET_CTRL_TOKEN 0xf5 BARE;
    UPDATE_EXTERNAL_USER_PERMISSIONS 0xf6 TEXT;
    RBAC_REFRESH 0xf7 BARE;
    AUTH_PROVIDER 0xf8 BARE;
    DROP_PRIVILEGE 0xfb NAMED;
    ADJUST_TIMEOFDAY 0xfc REMOVED;
    EWB_CTL 0xfd REMOVED;
    GET_ERROR_MAP 0xfe BARE.value(Required).vbucket_zero();
}
