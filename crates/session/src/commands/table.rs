//! The command table.

use wire::Opcode;

use super::command::{Command, Privilege, Scope};
use super::{
    bootstrap, collections, dcp, node, observe, params, read, replication, scan, subdoc, vbuckets,
    write,
};
use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};

type Run = fn(&mut Context<'_>, &wire::Frame<'_>) -> Result<CommandOutcome, Refusal>;

const READ: &[Privilege] = &[Privilege::Read];
const INSERT: &[Privilege] = &[Privilege::Insert];
const UPSERT: &[Privilege] = &[Privilege::Upsert];
const DELETE: &[Privilege] = &[Privilege::Delete];
const READ_UPSERT: &[Privilege] = &[Privilege::Read, Privilege::Upsert];
const SUPERVISOR: &[Privilege] = &[Privilege::NodeSupervisor];
const ADMIN: &[Privilege] = &[Privilege::Administrator];
const PRODUCER: &[Privilege] = &[Privilege::DcpProducer];
const CONSUMER: &[Privilege] = &[Privilege::DcpConsumer];
const STATS: &[Privilege] = &[Privilege::SimpleStats];
const SCAN: &[Privilege] = &[Privilege::RangeScan];
const FREE: &[Privilege] = &[];

const fn document(opcode: Opcode, privileges: &'static [Privilege], run: Run) -> Command {
    Command {
        opcode,
        scope: Scope::Document,
        privileges,
        memcached: true,
        sends_documents: false,
        before_login: false,
        note: "",
        run,
    }
}

/// A command whose answer may hold a large part of a document.
const fn sending(opcode: Opcode, privileges: &'static [Privilege], run: Run) -> Command {
    let mut command = document(opcode, privileges, run);
    command.sends_documents = true;
    command
}

const fn bucket(opcode: Opcode, privileges: &'static [Privilege], run: Run) -> Command {
    Command {
        opcode,
        scope: Scope::Bucket,
        privileges,
        memcached: false,
        sends_documents: false,
        before_login: false,
        note: "",
        run,
    }
}

const fn node(opcode: Opcode, privileges: &'static [Privilege], run: Run) -> Command {
    Command {
        opcode,
        scope: Scope::Node,
        privileges,
        memcached: false,
        sends_documents: false,
        before_login: false,
        note: "",
        run,
    }
}

const fn login(opcode: Opcode, run: Run) -> Command {
    Command {
        opcode,
        scope: Scope::Node,
        privileges: FREE,
        memcached: true,
        sends_documents: false,
        before_login: true,
        note: "",
        run,
    }
}

/// The role of the memcached port may send it, too.
const fn open_to_memcached(mut command: Command) -> Command {
    command.memcached = true;
    command
}

const fn noted(mut command: Command, note: &'static str) -> Command {
    command.note = note;
    command
}

/// Every command that is served.
pub(crate) static COMMANDS: &[Command] = &ROWS;

