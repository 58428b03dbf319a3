//! The end of the node, as HTTP tasks wait for it.

use tokio::sync::watch;

/// Returns once the node stops. A dropped sender means the same.
pub(super) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await);
}
