//! What a consumer sets with DCP_CONTROL.

use engine::dcp::Advances;
use wire::dcp::{DcpControl, OpenFlags};
use wire::{Feature, FeatureSet, Status};

use crate::session::Refusal;

/// Seconds between noops that a consumer may ask for.
const NOOP_INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=36_000.0;
/// Longest name of a consumer.
const NAME_BYTES_MAX: usize = 200;

/// How eagerly a connection is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

impl Priority {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// Bytes that a connection sends in one turn.
    pub(crate) fn turn_bytes(self) -> usize {
        match self {
            Self::High => 256 << 10,
            Self::Medium => 128 << 10,
            Self::Low => 32 << 10,
        }
    }
}

/// In which form documents are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MarkerVersion {
    #[default]
    V1,
    V2_0,
    V2_2,
}

/// Everything that is agreed on.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of the protocol"
)]
pub(crate) struct Settings {
    pub(crate) priority: Priority,
    pub(crate) compress: bool,
    pub(crate) cursor_dropping: bool,
    pub(crate) hifi_mfu: bool,
    pub(crate) end_on_close: bool,
    pub(crate) expiry_opcode: bool,
    /// Deletions carry their time, too: where the connection was opened with delete times, and once expirations were
    /// asked for, which always carry it.
    pub(crate) delete_times: bool,
    pub(crate) stream_ids: bool,
    pub(crate) sync_writes: bool,
    pub(crate) marker: MarkerVersion,
    pub(crate) deleted_user_xattrs: bool,
    pub(crate) new_statuses: bool,
    pub(crate) consumer_name: String,
    pub(crate) sequential_backfill: bool,
    /// It takes snapshots in any order.
    pub(crate) out_of_order: Option<Advances>,
    /// System events are told in the form of FlatBuffers.
    pub(crate) flat_events: bool,
    /// It takes every version where they are kept.
    pub(crate) change_streams: bool,
}

/// What a control changes beyond [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    None,
    Noop(bool),
    NoopIntervalNs(u64),
    Window(u32),
    SequentialBackfills(bool),
}

fn invalid(reason: &'static str) -> Refusal {
    Refusal::because(Status::EINVAL, reason)
}

fn flag(control: &DcpControl<'_>) -> Result<bool, Refusal> {
    control
        .flag()
        .ok_or_else(|| invalid("the value is neither true nor false"))
}

/// For what can only be switched on.
fn only_true(control: &DcpControl<'_>) -> Result<bool, Refusal> {
    if flag(control)? {
        return Ok(true);
    }
    Err(invalid("this can only be switched on"))
}

fn text<'a>(control: &DcpControl<'a>) -> Result<&'a str, Refusal> {
    std::str::from_utf8(control.value).map_err(|_| invalid("the value is no text"))
}

impl Settings {
    /// What a connection begins with.
    pub(crate) fn of(flags: OpenFlags) -> Self {
        Self {
            delete_times: flags.contains(OpenFlags::INCLUDE_DELETE_TIMES),
            ..Self::default()
        }
    }

    /// Applies one control.
    ///
    /// Source: engine specification section 6. Test: `dcp_control` of the integration tests.
    pub(crate) fn apply(
        &mut self,
        control: &DcpControl<'_>,
        features: FeatureSet,
    ) -> Result<Change, Refusal> {
        match control.name {
            b"enable_noop" => return Ok(Change::Noop(flag(control)?)),
            b"set_noop_interval" => return noop_interval(control),
            b"connection_buffer_size" => {
                let bytes = control.number();
                return Ok(Change::Window(
                    bytes.ok_or_else(|| invalid("the size is no 32-bit number"))?,
                ));
            }
            b"set_priority" => self.priority = priority(control)?,
            b"force_value_compression" => {
                let on = flag(control)?;
                let snappy = features.contains(Feature::SNAPPY)
                    || features.contains(Feature::SNAPPY_EVERYWHERE);
                if on && !snappy {
                    return Err(invalid("Snappy was not negotiated"));
                }
                self.compress = on;
            }
            b"supports_cursor_dropping" | b"supports_cursor_dropping_vulcan" => {
                self.cursor_dropping = flag(control)?;
            }
            b"supports_hifi_MFU" => self.hifi_mfu = flag(control)?,
            b"send_stream_end_on_client_close_stream" => self.end_on_close = only_true(control)?,
            b"enable_expiry_opcode" => {
                self.expiry_opcode = flag(control)?;
                self.delete_times |= self.expiry_opcode;
            }
            _ => return self.apply_newer(control),
        }
        Ok(Change::None)
    }

    fn apply_newer(&mut self, control: &DcpControl<'_>) -> Result<Change, Refusal> {
        match control.name {
            b"enable_stream_id" => {
                if self.sync_writes {
                    return Err(invalid("stream ids do not go with sync writes"));
                }
                self.stream_ids = only_true(control)?;
            }
            b"enable_sync_writes" => {
                if self.stream_ids {
                    return Err(invalid("sync writes do not go with stream ids"));
                }
                self.sync_writes = only_true(control)?;
                if self.marker == MarkerVersion::V1 {
                    self.marker = MarkerVersion::V2_0;
                }
            }
            b"consumer_name" => {
                let name = text(control)?;
                if name.len() > NAME_BYTES_MAX {
                    return Err(invalid("the name is too long"));
                }
                name.clone_into(&mut self.consumer_name);
            }
            b"max_marker_version" => match control.value {
                b"2.0" => self.marker = MarkerVersion::V2_0,
                b"2.2" => self.marker = MarkerVersion::V2_2,
                _ => return Err(invalid("no such version of the snapshot marker")),
            },
            b"include_deleted_user_xattrs" => self.deleted_user_xattrs = only_true(control)?,
            b"v7_dcp_status_codes" => self.new_statuses = only_true(control)?,
            b"backfill_order" => match control.value {
                b"round-robin" | b"sequential" => {
                    self.sequential_backfill = control.value == b"sequential";
                    return Ok(Change::SequentialBackfills(self.sequential_backfill));
                }
                _ => return Err(invalid("no such order")),
            },
            b"enable_out_of_order_snapshots" => {
                self.out_of_order = match control.value {
                    b"true" => Some(Advances::Untold),
                    b"true_with_seqno_advanced" => Some(Advances::Told),
                    b"false" => None,
                    _ => return Err(invalid("the value is neither true nor false")),
                };
            }
            b"flatbuffers_system_events" => self.flat_events = only_true(control)?,
            b"change_streams" => self.change_streams = only_true(control)?,
            b"cache_transfer" | b"stream_buffer_size" => {
                return Err(Refusal::because(
                    Status::NOT_SUPPORTED,
                    "this setting is not served by this node",
                ));
            }
            _ => return Err(invalid("no such setting")),
        }
        Ok(Change::None)
    }
}

fn noop_interval(control: &DcpControl<'_>) -> Result<Change, Refusal> {
    let seconds = control
        .seconds()
        .filter(|seconds| NOOP_INTERVAL_S.contains(seconds))
        .ok_or_else(|| invalid("the interval is out of range"))?;
    Ok(Change::NoopIntervalNs(
        std::time::Duration::from_secs_f64(seconds).as_nanos() as u64,
    ))
}

fn priority(control: &DcpControl<'_>) -> Result<Priority, Refusal> {
    match control.value {
        b"high" => Ok(Priority::High),
        b"medium" => Ok(Priority::Medium),
        b"low" => Ok(Priority::Low),
        _ => Err(invalid("no such priority")),
    }
}
