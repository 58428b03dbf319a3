//! The node's use of client certificates.

use identity::{CertificateSettings, CertificateState};
use registry::ClusterSettings;
use tls::{Ask, Tls};

use crate::config::NodeConfig;

/// Returns the settings at a start: the configuration, or else the last setting of management.
pub(super) fn at_start(config: &NodeConfig, kept: &ClusterSettings) -> CertificateSettings {
    let whole_name = CertificateSettings::by_common_name(CertificateState::Disable);
    let mut settings = kept.client_certificates.clone().unwrap_or_default();
    if let Some(state) = config.client_cert {
        settings.state = state;
    }
    if settings.state != CertificateState::Disable && settings.prefixes.is_empty() {
        settings.prefixes = whole_name.prefixes;
    }
    settings
}

/// Checks that an authority of client certificates is known, if certificates are used.
///
/// # Errors
/// No authority is known; with advice in one line.
pub(super) fn check(tls: &Tls, settings: &CertificateSettings) -> Result<(), String> {
    match ask(settings) {
        Ask::Nothing => Ok(()),
        Ask::Optional | Ask::Mandatory => tls.can_ask(),
    }
}

/// Returns how a handshake asks for a client certificate.
pub(super) fn ask(settings: &CertificateSettings) -> Ask {
    match settings.state {
        CertificateState::Disable => Ask::Nothing,
        CertificateState::Enable => Ask::Optional,
        CertificateState::Mandatory => Ask::Mandatory,
    }
}
