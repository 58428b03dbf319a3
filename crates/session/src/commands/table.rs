//! The command table.

use identity::{Privilege, PrivilegeSet};
use wire::Opcode;

use super::command::{Command, PrivilegeScope, Scope, Sends};
use super::{
    audit, bootstrap, collections, control, dcp, node, observe, params, read, replication,
    return_meta, scan, subdoc, vbuckets, with_meta, write,
};
use crate::context::Context;
use crate::outcome::CommandResult;

type Run = fn(&mut Context<'_>, &wire::Frame<'_>) -> CommandResult;

const READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read]);
const INSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Insert]);
const UPSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Upsert]);
const DELETE: PrivilegeSet = PrivilegeSet::of(&[Privilege::Delete]);
const READ_UPSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read, Privilege::Upsert]);
const META: PrivilegeSet = PrivilegeSet::of(&[Privilege::MetaWrite]);
const SUPERVISOR: PrivilegeSet = PrivilegeSet::of(&[Privilege::NodeSupervisor]);
const ADMIN: PrivilegeSet = PrivilegeSet::of(&[Privilege::Administrator]);
const PRODUCER: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpProducer]);
const CONSUMER: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpConsumer]);
const SCAN: PrivilegeSet = PrivilegeSet::of(&[Privilege::RangeScan]);
const AUDIT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Audit]);
const FREE: PrivilegeSet = PrivilegeSet::of(&[]);

const fn bucket(opcode: Opcode, privileges: PrivilegeSet, run: Run) -> Command {
    Command {
        opcode,
        scope: Scope::Bucket,
        privileges,
        within: PrivilegeScope::Whole,
        memcached: false,
        sends: Sends::Nothing,
        before_login: false,
        note: "",
        run,
    }
}

const fn document(opcode: Opcode, privileges: PrivilegeSet, run: Run) -> Command {
    Command {
        scope: Scope::Document,
        within: PrivilegeScope::Document,
        memcached: true,
        ..bucket(opcode, privileges, run)
    }
}

/// Row of a command that writes metadata of a document.
const fn metadata(opcode: Opcode, run: Run) -> Command {
    Command {
        memcached: false,
        ..document(opcode, META, run)
    }
}

/// Row of a command about documents of several collections.
const fn anywhere(opcode: Opcode, privileges: PrivilegeSet, run: Run) -> Command {
    Command {
        within: PrivilegeScope::Anywhere,
        ..bucket(opcode, privileges, run)
    }
}

/// Row of a command whose answer may hold a large part of a document.
const fn sending(opcode: Opcode, privileges: PrivilegeSet, run: Run) -> Command {
    Command {
        sends: Sends::Document,
        ..document(opcode, privileges, run)
    }
}

const fn node(opcode: Opcode, privileges: PrivilegeSet, run: Run) -> Command {
    Command {
        scope: Scope::Node,
        ..bucket(opcode, privileges, run)
    }
}

const fn login(opcode: Opcode, run: Run) -> Command {
    Command {
        memcached: true,
        before_login: true,
        ..node(opcode, FREE, run)
    }
}

impl Command {
    /// Opens a row to clients of the memcached port.
    const fn open_to_memcached(mut self) -> Self {
        self.memcached = true;
        self
    }

