//! An authority, and certificates of clients that it signs.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate with its key.
pub(in crate::node::tests) struct Made {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: KeyPair,
}

impl Made {
    pub(super) fn pem(&self) -> String {
        pem(&self.certificate)
    }
}

pub(in crate::node::tests) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        Self::until(name, 2100)
    }

    /// Creates an authority that is valid from 2000 to `year`.
    pub(super) fn until(name: &str, year: i32) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        Self {
            certificate,
            issuer,
        }
    }

    /// Loads the authority of this certificate and key.
    pub(super) fn of_pem(certificate: &str, key: &str) -> Self {
        let key = KeyPair::from_pem(key.split('#').next().unwrap()).unwrap();
        Self {
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap(),
            issuer: Issuer::from_ca_cert_pem(certificate, key).unwrap(),
        }
    }

    pub(super) fn pem(&self) -> String {
        pem(&self.certificate)
    }

    /// Creates a list that revokes the certificates with these serial numbers, PEM; its successor is due in `year`.
    pub(super) fn revoke(&self, serials: &[u64], year: i32) -> String {
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: rcgen::date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2000, 1, 1),
            next_update: rcgen::date_time_ymd(year, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Signs a client certificate; `about` sets its content.
    pub(super) fn sign(&self, about: impl FnOnce(&mut CertificateParams)) -> Made {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        about(&mut params);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let certificate = signed.der().clone();
        Made { certificate, key }
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// Returns the TLS configuration of a client that trusts a certificate, and shows one. It does not check the key.
pub(super) fn trusting(
    pem: &str,
    versions: &[&'static SupportedProtocolVersion],
    shown: Option<&Made>,
) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let Some(made) = shown else {
        return builder.with_no_client_auth();
    };
    let key = PrivateKeyDer::Pkcs8(made.key.serialize_der().into());
    let key = provider.key_provider.load_private_key(key).unwrap();
    let shown = CertifiedKey::new(vec![made.certificate.clone()], key);
    builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
}
