//! What client certificates are to the node.

use identity::{CertificateSettings, CertificateState};
use registry::ClusterSettings;
use tls::{Ask, Tls};

use crate::config::NodeConfig;

/// What holds at a start: what the configuration says, else what management said last.
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

/// Whether certificates of clients can be judged, if there are to be any.
///
/// # Errors
/// No authority of theirs is known; what to do, one line.
pub(super) fn check(tls: &Tls, settings: &CertificateSettings) -> Result<(), String> {
    match ask(settings) {
        Ask::Nothing => Ok(()),
        Ask::Optional | Ask::Mandatory => tls.can_ask(),
    }
}

/// What a handshake asks for.
pub(super) fn ask(settings: &CertificateSettings) -> Ask {
    match settings.state {
        CertificateState::Disable => Ask::Nothing,
        CertificateState::Enable => Ask::Optional,
        CertificateState::Mandatory => Ask::Mandatory,
    }
}
