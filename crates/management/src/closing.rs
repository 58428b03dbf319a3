//! The end of the node.

use tokio::sync::watch;

/// Returns once the node stops; a sender that is gone means the same.
pub(super) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await);
}
