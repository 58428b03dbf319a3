//! Packets between nodes of a cluster, besides their streams.

use cluster::{Message, NodeId};
use copies::{Confirmed, ConfirmedPosition};
use serde::{Deserialize, Serialize};

/// A packet with its sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) from: NodeId,
    pub(crate) packet: Packet,
}

/// A packet. It may be lost or delayed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Packet {
    /// A message from or to the controller.
    Message(Message),
    /// The sender runs.
    Ping(PingStamp),
    /// The answer to [`Packet::Ping`] of a node that is followed.
    Confirm {
        /// Send time of the ping.
        ping: PingStamp,
        /// Version since which changes are included; 0 for all copies.
        #[serde(default)]
        since: u64,
        /// Position after these changes.
        #[serde(default)]
        at: ConfirmedPosition,
        /// Copies that follow that node.
        buckets: Vec<Confirmed>,
    },
}

/// Send time of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PingStamp {
    /// Number of the node's start, at which its clock began.
    pub(crate) boot: u64,
    /// Milliseconds of that clock.
    pub(crate) at_ms: u64,
    /// Revision of etcd up to which the node has applied the agreed state.
    #[serde(default)]
    pub(crate) taken: u64,
    /// Position of what the node knows of the other node's confirmations.
    #[serde(default)]
    pub(crate) known: ConfirmedPosition,
}

impl Envelope {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("packets of ours have no maps")
    }

    /// Reads a packet; `None` for a packet of an unknown version.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use cluster::BucketId;

    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let confirmed = Confirmed {
            bucket: BucketId(u128::MAX - 1),
            copies: vec![(0, 1, 2), (1023, u64::MAX, 0)],
        };
        let sent = Envelope {
            from: NodeId(3),
            packet: Packet::Confirm {
                ping: PingStamp {
                    boot: 5,
                    at_ms: 7,
                    taken: 9,
                    known: ConfirmedPosition::default(),
                },
                since: 4,
                at: ConfirmedPosition {
                    boot: 6,
                    version: 8,
                },
                buckets: vec![confirmed],
            },
        };
        let bytes = sent.to_bytes();
        let read = Envelope::read(&bytes).expect("a packet");
        assert_eq!(read.from, NodeId(3));
        let Packet::Confirm {
            ping,
            since,
            at,
            buckets,
        } = read.packet
        else {
            panic!("another packet");
        };
        assert_eq!((ping.boot, ping.at_ms, ping.taken), (5, 7, 9));
        assert_eq!((since, at.boot, at.version), (4, 6, 8));
        assert_eq!(buckets[0].bucket, BucketId(u128::MAX - 1));
        assert_eq!(buckets[0].copies, [(0, 1, 2), (1023, u64::MAX, 0)]);
        let of_older_node = br#"{"from":1,"packet":{"ping":{"boot":1,"at_ms":2}}}"#;
        assert!(Envelope::read(of_older_node).is_some());
        assert!(Envelope::read(br#"{"from":1,"packet":{"dance":{}}}"#).is_none());
    }
}
