//! Statistics of change streams.

use registry::dcp::{ProducerFigures, RegisteredConsumer, StreamFigures};

use super::row::{Statistic, rows};
use crate::dcp::DcpTotals;
use crate::rows::Value;

/// A row of a connection that sends changes; its name follows `eq_dcpq:NAME:`.
pub(crate) type ProducerRow = Statistic<fn(&ProducerFigures) -> Value>;
/// A row of a connection that receives changes; its name follows `eq_dcpq:NAME:`.
pub(crate) type ConsumerRow = Statistic<fn(&RegisteredConsumer) -> Value>;
/// A row of a stream; its name follows `eq_dcpq:NAME:stream_N_`.
pub(crate) type StreamRow = Statistic<fn(&StreamFigures) -> Value>;
/// A row of a bucket.
pub(crate) type TotalRow = Statistic<fn(&DcpTotals) -> Value>;
/// A row of all connections with the same name prefix; its name follows `NAME:`.
pub(crate) type SumRow = Statistic<fn(&DcpTotals) -> Value>;

const DCP: &[&str] = &["dcp"];
const SUMS: &[&str] = &["dcpagg"];

/// Rows of connections that send changes.
pub(crate) static PRODUCERS: &[ProducerRow] = rows! {
    DCP "type" Text "producer; or consumer, of a connection that brings changes here", |_p| "producer";
    DCP "created" Unix "When it was opened", |p| p.created_s;
    DCP "last_receive_time" Unix "When the consumer said something last", |p| p.last_receive_s;
    DCP "supports_ack" Bool "Whether the consumer has a window", |p| p.window != 0;
    DCP "paused" Bool "Whether it has nothing to send, or no room", |p| p.paused;
    DCP "paused_current_reason" Text "Why it is paused", |p| p.paused_reason();
    DCP "priority" Text "high, medium or low", |p| p.settings.priority.name();
    DCP "items_sent" Count "Changes sent", |p| p.totals.items;
    DCP "items_remaining" Count "Changes not yet sent, at most", |p| p.items_remaining();
    DCP "total_bytes_sent" Bytes "Messages sent", |p| p.totals.bytes;
    DCP "noop_enabled" Bool "Whether it sends noops", |p| p.noop_enabled;
    DCP "noop_wait" Bool "Whether it waits for a noop's answer", |p| p.noop_wait;
    DCP "noop_tx_interval" Seconds "Time between noops", |p| p.noop_interval_s;
    DCP "force_value_compression" Bool "Whether values are sent compressed", |p| p.settings.compress;
    DCP "cursor_dropping" Bool "Whether the consumer knows that cursors may be dropped",
        |p| p.settings.cursor_dropping;
    DCP "send_stream_end_on_client_close_stream" Bool "Whether a closed stream tells its end",
        |p| p.settings.end_on_close;
    DCP "enable_expiry_opcode" Bool "Whether expirations are told from deletions",
        |p| p.settings.expiry_opcode;
    DCP "enable_stream_id" Bool "Whether streams have numbers", |p| p.settings.stream_ids;
    DCP "synchronous_writes" Bool "Whether prepares are sent", |p| p.settings.sync_writes;
    DCP "synchronous_replication" Bool "Whether the consumer acknowledges prepares",
        |p| p.settings.sync_writes && !p.settings.consumer_name.is_empty();
    DCP "consumer_name" Text "What the consumer calls itself", |p| p.settings.consumer_name.clone();
    DCP "flow_control" Text "enabled or disabled",
        |p| if p.window == 0 { "disabled" } else { "enabled" };
    DCP "max_buffer_bytes" Bytes "The consumer's window", |p| p.window;
    DCP "unacked_bytes" Bytes "Sent and not acknowledged", |p| p.outstanding;
    DCP "total_acked_bytes" Bytes "Acknowledged", |p| p.acknowledged;
    DCP "backfill_buffer_bytes_read" Bytes "Read from the store and not yet sent",
        |p| p.backfill_bytes;
    DCP "backfill_buffer_max_bytes" Bytes "Most that is read ahead", |p| p.backfill_bytes_max;
    DCP "backfill_buffer_full" Bool "Whether reading waits for room", |p| p.backfill_full;
    DCP "backfill_num_active" Count "Backfills that read", |p| p.backfills_active;
    DCP "backfill_num_pending" Count "Backfills that wait for their turn", |p| p.backfills_pending;
    DCP "backfill_order" Text "Whether vBuckets are read in turn, or one after the other",
        |p| if p.settings.sequential_backfill { "sequential" } else { "round-robin" };
    DCP "num_streams" Count "Streams", |p| p.streams.len();
};

