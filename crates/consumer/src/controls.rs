//! What a consumer asks of its producer before its first stream: one setting at a time, each is
//! answered before the next is sent.

use wire::dcp::DcpControl;
use wire::{Envelope, Message, Opaque, Opcode, Status, TooLong};

/// Seconds between the no-ops that the producer is to send.
pub const NOOP_INTERVAL_S: u32 = 20;

/// With it, prepares come before they are decided, and are acknowledged.
const SYNC_WRITES: &[u8] = b"enable_sync_writes";
/// With it, streams that are not there are told from documents that are not there.
const NEW_STATUSES: &[u8] = b"v7_dcp_status_codes";
const WINDOW: &[u8] = b"connection_buffer_size";
/// Opaque of the first setting; those of the others follow.
const FIRST_OPAQUE: u32 = 6;

/// Settings, and whether the connection is of no use where they are refused.
const CONTROLS: [(&[u8], bool); 16] = [
    (DcpControl::BUCKET_UUID, true),
    (b"enable_noop", true),
    (b"set_noop_interval", true),
    (WINDOW, true),
    (b"set_priority", false),
    (b"supports_cursor_dropping_vulcan", false),
    (b"supports_hifi_MFU", false),
    (b"send_stream_end_on_client_close_stream", false),
    (b"enable_expiry_opcode", false),
    (b"include_deleted_user_xattrs", false),
    (NEW_STATUSES, false),
    (b"max_marker_version", false),
    (b"flatbuffers_system_events", false),
    // Every version where they are kept: a promoted replica has the same history.
    (b"change_streams", false),
    (b"consumer_name", false),
    (SYNC_WRITES, false),
];

/// What differs from one consumer to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Bytes of the flow-control window.
    pub window_bytes: u32,
    /// Name in the topologies of durable writes; empty for a consumer that acknowledges none.
    pub consumer: String,
    /// UUID of the bucket that the producer must have; empty for any of its name.
    pub bucket_uuid: String,
}

impl Wishes {
    fn value(&self, name: &[u8]) -> Vec<u8> {
        match name {
            b"set_noop_interval" => NOOP_INTERVAL_S.to_string().into_bytes(),
            WINDOW => self.window_bytes.to_string().into_bytes(),
            DcpControl::BUCKET_UUID => self.bucket_uuid.clone().into_bytes(),
            b"consumer_name" => self.consumer.clone().into_bytes(),
            b"set_priority" => b"high".to_vec(),
            b"max_marker_version" => b"2.2".to_vec(),
            _ => b"true".to_vec(),
        }
    }
}

/// The settings under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Controls {
    next: usize,
    sync_writes: bool,
    new_statuses: bool,
}

impl Controls {
    /// Whether all were answered.
    pub fn is_done(self) -> bool {
        self.next >= CONTROLS.len()
    }

    /// Whether the producer agreed to send prepares.
    pub fn sync_writes(self) -> bool {
        self.sync_writes
    }

    /// Whether the producer knows the newer statuses of streams.
    pub fn new_statuses(self) -> bool {
        self.new_statuses
    }

    fn opaque(self) -> Opaque {
        Opaque((FIRST_OPAQUE + self.next as u32).to_be_bytes())
    }

    /// Appends the next setting; one with nothing to say is left out.
    pub fn ask(&mut self, wishes: &Wishes, out: &mut Vec<u8>) -> Result<(), TooLong> {
        while let Some((name, _)) = CONTROLS.get(self.next) {
            let value = &wishes.value(name);
            if value.is_empty() {
                self.next += 1;
                continue;
            }
            let envelope = Envelope {
                opaque: self.opaque(),
                ..Envelope::default()
            };
            return DcpControl { name, value }.encode(&envelope, out);
        }
        Ok(())
    }

    /// Appends the size of a window that changed; the answer must be a success.
    pub fn resize(bytes: u32, out: &mut Vec<u8>) {
        let value = &bytes.to_string().into_bytes();
        let name = WINDOW;
        let sent = DcpControl { name, value }.encode(&Envelope::default(), out);
        sent.expect("a short name and a number fit a frame");
    }

    /// Whether an answer is that to the setting that was sent last.
    pub fn expects(self, opcode: Opcode, opaque: Opaque) -> bool {
        !self.is_done() && opcode == Opcode::DCP_CONTROL && opaque == self.opaque()
    }

    /// Takes the answer to the setting that was sent last.
    ///
    /// # Errors
    /// What was refused, one line.
    pub fn answered(&mut self, status: Status) -> Result<(), String> {
        let Some((name, needed)) = CONTROLS.get(self.next) else {
            return Ok(());
        };
        let ok = status == Status::SUCCESS;
        if *needed && !ok {
            let (name, why) = (String::from_utf8_lossy(name), status.description());
            return Err(format!("{name} was refused: {why}"));
        }
        self.sync_writes |= ok && *name == SYNC_WRITES;
        self.new_statuses |= ok && *name == NEW_STATUSES;
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_value_is_left_out_and_what_is_needed_must_be_granted() {
        let wishes = Wishes {
            window_bytes: 7,
            consumer: String::new(),
            bucket_uuid: "ab".into(),
        };
        let mut controls = Controls::default();
        let mut asked = Vec::new();
        while !controls.is_done() {
            let mut out = Vec::new();
            controls.ask(&wishes, &mut out).unwrap();
            asked.push(String::from_utf8_lossy(&out[24..]).into_owned());
            let status = if asked.len() > 4 {
                Status::EINVAL
            } else {
                Status::SUCCESS
            };
            controls.answered(status).unwrap();
        }
        assert!(asked.contains(&"connection_buffer_size7".to_owned()));
        assert!(asked.contains(&"settee_bucket_uuidab".to_owned()));
        assert_eq!(asked.len(), CONTROLS.len() - 1, "{asked:?}");
        assert!(!controls.sync_writes() && !controls.new_statuses());
        let refused = Controls::default().answered(Status::EINVAL);
        assert_eq!(
            refused,
            Err(format!(
                "settee_bucket_uuid was refused: {}",
                Status::EINVAL.description()
            ))
        );
    }
}
