//! A certificate that the node makes for itself.
//!
//! What stays is an authority: its certificate, which clients are told to trust, and its key. The
//! certificate that is served is made anew at each start, for the names under which the node is
//! reached then, so clients need not be told again when the node listens elsewhere.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

const KEY_FILE: &str = "ca-key.pem";
pub(super) const CERTIFICATE_FILE: &str = "ca.pem";

/// Where the authority is kept, and what the node listens on.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// `None` keeps nothing.
    pub(super) directory: Option<PathBuf>,
    pub(super) listen: IpAddr,
}

/// A chain, its key, and the certificate of the authority.
pub(super) type Made = (
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
    CertificateDer<'static>,
);

struct Authority {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

impl Place {
    /// Makes a certificate; also an authority, where there is none yet.
    ///
    /// # Errors
    /// The authority cannot be read or written; one line.
    pub(super) fn make(&self) -> Result<Made, String> {
        let authority = match &self.directory {
            Some(directory) => Authority::kept(directory)?,
            None => Authority::new().map_err(|error| error.to_string())?,
        };
        self.sign(&authority).map_err(|error| error.to_string())
    }

    fn sign(&self, authority: &Authority) -> Result<Made, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = lasting(CertificateParams::new(self.names())?);
        params.distinguished_name = name("Settee node");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let about = authority_params(&authority.key);
        let issuer = Issuer::from_params(&about, &authority.key);
        let certificate = params.signed_by(&key, &issuer)?;
        let chain = vec![certificate.der().clone(), authority.certificate.clone()];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((chain, key.into(), authority.certificate.clone()))
    }

    /// The names under which the node may be reached.
    fn names(&self) -> Vec<String> {
        let mut names = ["localhost", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .to_vec();
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        if !host.is_empty() && host.chars().all(plain) {
            names.push(host);
        }
        let listen = self.listen.to_string();
        if !self.listen.is_unspecified() && !names.contains(&listen) {
            names.push(listen);
        }
        names
    }
}

impl Authority {
    fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = authority_params(&key).self_signed(&key)?;
        let certificate = certificate.der().clone();
        Ok(Self { key, certificate })
    }

    /// The one in this directory, which is made if there is none.
    fn kept(directory: &Path) -> Result<Self, String> {
        let at = |name: &str| directory.join(name);
        let fail =
            |name: &str, error: &dyn std::fmt::Display| format!("{}: {error}", at(name).display());
        let key = match fs::read_to_string(at(KEY_FILE)) {
            Ok(text) => KeyPair::from_pem(&text).map_err(|error| fail(KEY_FILE, &error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = Self::new().map_err(|error| error.to_string())?;
                // The key last: while it is missing, all is made anew.
                let pem = super::to_pem(&made.certificate);
                let kept = write(directory, CERTIFICATE_FILE, &pem, 0o644)
                    .and_then(|()| write(directory, KEY_FILE, &made.key.serialize_pem(), 0o600));
                kept.map_err(|error| format!("{}: {error}", directory.display()))?;
                return Ok(made);
            }
            Err(error) => return Err(fail(KEY_FILE, &error)),
        };
        let text = fs::read(at(CERTIFICATE_FILE));
        let text = text.map_err(|error| fail(CERTIFICATE_FILE, &error))?;
        let certificate = CertificateDer::from_pem_slice(&text);
        let certificate = certificate.map_err(|error| fail(CERTIFICATE_FILE, &error))?;
        Ok(Self { key, certificate })
    }
}

/// All that is said of the authority follows from its key: nothing needs to be read out of its
/// certificate to sign another one.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::digest(key.public_key_raw());
    let number = u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|place: usize| digest[place]));
    let mut params = lasting(CertificateParams::default());
    params.distinguished_name = name(&format!("Settee {number:016x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// Whoever trusts it was told to, and would have to be told again.
fn lasting(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

/// Puts a file in its place as a whole.
fn write(directory: &Path, name: &str, text: &str, mode: u32) -> io::Result<()> {
    let mut private = fs::DirBuilder::new();
    private.recursive(true).mode(0o755).create(directory)?;
    let beside = directory.join(format!("{name}.tmp"));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, directory.join(name))?;
    fs::File::open(directory)?.sync_all()
}
