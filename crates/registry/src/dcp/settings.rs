//! Settings of a bucket's change streams that can be changed while it runs.

use std::time::Duration;

use super::oso::OsoBackfill;

/// Settings of the change streams of a bucket. `Default` returns the initial values.
#[derive(Debug)]
pub struct DcpSettings {
    /// Which consumers that support OSO snapshots get them.
    pub oso: OsoBackfill,
    /// Whether a consumer of collections or extended attributes must enable noops, too.
    pub noops_mandatory: bool,
    /// Longest silence of a peer; `None` for the setting of the node.
    pub idle_timeout: Option<Duration>,
    /// Window of each consumer, bytes; `None` for a share of the quota.
    pub window_bytes: Option<u32>,
    /// Share of a quota that the windows of all consumers may take, parts per million.
    pub window_share_ppm: u32,
}

/// Default share of a quota for windows: a twentieth, in parts per million.
const WINDOW_SHARE_PPM: u32 = 50_000;

impl Default for DcpSettings {
    fn default() -> Self {
        Self {
            oso: OsoBackfill::default(),
            noops_mandatory: true,
            idle_timeout: None,
            window_bytes: None,
            window_share_ppm: WINDOW_SHARE_PPM,
        }
    }
}

impl DcpSettings {
    /// Returns the bytes that the windows of all consumers together may take of a quota.
    pub fn windows_of(&self, quota: u64) -> u64 {
        let bytes = u128::from(quota) * u128::from(self.window_share_ppm) / 1_000_000;
        u64::try_from(bytes).unwrap_or(quota)
    }

    /// Returns the share of a quota that the windows of all consumers may take.
    pub fn window_share(&self) -> f64 {
        f64::from(self.window_share_ppm) / 1e6
    }
}