/// Rows of connections that receive changes.
pub(crate) static CONSUMERS: &[ConsumerRow] = rows! {
    DCP "type" Text "Always consumer", |_c| "consumer";
    DCP "created" Unix "When it was opened", |c| c.created_s;
    DCP "items_received" Count "Changes taken", |c| &c.progress.changes;
    DCP "total_bytes_received" Bytes "Messages that count for the window", |c| &c.progress.bytes;
    DCP "total_acked_bytes" Bytes "Acknowledged", |c| &c.progress.acked_bytes;
    DCP "rollbacks" Count "Times that a vBucket went back", |c| &c.progress.rollbacks;
    DCP "num_streams" Count "Streams", |c| &c.progress.streams;
};

/// Rows of streams.
pub(crate) static STREAMS: &[StreamRow] = rows! {
    DCP "state" Text "backfilling, in-memory, takeover-send, takeover-wait or dead",
        |s| s.stream.state;
    DCP "opaque" Count "The consumer's number for it", |s| u32::from_be_bytes(s.opaque.0);
    DCP "end_seqno" Seqno "Where it ends", |s| s.stream.end.0;
    DCP "last_sent_seqno" Seqno "The last change sent", |s| s.stream.sent.0;
    DCP "last_read_seqno" Seqno "Everything up to here was sent, or needed not to be",
        |s| s.stream.read.0;
    DCP "last_sent_snap_end_seqno" Seqno "End of the snapshot announced last",
        |s| s.stream.snapshot_end.0;
    DCP "backfill_sent" Count "Changes sent from the store", |s| s.stream.totals.from_store;
    DCP "memory_phase" Count "Changes sent from memory", |s| s.stream.totals.from_memory;
    DCP "cursor_registered" Bool "Whether it has a cursor", |s| s.stream.cursor.is_some();
    DCP "items_remaining" Count "Changes not yet sent, at most", |s| s.items_remaining;
    DCP "backfilling" Bool "Whether it reads from the store", |s| s.backfilling;
};

/// Rows of all connections of a bucket.
pub(crate) static TOTALS: &[TotalRow] = rows! {
    DCP "ep_dcp_count" Count "Connections that stream changes", |t| t.count + t.consumers;
    DCP "ep_dcp_producer_count" Count "Those of them that produce", |t| t.count;
    DCP "ep_dcp_consumer_count" Count "Those that bring changes here", |t| t.consumers;
    DCP "ep_dcp_total_bytes" Bytes "Messages sent by those that are connected", |t| t.bytes;
    DCP "ep_dcp_items_sent" Count "Changes sent by those that are connected", |t| t.items_sent;
    DCP "ep_dcp_items_remaining" Count "Changes not yet sent, at most", |t| t.items_remaining;
    DCP "ep_dcp_num_running_backfills" Count "Backfills that read", |t| t.running_backfills;
};

/// Rows of connections by the prefix of their names.
pub(crate) static PREFIX_SUMS: &[SumRow] = rows! {
    SUMS "count" Count "Connections", |t| t.count;
    SUMS "producer_count" Count "Those of them that produce", |t| t.count;
    SUMS "backoff" Count "Always 0", |_t| 0_u64;
    SUMS "items_sent" Count "Changes sent", |t| t.items_sent;
    SUMS "items_remaining" Count "Changes not yet sent, at most", |t| t.items_remaining;
    SUMS "total_bytes" Bytes "Messages sent", |t| t.bytes;
};