    const fn noted(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

/// Every command that the node serves.
pub(crate) static COMMANDS: &[Command] = &ROWS;

const ROWS: [Command; 117] = [
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
    sending(Opcode::GET_EX, READ, read::get_ex),
    Command {
        sends: Sends::ReplicaDocument,
        ..document(Opcode::GET_EX_REPLICA, READ, read::get_ex)
    },
    Command {
        memcached: false,
        ..document(Opcode::EVICT_KEY, ADMIN, control::evict)
    },
    metadata(Opcode::RETURN_META, return_meta::change),
    metadata(Opcode::MUTATE_WITH_META, with_meta::write_json),
    metadata(Opcode::SET_WITH_META, with_meta::write),
    metadata(Opcode::SETQ_WITH_META, with_meta::write),
    metadata(Opcode::ADD_WITH_META, with_meta::write),
    metadata(Opcode::ADDQ_WITH_META, with_meta::write),
    metadata(Opcode::DEL_WITH_META, with_meta::write),
    metadata(Opcode::DELQ_WITH_META, with_meta::write),
    Command {
        sends: Sends::ReplicaDocument,
        ..document(Opcode::GET_REPLICA, READ, read::get_replica)
    },
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
    anywhere(Opcode::GET_RANDOM_KEY, READ, read::get_random_key),
    anywhere(Opcode::OBSERVE, READ, observe::observe).noted("the persistence estimate is 0"),
    anywhere(Opcode::OBSERVE_SEQNO, READ, observe::observe_seqno),
    bucket(
        Opcode::SEQNO_PERSISTENCE,
        SUPERVISOR,
        observe::seqno_persistence,
    ),
    anywhere(Opcode::GET_FAILOVER_LOG, READ, vbuckets::failover_log),
    anywhere(Opcode::GET_ALL_VB_SEQNOS, READ, vbuckets::all_seqnos),
    bucket(Opcode::SET_VBUCKET, SUPERVISOR, vbuckets::set),
    anywhere(Opcode::GET_VBUCKET, FREE, vbuckets::get),
    bucket(Opcode::DEL_VBUCKET, SUPERVISOR, vbuckets::delete),
    bucket(Opcode::COMPACT_DB, SUPERVISOR, vbuckets::compact),
    bucket(Opcode::STOP_PERSISTENCE, ADMIN, control::stop_persistence).noted(
        "not of buckets in memory; a stop of the node makes everything durable all the same",
    ),
    bucket(Opcode::START_PERSISTENCE, ADMIN, control::start_persistence)
        .noted("not of buckets in memory"),
    bucket(Opcode::ENABLE_TRAFFIC, SUPERVISOR, control::enable_traffic)
        .noted("changes nothing: operations are let in once all is loaded"),
    anywhere(
        Opcode::COLLECTIONS_GET_MANIFEST,
        FREE,
        collections::manifest,
    ),
    bucket(
        Opcode::COLLECTIONS_SET_MANIFEST,
        SUPERVISOR,
        collections::set_manifest,
    ),
    anywhere(Opcode::COLLECTIONS_GET_ID, FREE, collections::collection_id),
    anywhere(
        Opcode::COLLECTIONS_GET_SCOPE_ID,
        FREE,
        collections::scope_id,
    ),
    node(Opcode::STAT, FREE, node::stat)
        .open_to_memcached()
        .noted("groups, and what each needs: docs/stats.md"),
    anywhere(Opcode::DCP_OPEN, FREE, dcp::open).noted("as a consumer only with collections"),
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
    anywhere(Opcode::DCP_CONTROL, PRODUCER, dcp::control),
    anywhere(Opcode::DCP_STREAM_REQ, PRODUCER, dcp::stream),
    anywhere(Opcode::DCP_CLOSE_STREAM, FREE, dcp::close),
    anywhere(
        Opcode::DCP_GET_FAILOVER_LOG,
        PRODUCER,
        vbuckets::failover_log,
    ),
    anywhere(Opcode::DCP_BUFFER_ACK, PRODUCER, dcp::buffer_ack),
    anywhere(Opcode::DCP_NOOP, FREE, dcp::noop),
    anywhere(Opcode::DCP_SEQNO_ACKNOWLEDGED, PRODUCER, dcp::seqno_ack),
    anywhere(Opcode::RANGE_SCAN_CREATE, SCAN, scan::create).noted("not of buckets in memory"),
    anywhere(Opcode::RANGE_SCAN_CONTINUE, SCAN, scan::go_on),
    anywhere(Opcode::RANGE_SCAN_CANCEL, SCAN, scan::cancel),
    node(Opcode::GET_CMD_TIMER, FREE, node::cmd_timer),
    node(Opcode::GET_CLUSTER_CONFIG, FREE, bootstrap::cluster_config),
    node(Opcode::SELECT_BUCKET, FREE, bootstrap::select_bucket),
    node(Opcode::LIST_BUCKETS, FREE, bootstrap::list_buckets),
    node(Opcode::DROP_PRIVILEGE, FREE, node::drop_privilege),
    node(Opcode::AUDIT_PUT, AUDIT, audit::put),
    node(Opcode::AUDIT_CONFIG_RELOAD, SUPERVISOR, audit::reload),
    node(Opcode::NOOP, FREE, node::noop).open_to_memcached(),
    node(Opcode::VERSION, FREE, node::version)
        .open_to_memcached()
        .noted("the level of compatibility"),
    node(Opcode::VERBOSITY, ADMIN, node::verbosity).noted("accepted, changes nothing"),
    node(Opcode::ISASL_REFRESH, SUPERVISOR, node::refresh)
        .noted("changes nothing: users that are in force are those that are kept"),
    node(Opcode::RBAC_REFRESH, SUPERVISOR, node::refresh)
        .noted("changes nothing, as ISASL_REFRESH"),
    node(Opcode::IOCTL_SET, ADMIN, replication::ioctl_set).noted(
        "replication.replica, replication.promoted and replication.promote; cluster.order; \
         cluster.message of other nodes of a cluster",
    ),
    bucket(Opcode::SET_PARAM, ADMIN, params::set).noted(
        "settings of memory, checkpoints, expiry, locks, durability, history and streams, \
         CAS of a vBucket; until the next start",
    ),
    bucket(Opcode::FLUSH, DELETE, node::flush)
        .open_to_memcached()
        .noted(
            "of a bucket with `flushEnabled`, at once; for clients of memcached, \
             removed from the protocol of others",
        ),
    bucket(Opcode::FLUSHQ, DELETE, node::flush).open_to_memcached(),
    node(Opcode::QUIT, FREE, node::quit).open_to_memcached(),
    node(Opcode::QUITQ, FREE, node::quit).open_to_memcached(),
    login(Opcode::HELLO, bootstrap::hello),
    login(Opcode::SASL_LIST_MECHS, bootstrap::list_mechanisms),
    login(Opcode::SASL_AUTH, bootstrap::sasl),
    login(Opcode::SASL_STEP, bootstrap::sasl),
    login(Opcode::GET_ERROR_MAP, bootstrap::error_map),
];
