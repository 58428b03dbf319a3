//! The settings that a consumer negotiates with its producer before the first stream. It sends one setting at a
//! time and waits for each answer.

use wire::dcp::DcpControl;
use wire::{Envelope, Message, Opaque, Opcode, Status, TooLong};

/// Interval between the no-ops of the producer, in seconds.
pub const NOOP_INTERVAL_S: u32 = 20;

/// Makes the producer send prepares before they are decided, and accept acknowledgements of them.
const SYNC_WRITES: &[u8] = b"enable_sync_writes";
/// Makes the producer use one status for a missing stream and another one for a missing document.
const NEW_STATUSES: &[u8] = b"v7_dcp_status_codes";
const WINDOW: &[u8] = b"connection_buffer_size";
/// Opaque of the first setting. The others use the numbers after it.
const FIRST_OPAQUE: u32 = 6;

/// Names of settings, each with whether the connection must be closed if the producer refuses it.
const CONTROLS: [(&[u8], bool); 15] = [
    (DcpControl::BUCKET_UUID, true),
    (b"enable_noop", true),
    (b"set_noop_interval", true),
    (WINDOW, true),
    (b"set_priority", false),
    (b"supports_cursor_dropping_vulcan", false),
    (b"supports_hifi_MFU", false),
    (b"enable_expiry_opcode", false),
    (b"include_deleted_user_xattrs", false),
    (NEW_STATUSES, false),
    (b"max_marker_version", false),
    (b"flatbuffers_system_events", false),
    // Requests every version where the producer keeps them: a promoted replica has the same history.
    (b"change_streams", false),
    (b"consumer_name", false),
    (SYNC_WRITES, false),
];

/// Values of the settings that differ between consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// Bytes of the flow-control window.
    pub window_bytes: u32,
    /// Name of the consumer in topologies of durable writes; empty if it acknowledges no prepares.
    pub consumer: String,
    /// UUID that the producer's bucket must have; empty if any UUID is accepted.
    pub bucket_uuid: String,
}

impl ConsumerOptions {
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

/// Progress of the negotiation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Controls {
    next: usize,
    sync_writes: bool,
    new_statuses: bool,
}

impl Controls {
    /// Whether the producer answered all settings.
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

    /// Appends the next setting to `out`. Skips settings with an empty value.
    pub fn ask(&mut self, wishes: &ConsumerOptions, out: &mut Vec<u8>) -> Result<(), TooLong> {
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

    /// Appends the new size of the flow-control window. The producer must answer with success.
    pub fn resize(bytes: u32, out: &mut Vec<u8>) {
        let value = &bytes.to_string().into_bytes();
        let name = WINDOW;
        let sent = DcpControl { name, value }.encode(&Envelope::default(), out);
        sent.expect("a short name and a number fit a frame");
    }

    /// Whether a message is the answer to the setting that was sent last.
    pub fn expects(self, opcode: Opcode, opaque: Opaque) -> bool {
        !self.is_done() && opcode == Opcode::DCP_CONTROL && opaque == self.opaque()
    }

    /// Processes the answer to the setting that was sent last.
    ///
    /// # Errors
    /// The producer refused a required setting; the text names it, in one line.
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
    fn controls_skip_empty_values_and_require_needed_settings() {
        let wishes = ConsumerOptions {
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
