//! Settings of a consumer by DCP_CONTROL.

use engine::dcp::Advances;
use registry::dcp::{MarkerVersion, NegotiatedSettings, Priority};
use wire::dcp::DcpControl;
use wire::{Feature, FeatureSet, Status};

use crate::outcome::Refusal;

/// Range of the noop interval that a consumer may set, in seconds.
const NOOP_INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=36_000.0;
/// Bytes of a consumer's name at most.
const NAME_BYTES_MAX: usize = 200;

/// Change that a control makes beyond [`NegotiatedSettings`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ControlChange {
    None,
    Noop(bool),
    NoopIntervalNs(u64),
    Window(u32),
    SequentialBackfills(bool),
}

fn flag(control: &DcpControl<'_>) -> Result<bool, Refusal> {
    control
        .flag()
        .ok_or_else(|| Refusal::invalid("the value is neither true nor false"))
}

/// Reads the value of a control that can only be switched on.
fn only_true(control: &DcpControl<'_>) -> Result<bool, Refusal> {
    if flag(control)? {
        return Ok(true);
    }
    Err(Refusal::invalid("this can only be switched on"))
}

fn text<'a>(control: &DcpControl<'a>) -> Result<&'a str, Refusal> {
    std::str::from_utf8(control.value).map_err(|_| Refusal::invalid("the value is no text"))
}

/// Applies one control to the settings of a consumer.
///
/// Source: engine specification section 6. Test: `dcp_control` of the integration tests.
pub(crate) fn apply(
    agreed: &mut NegotiatedSettings,
    control: &DcpControl<'_>,
    features: FeatureSet,
) -> Result<ControlChange, Refusal> {
    match control.name {
        b"enable_noop" => return Ok(ControlChange::Noop(flag(control)?)),
        b"set_noop_interval" => return noop_interval(control),
        b"connection_buffer_size" => {
            let bytes = control.number();
            return Ok(ControlChange::Window(bytes.ok_or_else(|| {
                Refusal::invalid("the size is no 32-bit number")
            })?));
        }
        b"set_priority" => agreed.priority = priority(control)?,
        b"force_value_compression" => {
            let on = flag(control)?;
            let snappy =
                features.contains(Feature::SNAPPY) || features.contains(Feature::SNAPPY_EVERYWHERE);
            if on && !snappy {
                return Err(Refusal::invalid("Snappy was not negotiated"));
            }
            agreed.compress = on;
        }
        b"supports_cursor_dropping" | b"supports_cursor_dropping_vulcan" => {
            agreed.cursor_dropping = flag(control)?;
        }
        b"supports_hifi_MFU" => agreed.hifi_mfu = flag(control)?,
        b"send_stream_end_on_client_close_stream" => agreed.end_on_close = only_true(control)?,
        b"enable_expiry_opcode" => {
            agreed.expiry_opcode = flag(control)?;
            agreed.delete_times |= agreed.expiry_opcode;
        }
        _ => return apply_newer(agreed, control),
    }
    Ok(ControlChange::None)
}

fn apply_newer(
    agreed: &mut NegotiatedSettings,
    control: &DcpControl<'_>,
) -> Result<ControlChange, Refusal> {
    match control.name {
        b"enable_stream_id" => {
            if agreed.sync_writes {
                return Err(Refusal::invalid("stream ids do not go with sync writes"));
            }
            agreed.stream_ids = only_true(control)?;
        }
        b"enable_sync_writes" => {
            if agreed.stream_ids {
                return Err(Refusal::invalid("sync writes do not go with stream ids"));
            }
            agreed.sync_writes = only_true(control)?;
            if agreed.marker == MarkerVersion::V1 {
                agreed.marker = MarkerVersion::V2_0;
            }
        }
        b"consumer_name" => {
            let name = text(control)?;
            if name.len() > NAME_BYTES_MAX {
                return Err(Refusal::invalid("the name is too long"));
            }
            name.clone_into(&mut agreed.consumer_name);
        }
        b"max_marker_version" => match control.value {
            b"2.0" => agreed.marker = MarkerVersion::V2_0,
            b"2.2" => agreed.marker = MarkerVersion::V2_2,
            _ => return Err(Refusal::invalid("no such version of the snapshot marker")),
        },
        b"include_deleted_user_xattrs" => agreed.deleted_user_xattrs = only_true(control)?,
        b"v7_dcp_status_codes" => agreed.new_statuses = only_true(control)?,
        b"backfill_order" => match control.value {
            b"round-robin" | b"sequential" => {
                agreed.sequential_backfill = control.value == b"sequential";
                return Ok(ControlChange::SequentialBackfills(
                    agreed.sequential_backfill,
                ));
            }
            _ => return Err(Refusal::invalid("no such order")),
        },
        b"enable_out_of_order_snapshots" => {
            agreed.out_of_order = match control.value {
                b"true" => Some(Advances::Untold),
                b"true_with_seqno_advanced" => Some(Advances::Told),
                b"false" => None,
                _ => return Err(Refusal::invalid("the value is neither true nor false")),
            };
        }
        b"flatbuffers_system_events" => agreed.flat_events = only_true(control)?,
        b"change_streams" => agreed.change_streams = only_true(control)?,
        b"cache_transfer" | b"stream_buffer_size" => {
            return Err(Refusal::because(
                Status::NOT_SUPPORTED,
                "this setting is not served by this node",
            ));
        }
        _ => return Err(Refusal::invalid("no such setting")),
    }
    Ok(ControlChange::None)
}

fn noop_interval(control: &DcpControl<'_>) -> Result<ControlChange, Refusal> {
    let seconds = control
        .seconds()
        .filter(|seconds| NOOP_INTERVAL_S.contains(seconds))
        .ok_or_else(|| Refusal::invalid("the interval is out of range"))?;
    Ok(ControlChange::NoopIntervalNs(
        std::time::Duration::from_secs_f64(seconds).as_nanos() as u64,
    ))
}

fn priority(control: &DcpControl<'_>) -> Result<Priority, Refusal> {
    match control.value {
        b"high" => Ok(Priority::High),
        b"medium" => Ok(Priority::Medium),
        b"low" => Ok(Priority::Low),
        _ => Err(Refusal::invalid("no such priority")),
    }
}
