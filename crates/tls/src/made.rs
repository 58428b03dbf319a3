//! Certificates that the node makes itself.
//!
//! The node keeps an authority: its certificate, which clients must trust, and its key. At each start it makes a
//! new server certificate for its current names. Clients therefore need no new configuration when the node
//! listens on other addresses.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use storage::names;

use crate::pem::unreadable;

const KEY_FILE: &str = "ca-key.pem";
pub(crate) const CERTIFICATE_FILE: &str = "ca.pem";

/// Directory of the authority, and the addresses of the node.
#[derive(Clone, Debug)]
pub(crate) struct CertificateDir {
    /// Directory of the authority; `None` to keep it in memory only.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) listen: IpAddr,
    /// Other names of the node.
    pub(crate) advertised: Vec<String>,
}

/// A certificate chain, its key, and the certificate of the authority.
pub(crate) type Made = (
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
    CertificateDer<'static>,
);

struct Authority {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

impl CertificateDir {
    /// Makes a certificate, and an authority if there is none.
    ///
    /// # Errors
    /// The authority cannot be read or written; one line.
    pub(crate) fn make(&self) -> Result<Made, String> {
        let authority = match &self.directory {
            Some(directory) => Authority::read_or_make(directory)?,
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

    /// Returns the names and addresses of the node.
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
        names.extend(self.advertised.iter().cloned());
        if !self.listen.is_unspecified() {
            names.push(self.listen.to_string());
        }
        names.sort();
        names.dedup();
        names
    }
}

impl Authority {
    fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = Self::certify(&key)?;
        Ok(Self { key, certificate })
    }

    fn certify(key: &KeyPair) -> Result<CertificateDer<'static>, rcgen::Error> {
        Ok(authority_params(key).self_signed(key)?.der().clone())
    }

    /// Reads the authority from the directory, or makes one if there is none.
    fn read_or_make(directory: &Path) -> Result<Self, String> {
        let (key_file, certificate_file) =
            (directory.join(KEY_FILE), directory.join(CERTIFICATE_FILE));
        let Some(text) = read(&key_file)? else {
            return Self::made_in(directory, &certificate_file);
        };
        // The key is written first, and suffices: clients that trust the authority trust every certificate that
        // it signs.
        let Some(certificate) = read(&certificate_file)? else {
            let key = key_of(&key_file, &text)?;
            let certificate = Self::certify(&key).map_err(|error| error.to_string())?;
            let authority = Self { key, certificate };
            authority.write_into(directory)?;
            tracing::warn!(file = %certificate_file.display(), "was missing, and is made anew of its key");
            return Ok(authority);
        };
        let authority = Self::parse(directory, &text, &certificate)?;
        if !text.contains(SUM) {
            // The file has no checksum: an earlier release wrote it, or a start was interrupted.
            authority.write_into(directory)?;
        }
        Ok(authority)
    }

    /// Parses the authority from the texts of both files.
    fn parse(directory: &Path, text: &str, certificate: &str) -> Result<Self, String> {
        let (key_file, certificate_file) =
            (directory.join(KEY_FILE), directory.join(CERTIFICATE_FILE));
        let key = key_of(&key_file, text)?;
        let sum = text.split_once(SUM);
        if sum.is_some_and(|(pem, sum)| sum.trim() != sum_of(pem, certificate)) {
            return Err(format!(
                "{} or {}: damaged: checksum mismatch; put the right ones back, or remove both: then the node makes \
                 an authority that clients do not know yet",
                certificate_file.display(),
                key_file.display()
            ));
        }
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| format!("{} {}", certificate_file.display(), unreadable(&error)))?;
        Ok(Self { key, certificate })
    }

    /// Makes a new authority, if there is no certificate of an old one.
    fn made_in(directory: &Path, certificate_file: &Path) -> Result<Self, String> {
        if certificate_file.exists() {
            return Err(format!(
                "{}: is missing, and clients may trust its {CERTIFICATE_FILE}; put it back, or remove {}: then the \
                 node makes an authority that clients do not know yet",
                directory.join(KEY_FILE).display(),
                certificate_file.display()
            ));
        }
        let made = Self::new().map_err(|error| error.to_string())?;
        made.write_into(directory)?;
        Ok(made)
    }

    /// Writes the authority: first the key, then the certificate, then the key again with the checksum of both.
    fn write_into(&self, directory: &Path) -> Result<(), String> {
        let (key, certificate) = (
            self.key.serialize_pem(),
            crate::pem::to_pem(&self.certificate),
        );
        let sealed = format!("{key}{SUM}{}\n", sum_of(&key, &certificate));
        let write = |name, text: &str| write(directory, name, text);
        write(KEY_FILE, &key)
            .and_then(|()| write(CERTIFICATE_FILE, &certificate))
            .and_then(|()| write(KEY_FILE, &sealed))
            .map_err(|error| format!("{}: {error}", directory.display()))
    }
}

/// Copies an authority to another directory, if there is one. The source stays unchanged.
///
/// # Errors
/// The authority is damaged, or cannot be copied; one line.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let (key, certificate) = (
        read(&from.join(KEY_FILE))?,
        read(&from.join(CERTIFICATE_FILE))?,
    );
    let (key, certificate) = match (key, certificate) {
        (None, None) => return Ok(()),
        (Some(key), Some(certificate)) => (key, certificate),
        _ => {
            return Err(format!(
                "{}: a file of the authority is missing",
                from.display()
            ));
        }
    };
    Authority::parse(from, &key, &certificate)?;
    write(to, CERTIFICATE_FILE, &certificate)
        .and_then(|()| write(to, KEY_FILE, &key))
        .map_err(|error| format!("{}: {error}", to.display()))
}

/// Parses the key from the text of its file.
fn key_of(file: &Path, text: &str) -> Result<KeyPair, String> {
    let pem = text.split_once(SUM).map_or(text, |(pem, _)| pem);
    KeyPair::from_pem(pem).map_err(|error| format!("{}: damaged: {error}", file.display()))
}

/// Text before the checksum, which follows the key.
const SUM: &str = "# settee authority 1 ";

fn sum_of(key: &str, certificate: &str) -> String {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key.as_bytes());
    sum.update(certificate.as_bytes());
    format!("{:08x}", sum.finalize())
}

/// Reads a text file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| format!("{}: damaged: it is no text", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Parameters of the authority. They depend only on its key, so its certificate is not parsed to sign another one.
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

/// Sets a long validity: clients that trust the authority would need a new configuration when it expires.
fn lasting(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

/// Replaces a file as a whole.
fn write(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    names::make_directories(directory)?;
    names::replace(&directory.join(name), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_authority_is_not_copied() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        Authority::read_or_make(&from).unwrap();
        for name in [KEY_FILE, CERTIFICATE_FILE] {
            let whole = fs::read(from.join(name)).unwrap();
            for damaged in [&[][..], &whole[..whole.len() / 2], &[0; 64]] {
                fs::write(from.join(name), damaged).unwrap();
                assert!(copy(&from, &to).is_err());
                assert!(!to.exists(), "nothing of it");
            }
            fs::write(from.join(name), whole).unwrap();
        }
        copy(&from, &to).unwrap();
        Authority::read_or_make(&to).unwrap();
    }
}
