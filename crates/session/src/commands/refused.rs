//! Opcodes that this node knows and does not serve, with the reasons.

use wire::Opcode;

/// Returns the reason why an opcode is not served: one sentence without the full stop, for the context of the refusal
/// and for the compatibility page. `None` for an opcode that is served, removed or unknown.
pub(crate) fn reason(opcode: Opcode) -> Option<&'static str> {
    Some(match opcode {
        Opcode::IOCTL_GET => {
            "There is nothing to read: no traces are kept, and statistics tell what the node does"
        }
        Opcode::CONFIG_VALIDATE => {
            "The configuration is a TOML file, which is judged when the node starts"
        }
        Opcode::CONFIG_RELOAD => {
            "A client does not make the node read its files again; SIGHUP does"
        }
        Opcode::SHUTDOWN => {
            "A client does not stop the node; SIGTERM does, and waits until all is on disk"
        }
        Opcode::SET_BUCKET_THROTTLE_PROPERTIES => "The throughput of buckets is not limited",
        Opcode::SET_BUCKET_DATA_LIMIT_EXCEEDED => "Nothing limits a bucket but its memory quota",
        Opcode::SET_ACTIVE_ENCRYPTION_KEYS | Opcode::PRUNE_ENCRYPTION_KEYS => {
            "Keys of encryption at rest are given when the node is started"
        }
        Opcode::REGISTER_AUTH_TOKEN => "Users log in with passwords, not with tokens",
        Opcode::SET_CHRONICLE_AUTH_TOKEN => {
            "No cluster manager runs beside the node that would need a token"
        }
        Opcode::DCP_SEQNO_ADVANCED => {
            "It is for streams of some collections, and a consumer here takes whole vBuckets"
        }
        Opcode::DCP_OSO_SNAPSHOT => {
            "A consumer here does not ask for changes in another order than that of their seqnos"
        }
        Opcode::DCP_CACHE_TRANSFER | Opcode::DCP_CACHE_TRANSFER_END => {
            "Which values are in memory is not handed over: a replica evicts by itself"
        }
        Opcode::CREATE_BUCKET | Opcode::DELETE_BUCKET | Opcode::VALIDATE_BUCKET_CONFIG => {
            "Buckets are made, judged and dropped over HTTP (/pools/default/buckets), which keeps their settings"
        }
        Opcode::PAUSE_BUCKET | Opcode::RESUME_BUCKET => {
            "There is no store of objects in which a paused bucket could be kept"
        }
        Opcode::DISABLE_TRAFFIC => {
            "A client does not shut out the clients of others; operations are refused only while documents are loaded"
        }
        Opcode::IFCONFIG => "Ports are given when the node starts, and tell no other node anything",
        Opcode::SET_CLUSTER_CONFIG => {
            "The node makes the maps of its buckets itself, from its own address and its replicas'"
        }
        Opcode::GET_KEYS => {
            "Keys are not kept in their order in memory; RANGE_SCAN_CREATE gives them in order from the disk"
        }
        Opcode::SNAPSHOT_TRANSFER_0
        | Opcode::SNAPSHOT_TRANSFER_1
        | Opcode::SNAPSHOT_TRANSFER_2
        | Opcode::SNAPSHOT_TRANSFER_3 => {
            "A replica begins with a stream of changes, not with files"
        }
        Opcode::SET_CTRL_TOKEN | Opcode::GET_CTRL_TOKEN => {
            "No cluster manager takes turns with another one that a token would fence off"
        }
        Opcode::UPDATE_EXTERNAL_USER_PERMISSIONS | Opcode::AUTH_PROVIDER => {
            "All users are the node's own: none come from a directory elsewhere"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use wire::{OpcodeInfo, OpcodeSupport};

    use super::*;
    use crate::commands::find;

    #[test]
    fn each_opcode_is_served_or_refused_with_a_reason() {
        for info in OpcodeInfo::all() {
            let known = info.standing == OpcodeSupport::Known;
            let (served, refused) = (find(info.opcode).is_some(), reason(info.opcode).is_some());
            assert_eq!(known, served != refused, "{}", info.name);
            assert!(!(served && refused), "{}", info.name);
        }
    }
}
