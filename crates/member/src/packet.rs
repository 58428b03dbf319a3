//! What nodes of a cluster say to each other beside their streams.

use cluster::{BucketId, Message, NodeId};
use serde::{Deserialize, Serialize};

/// A packet and the node that it is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) from: NodeId,
    pub(crate) packet: Packet,
}

/// May be lost, and come late.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Packet {
    /// Of the controller, and to it.
    Message(Message),
    /// The sender runs.
    Ping(Sent),
    /// The answer to [`Packet::Ping`] of a node that is followed.
    Confirm {
        /// When that went out.
        ping: Sent,
        /// What follows that node.
        buckets: Vec<Confirmed>,
    },
}

/// When a ping went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// The start of the node, whose clock began with it.
    pub(crate) boot: u64,
    /// Milliseconds of that clock.
    pub(crate) at_ms: u64,
    /// The revision of etcd up to which the node has taken over what was agreed on.
    #[serde(default)]
    pub(crate) taken: u64,
}

/// The copies of a bucket with an open stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Confirmed {
    pub(crate) bucket: BucketId,
    /// vBucket, term of its stream, and seqno that is on disk.
    pub(crate) copies: Vec<(u16, u64, u64)>,
}

impl Envelope {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("packets of ours have no maps")
    }

    /// Reads a packet; `None` for one of a version that is not known here.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
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
                ping: Sent {
                    boot: 5,
                    at_ms: 7,
                    taken: 9,
                },
                buckets: vec![confirmed],
            },
        };
        let bytes = sent.to_bytes();
        let read = Envelope::read(&bytes).expect("a packet");
        assert_eq!(read.from, NodeId(3));
        let Packet::Confirm { ping, buckets } = read.packet else {
            panic!("another packet");
        };
        assert_eq!((ping.boot, ping.at_ms, ping.taken), (5, 7, 9));
        assert_eq!(buckets[0].bucket, BucketId(u128::MAX - 1));
        assert_eq!(buckets[0].copies, [(0, 1, 2), (1023, u64::MAX, 0)]);
        assert!(Envelope::read(br#"{"from":1,"packet":{"dance":{}}}"#).is_none());
    }
}
