//! Logins of all ports: preparation of their keys, and the log of failed ones.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use identity::Identity;
use registry::Registry;

/// Interval between two looks for due log lines.
const PERIOD: Duration = Duration::from_millis(500);

/// Derives the keys of all users in a separate thread, so that the start does not wait for it. If there is no thread,
/// they are derived at the first use.
pub(super) fn prepare(identity: &Arc<Identity>) {
    let identity = Arc::clone(identity);
    let spawned = thread::Builder::new()
        .name("scram-keys".into())
        .spawn(move || identity.prepare());
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to derive credentials in; first logins will be slower");
    }
}

/// Logs wrong logins that no later login would log, for as long as the node serves.
pub(super) async fn watch(node: Arc<Registry>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.tell_failed_logins();
    }
}
