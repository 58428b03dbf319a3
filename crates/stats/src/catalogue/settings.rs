//! Statistics of the settings that SET_PARAM changes and that no other row shows.

use super::row::{BucketRow, rows};
use crate::rows::Value;

const CONFIG: &[&str] = &["", "config"];

/// Rows in the order of the output.
pub(crate) static SETTINGS: &[BucketRow] = rows! {
    CONFIG "ep_checkpoint_memory_recovery_upper_mark" Ratio
        "Share of the memory for checkpoints at which they are relieved",
        |f| Value::Ratio(f.memory().limits().checkpoint_upper.as_ratio());
    CONFIG "ep_checkpoint_memory_recovery_lower_mark" Ratio "Down to this",
        |f| Value::Ratio(f.memory().limits().checkpoint_lower.as_ratio());
    CONFIG "ep_seqno_persistence_timeout" Seconds
        "How long a client waits for a seqno to become durable",
        |f| {
            let wait = *f.served.persistence_wait.read();
            wait.unwrap_or(f.node.waits.persistence).as_secs()
        };
    CONFIG "ep_range_scan_max_lifetime" Seconds "How long a range scan may take",
        |f| f.scan_lifetime().as_secs();
    CONFIG "ep_dcp_oso_backfill" Text
        "Whether streams that take any order get rows by key: auto, enabled or disabled",
        |f| f.served.dcp.settings.read().oso.name();
    CONFIG "ep_dcp_backfill_byte_limit" Bytes
        "Documents that the streams of one connection may have read ahead",
        |f| f.backfill_bytes_max();
    CONFIG "ep_dcp_backfill_in_progress_per_connection_limit" Count
        "Backfills of one connection that read at the same time", |f| f.backfills_at_once();
    CONFIG "ep_dcp_consumer_buffer_ratio" Ratio
        "Share of the quota that the windows of all consumers may take together",
        |f| Value::Ratio(f.served.dcp.settings.read().window_share());
    CONFIG "ep_dcp_flow_control_buffer_size" Bytes "Window of each consumer",
        |f| f.served.dcp.window_bytes(f.memory().quota());
    CONFIG "ep_dcp_idle_timeout" Seconds "How long a peer of a change stream may be silent",
        |f| {
            let silence = f.served.dcp.settings.read().idle_timeout;
            silence.unwrap_or(f.node.waits.silence).as_secs()
        };
    CONFIG "ep_dcp_noop_mandatory_for_v5_features" Bool
        "Whether streams with collections or extended attributes need noops",
        |f| f.served.dcp.settings.read().noops_mandatory;
};
