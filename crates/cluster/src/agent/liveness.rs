//! The decision whether an active copy may serve.

use crate::map::{Chain, NodeId};
use crate::quorum::majority;
use crate::settings::Settings;

/// Whether an active copy, the first in `chain`, may serve at `now_ms`: the lease of its node lasts until
/// `lease_until_ms`, or W - 1 replicas confirmed its term.
///
/// `confirmed` has, for each replica, the send time of the message with which it last confirmed the copy's
/// term. All times are of the node's own clock, which does not jump, and runs while the machine sleeps.
pub fn may_serve(
    settings: &Settings,
    now_ms: u64,
    lease_until_ms: u64,
    chain: &Chain,
    confirmed: impl Fn(NodeId) -> Option<u64>,
) -> bool {
    let fresh = |node: &&NodeId| {
        confirmed(**node).is_some_and(|sent_ms| now_ms < sent_ms + settings.confirmed_ms)
    };
    let replicas = chain.nodes().iter().skip(1);
    now_ms < lease_until_ms || replicas.filter(fresh).count() + 1 >= majority(chain.nodes().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f3_replicas_keep_an_active_copy_serving_without_a_lease() {
        let settings = Settings::default();
        let chain = Chain::new(&[NodeId(1), NodeId(2), NodeId(3), NodeId(4)]).unwrap();
        let serves = |now_ms, lease_until_ms, confirmed: [Option<u64>; 3]| {
            let at = |node: NodeId| confirmed[usize::from(node.0) - 2];
            may_serve(&settings, now_ms, lease_until_ms, &chain, at)
        };
        assert!(serves(1_000, 1_001, [None; 3]));
        assert!(!serves(1_000, 1_000, [None, Some(1_000), None]));
        assert!(serves(1_000, 0, [Some(1), Some(900), None]));
        assert!(!serves(1_000, 0, [Some(0), Some(900), None]));
    }
}
