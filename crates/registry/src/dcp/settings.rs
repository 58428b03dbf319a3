//! Settings of a bucket's change streams that can be changed while it runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::oso::OsoSetting;

/// What each setting is until it is changed is what `Default` gives.
#[derive(Debug)]
pub struct DcpSettings {
    /// Whether consumers that support OSO snapshots get them.
    pub oso: OsoSetting,
    noops_mandatory: AtomicBool,
    /// How long a peer may be silent; zero for what the node says.
    idle_timeout_s: AtomicU32,
    /// Window of each consumer; zero for a share of the quota.
    window_bytes: AtomicU32,
    /// That share, of a million.
    window_share_ppm: AtomicU32,
}

/// A twentieth.
const WINDOW_SHARE_PPM: u32 = 50_000;

impl Default for DcpSettings {
    fn default() -> Self {
        Self {
            oso: OsoSetting::default(),
            noops_mandatory: AtomicBool::new(true),
            idle_timeout_s: AtomicU32::new(0),
            window_bytes: AtomicU32::new(0),
            window_share_ppm: AtomicU32::new(WINDOW_SHARE_PPM),
        }
    }
}

impl DcpSettings {
    /// Whether a consumer of collections or extended attributes must enable noops, too.
    pub fn noops_are_mandatory(&self) -> bool {
        self.noops_mandatory.load(Ordering::Relaxed)
    }

    /// Sets whether noops are mandatory.
    pub fn set_noops_mandatory(&self, mandatory: bool) {
        self.noops_mandatory.store(mandatory, Ordering::Relaxed);
    }

    /// How long a peer may be silent where that was changed.
    pub fn idle_timeout(&self) -> Option<Duration> {
        let seconds = self.idle_timeout_s.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Sets how long a peer may be silent, seconds; 0 for what the node says.
    pub fn set_idle_timeout_s(&self, seconds: u32) {
        self.idle_timeout_s.store(seconds, Ordering::Relaxed);
    }

    /// Window of each consumer where that was changed.
    pub fn window_bytes(&self) -> Option<u32> {
        Some(self.window_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the window of each consumer; 0 for a share of the quota.
    pub fn set_window_bytes(&self, bytes: u32) {
        self.window_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What the windows of all consumers together may be of a quota.
    pub fn windows_of(&self, quota: u64) -> u64 {
        let share = u128::from(self.window_share_ppm.load(Ordering::Relaxed));
        let bytes = u128::from(quota) * share / 1_000_000;
        u64::try_from(bytes).unwrap_or(quota)
    }

    /// The share of a quota that the windows of all consumers may take.
    pub fn window_share(&self) -> f64 {
        f64::from(self.window_share_ppm.load(Ordering::Relaxed)) / 1e6
    }

    /// A share in parts of a million.
    pub fn set_window_share(&self, ppm: u32) {
        self.window_share_ppm.store(ppm, Ordering::Relaxed);
    }
}