const ROWS: [Command; 96] = [
    sending(Opcode::GET, READ, read::get),
    sending(Opcode::GETQ, READ, read::get),
    sending(Opcode::GETK, READ, read::get),
    sending(Opcode::GETKQ, READ, read::get),
    document(Opcode::SET, UPSERT, write::store),
    document(Opcode::SETQ, UPSERT, write::store),
    document(Opcode::ADD, INSERT, write::store),
    document(Opcode::ADDQ, INSERT, write::store),
    document(Opcode::REPLACE, UPSERT, write::store),
    document(Opcode::REPLACEQ, UPSERT, write::store),
    document(Opcode::DELETE, DELETE, write::delete),
    document(Opcode::DELETEQ, DELETE, write::delete),
    document(Opcode::INCREMENT, READ_UPSERT, write::arithmetic),
    document(Opcode::INCREMENTQ, READ_UPSERT, write::arithmetic),
    document(Opcode::DECREMENT, READ_UPSERT, write::arithmetic),
    document(Opcode::DECREMENTQ, READ_UPSERT, write::arithmetic),
    document(Opcode::APPEND, UPSERT, write::concat),
    document(Opcode::APPENDQ, UPSERT, write::concat),
    document(Opcode::PREPEND, UPSERT, write::concat),
    document(Opcode::PREPENDQ, UPSERT, write::concat),
    document(Opcode::TOUCH, UPSERT, read::touch),
    sending(Opcode::GAT, READ_UPSERT, read::get_and_touch),
    sending(Opcode::GATQ, READ_UPSERT, read::get_and_touch),
    sending(Opcode::GET_LOCKED, READ, read::get_locked),
    document(Opcode::UNLOCK_KEY, READ, read::unlock),
    document(Opcode::GET_META, READ, read::get_meta),
    document(Opcode::GETQ_META, READ, read::get_meta),
    sending(Opcode::GET_REPLICA, READ, read::get_replica),
    sending(Opcode::SUBDOC_GET, READ, subdoc::lookup),
    document(Opcode::SUBDOC_EXISTS, READ, subdoc::lookup),
    document(Opcode::SUBDOC_GET_COUNT, READ, subdoc::lookup),
    sending(Opcode::SUBDOC_MULTI_LOOKUP, READ, subdoc::multi_lookup),
    document(Opcode::SUBDOC_DICT_ADD, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_DICT_UPSERT, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_DELETE, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_REPLACE, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_ARRAY_PUSH_LAST, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_ARRAY_PUSH_FIRST, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_ARRAY_INSERT, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_ARRAY_ADD_UNIQUE, UPSERT, subdoc::mutate),
    document(Opcode::SUBDOC_COUNTER, READ_UPSERT, subdoc::mutate),
    document(
        Opcode::SUBDOC_MULTI_MUTATION,
        UPSERT,
        subdoc::multi_mutation,
    ),
    document(
        Opcode::SUBDOC_REPLACE_BODY_WITH_XATTR,
        UPSERT,
        subdoc::mutate,
    ),
    bucket(Opcode::GET_RANDOM_KEY, READ, read::get_random_key),
    noted(
        bucket(Opcode::OBSERVE, READ, observe::observe),
        "the persistence estimate is 0",
    ),
    bucket(Opcode::OBSERVE_SEQNO, READ, observe::observe_seqno),
    bucket(
        Opcode::SEQNO_PERSISTENCE,
        SUPERVISOR,
        observe::seqno_persistence,
    ),
    bucket(Opcode::GET_FAILOVER_LOG, READ, vbuckets::failover_log),
    bucket(Opcode::GET_ALL_VB_SEQNOS, READ, vbuckets::all_seqnos),
    bucket(Opcode::SET_VBUCKET, SUPERVISOR, vbuckets::set),
    bucket(Opcode::GET_VBUCKET, FREE, vbuckets::get),
    bucket(Opcode::DEL_VBUCKET, SUPERVISOR, vbuckets::delete),
    bucket(Opcode::COMPACT_DB, SUPERVISOR, vbuckets::compact),
    bucket(
        Opcode::COLLECTIONS_GET_MANIFEST,
        FREE,
        collections::manifest,
    ),
    bucket(
        Opcode::COLLECTIONS_SET_MANIFEST,
        SUPERVISOR,
        collections::set_manifest,
    ),
    bucket(Opcode::COLLECTIONS_GET_ID, FREE, collections::collection_id),
    bucket(
        Opcode::COLLECTIONS_GET_SCOPE_ID,
        FREE,
        collections::scope_id,
    ),
    noted(
        open_to_memcached(node(Opcode::STAT, STATS, node::stat)),
        "groups: docs/stats.md",
    ),
    noted(
        bucket(Opcode::DCP_OPEN, PRODUCER, dcp::open),
        "as a consumer only with collections",
    ),
    bucket(Opcode::DCP_ADD_STREAM, CONSUMER, dcp::add_stream),
    bucket(Opcode::DCP_STREAM_END, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_SNAPSHOT_MARKER, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_MUTATION, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_DELETION, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_EXPIRATION, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_SET_VBUCKET_STATE, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_SYSTEM_EVENT, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_PREPARE, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_COMMIT, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_ABORT, CONSUMER, dcp::pushed),
    bucket(Opcode::DCP_CONTROL, PRODUCER, dcp::control),
    bucket(Opcode::DCP_STREAM_REQ, PRODUCER, dcp::stream),
    bucket(Opcode::DCP_CLOSE_STREAM, PRODUCER, dcp::close),
    bucket(
        Opcode::DCP_GET_FAILOVER_LOG,
        PRODUCER,
        vbuckets::failover_log,
    ),
    bucket(Opcode::DCP_BUFFER_ACK, PRODUCER, dcp::buffer_ack),
    bucket(Opcode::DCP_NOOP, PRODUCER, dcp::noop),
    bucket(Opcode::DCP_SEQNO_ACKNOWLEDGED, PRODUCER, dcp::seqno_ack),
    noted(
        bucket(Opcode::RANGE_SCAN_CREATE, SCAN, scan::create),
        "not of buckets in memory",
    ),
    bucket(Opcode::RANGE_SCAN_CONTINUE, SCAN, scan::go_on),
    bucket(Opcode::RANGE_SCAN_CANCEL, SCAN, scan::cancel),
    node(Opcode::GET_CMD_TIMER, FREE, node::cmd_timer),
    node(Opcode::GET_CLUSTER_CONFIG, FREE, bootstrap::cluster_config),
    node(Opcode::SELECT_BUCKET, FREE, bootstrap::select_bucket),
    node(Opcode::LIST_BUCKETS, FREE, bootstrap::list_buckets),
    open_to_memcached(node(Opcode::NOOP, FREE, node::noop)),
    noted(
        open_to_memcached(node(Opcode::VERSION, FREE, node::version)),
        "the level of compatibility",
    ),
    noted(
        node(Opcode::VERBOSITY, ADMIN, node::verbosity),
        "accepted, changes nothing",
    ),
    noted(
        bucket(Opcode::IOCTL_SET, ADMIN, replication::ioctl_set),
        "replication.replica, replication.promoted and replication.promote",
    ),
    noted(
        bucket(Opcode::SET_PARAM, ADMIN, params::set),
        "settings of memory, checkpoints, expiry and streams, CAS of a vBucket; until the next start",
    ),
    open_to_memcached(node(Opcode::QUIT, FREE, node::quit)),
    open_to_memcached(node(Opcode::QUITQ, FREE, node::quit)),
    login(Opcode::HELLO, bootstrap::hello),
    login(Opcode::SASL_LIST_MECHS, bootstrap::list_mechanisms),
    login(Opcode::SASL_AUTH, bootstrap::sasl),
    login(Opcode::SASL_STEP, bootstrap::sasl),
    login(Opcode::GET_ERROR_MAP, bootstrap::error_map),
];
