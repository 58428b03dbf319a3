//! Statistics of the node.

use std::sync::atomic::Ordering;

use registry::COMPATIBLE_VERSION;
use registry::timings::CountedResult;
use wire::{Family, Status};

use super::row::{GENERAL, NodeRow, rows};
use crate::figures::{LOOKUPS, MUTATIONS};

const BOTH: &[&str] = &["", "threads"];
const AUDIT: &[&str] = &["audit"];

/// Rows in the order of the output.
pub(crate) static NODE: &[NodeRow] = rows! {
    GENERAL "uptime" Seconds "Time since the node started" Gauge "uptime", |f| f.node.uptime_s();
    GENERAL "ep_startup_time" Unix "When the node started", |f| f.node.started_unix_s;
    GENERAL "time" Unix "The node's wall clock", |f| f.now.unix_s();
    GENERAL "version" Text "The release of the reference server whose behaviour clients may expect",
        |_f| COMPATIBLE_VERSION;
    GENERAL "settee_version" Text "Version of this program", |_f| env!("CARGO_PKG_VERSION");
    GENERAL "pid" Count "Process identifier", |_f| std::process::id();
    BOTH "threads" Count "Threads that serve connections" Gauge "threads", |f| f.node.timings.len();
    BOTH "threads_serving" Count "How many of them connections are spread over now"
        Gauge "threads_serving", |f| f.node.serving.threads.load(Ordering::Relaxed);
    BOTH "connections_moved" Count "Connections that went from one thread to another"
        Counter "connections_moved", |f| f.node.serving.moves.load(Ordering::Relaxed);
    GENERAL "curr_connections" Count "Connections now" Gauge "connections",
        |f| f.node.connections.open();
    GENERAL "max_connections" Count "Connections that are served at the same time at most",
        |f| f.node.connections.max();
    GENERAL "total_connections" Count "Connections ever" Counter "connections_opened",
        |f| f.node.connections.opened();
    GENERAL "rejected_conns" Count "Connections closed for lack of room"
        Counter "connections_rejected", |f| f.node.connections.rejected();
    GENERAL "connections_held" Bytes "Half-received requests and unread answers that connections hold"
        Gauge "connections_held", |f| f.node.buffers.held();
    GENERAL "connections_held_limit" Bytes "Above it large requests and answers wait for others"
        Gauge "connections_held_limit", |f| f.node.buffers.limit();
    GENERAL "connections_closed_full" Count "Connections closed that moved nothing while they held too much"
        Counter "connections_closed_full", |f| f.node.buffers.closed();
    GENERAL "bytes_read" Bytes "Received from all connections, those that ended among them"
        Counter "received", |f| f.node.connections.traffic().received;
    GENERAL "bytes_written" Bytes "Sent to all connections, those that ended among them"
        Counter "sent", |f| f.node.connections.traffic().sent;
    GENERAL "conn_yields" Count "Turns of connections that ended so that others had theirs"
        Counter "connection_yields", |f| f.node.connections.traffic().yields;
    GENERAL "auth_cmds" Count "Logins tried" Counter "logins", |f| f.node.counters.logins();
    GENERAL "auth_errors" Count "Logins that failed" Counter "logins_failed",
        |f| f.node.counters.logins_failed();
    AUDIT "enabled" Bool "Whether events are recorded for audits", |f| f.node.audit.is_on();
    AUDIT "dropped_events" Count
        "Events that were not recorded: too many waited, or the file could not be written"
        Counter "audit_dropped_events", |f| f.node.audit.dropped();
    GENERAL "cmd_get" Count "Reads of documents, with and without touch",
        |f| f.commands(&[Family::Get]);
    GENERAL "cmd_set" Count "Writes of whole documents and of additions to them",
        |f| f.commands(&[Family::Set]);
    GENERAL "cmd_lock" Count "Get-and-lock", |f| f.commands(&[Family::Lock]);
    GENERAL "cmd_lookup" Count "Reads of whole documents and of their metadata, with get-and-lock",
        |f| f.commands(LOOKUPS);
    GENERAL "cmd_mutation" Count "Writes, deletions, counters and touches of whole documents",
        |f| f.commands(MUTATIONS);
    GENERAL "cmd_total_gets" Count "The same as cmd_lookup", |f| f.commands(LOOKUPS);
    GENERAL "cmd_total_sets" Count "The same as cmd_mutation", |f| f.commands(MUTATIONS);
    GENERAL "cmd_total_ops" Count "cmd_lookup and cmd_mutation: without commands on parts of documents, and changes with metadata",
        |f| f.commands(LOOKUPS) + f.commands(MUTATIONS);
    GENERAL "cmd_subdoc_lookup" Count "Commands that read parts of a document",
        |f| f.commands(&[Family::SubdocLookup]);
    GENERAL "cmd_subdoc_mutation" Count "Commands that change parts of a document",
        |f| f.commands(&[Family::SubdocMutation]);
    GENERAL "get_hits" Count "Reads that found their document" Counter "get_hits",
        |f| f.answers(&[Family::Get], CountedResult::Done);
    GENERAL "get_misses" Count "Reads that found nothing" Counter "get_misses",
        |f| f.answers(&[Family::Get], CountedResult::Missing);
    GENERAL "delete_hits" Count "Deletes that found their document" Counter "delete_hits",
        |f| f.answers(&[Family::Delete], CountedResult::Done);
    GENERAL "delete_misses" Count "Deletes that found nothing" Counter "delete_misses",
        |f| f.answers(&[Family::Delete], CountedResult::Missing);
    GENERAL "incr_hits" Count "Increments that were done",
        |f| f.answers(&[Family::Increment], CountedResult::Done);
    GENERAL "incr_misses" Count "Increments that found nothing",
        |f| f.answers(&[Family::Increment], CountedResult::Missing);
    GENERAL "decr_hits" Count "Decrements that were done",
        |f| f.answers(&[Family::Decrement], CountedResult::Done);
    GENERAL "decr_misses" Count "Decrements that found nothing",
        |f| f.answers(&[Family::Decrement], CountedResult::Missing);
    GENERAL "cas_badval" Count "Writes and deletions refused since the document is another revision"
        Counter "cas_conflicts",
        |f| f.answers(MUTATIONS, CountedResult::Conflict)
            + f.answers(&[Family::SubdocMutation], CountedResult::Conflict);
    GENERAL "lock_errors" Count "Commands refused since the document is locked"
        Counter "lock_conflicts", |f| f.all_answers(CountedResult::Locked);
    GENERAL "ep_num_not_my_vbuckets" Count
        "Requests for a vBucket that this node does not serve, of all buckets together",
        |f| f.responses(Status::NOT_MY_VBUCKET);
    GENERAL "total_resp_errors" Count "Commands of any kind that were not done"
        Counter "command_errors", |f| f.errors();
};
