//! Settings of a bucket's change streams that can be changed while it runs.

use std::time::Duration;

use super::oso::OsoBackfill;

/// What each setting is until it is changed is what `Default` gives.
#[derive(Debug)]
pub struct DcpSettings {
    /// Whether consumers that support OSO snapshots get them.
    pub oso: OsoBackfill,
    /// Whether a consumer of collections or extended attributes must enable noops, too.
    pub noops_mandatory: bool,
    /// How long a peer may be silent; `None` for what the node says.
    pub idle_timeout: Option<Duration>,
    /// Window of each consumer; `None` for a share of the quota.
    pub window_bytes: Option<u32>,
    /// The share of a quota that the windows of all consumers may take, in parts of a million.
    pub window_share_ppm: u32,
}

/// A twentieth.
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
    /// What the windows of all consumers together may be of a quota.
    pub fn windows_of(&self, quota: u64) -> u64 {
        let bytes = u128::from(quota) * u128::from(self.window_share_ppm) / 1_000_000;
        u64::try_from(bytes).unwrap_or(quota)
    }

    /// The share of a quota that the windows of all consumers may take.
    pub fn window_share(&self) -> f64 {
        f64::from(self.window_share_ppm) / 1e6
    }
}
