//! The validity period of certificates.

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Checks whether a certificate is valid at present.
///
/// # Errors
/// It is not valid, or cannot be parsed; the reason.
pub(crate) fn check(certificate: &CertificateDer<'_>) -> Result<(), String> {
    let read = X509Certificate::from_der(certificate);
    let (_, read) = read.map_err(|error| format!("a certificate is damaged: {error}"))?;
    let validity = read.validity();
    let now_s = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    let about = |what: &str, at| format!("the certificate of {} {what} {at}", read.subject());
    if validity.not_after.timestamp() < now_s {
        return Err(about("expired on", validity.not_after));
    }
    if validity.not_before.timestamp() > now_s {
        return Err(about("is not valid before", validity.not_before));
    }
    Ok(())
}
