//! A connection's bytes, with TLS or without.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// Where systems keep what they trust.
const SYSTEM_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Whom a connection over TLS trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trust {
    /// File with certificates, PEM; `None` for what the system trusts.
    pub(crate) ca: Option<PathBuf>,
    /// Anybody.
    pub(crate) insecure: bool,
}

/// A socket, with TLS or without.
pub(crate) enum Link<S: Read + Write> {
    /// As it is.
    Plain(S),
    /// Over TLS.
    Sealed(Box<StreamOwned<ClientConnection, S>>),
}

impl<S: Read + Write> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_sealed() {
            "over TLS"
        } else {
            "plain"
        })
    }
}

impl<S: Read + Write> Link<S> {
    /// The socket below.
    pub(crate) fn socket(&self) -> &S {
        match self {
            Self::Plain(socket) => socket,
            Self::Sealed(stream) => &stream.sock,
        }
    }

    /// The socket below, to be watched.
    pub(crate) fn socket_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) => socket,
            Self::Sealed(stream) => &mut stream.sock,
        }
    }

    /// Whether a read that gives less than was asked for may leave something behind.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// The same with another kind of socket.
    pub(crate) fn map<T: Read + Write>(self, change: impl FnOnce(S) -> T) -> Link<T> {
        match self {
            Self::Plain(socket) => Link::Plain(change(socket)),
            Self::Sealed(stream) => {
                let StreamOwned { conn, sock } = *stream;
                Link::Sealed(Box::new(StreamOwned::new(conn, change(sock))))
            }
        }
    }
}

impl Link<TcpStream> {
    /// Makes TLS of a connected socket; the handshake comes with the first words.
    ///
    /// # Errors
    /// There is nothing to trust, or the host's name is none.
    pub(crate) fn seal(socket: TcpStream, host: &str, trust: &Trust) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let config = Arc::new(trust.config()?);
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::Sealed(Box::new(StreamOwned::new(connection, socket))))
    }
}

impl<S: Read + Write> Read for Link<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Sealed(stream) => stream.read(buffer),
        }
    }
}

impl<S: Read + Write> Write for Link<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Sealed(stream) => stream.flush(),
        }
    }
}

impl Trust {
    fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        if self.insecure {
            let anybody = Arc::new(Anybody(provider));
            let builder = builder
                .dangerous()
                .with_custom_certificate_verifier(anybody);
            return Ok(builder.with_no_client_auth());
        }
        let builder = builder.with_root_certificates(self.roots()?);
        Ok(builder.with_no_client_auth())
    }

    fn roots(&self) -> io::Result<RootCertStore> {
        let path = self.ca.clone().unwrap_or_else(|| SYSTEM_FILE.into());
        let fail = |why: &dyn fmt::Display| {
            let hint = "--ca FILE names what to trust, settee cert prints it";
            io::Error::other(format!("{}: {why}; {hint}", path.display()))
        };
        let text = std::fs::read(&path).map_err(|error| fail(&error))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|error| fail(&error))?;
            // Systems trust some that are too old to be understood.
            let added = roots.add(certificate);
            if self.ca.is_some() {
                added.map_err(|error| fail(&error))?;
            }
        }
        if roots.is_empty() {
            return Err(fail(&"holds no certificate"));
        }
        Ok(roots)
    }
}

/// Takes any certificate: whoever asked for it knows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
