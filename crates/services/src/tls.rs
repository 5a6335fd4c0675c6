//! Certificates for HTTPS and for whatever else has TLS: for servers, and those that clients trust.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

/// No certificate to serve with or to trust.
#[derive(Debug)]
pub enum Error {
    /// A file that cannot be read, or is no PEM.
    File(PathBuf, pem::Error),
    /// A file of PEM without a certificate.
    NoCertificate(PathBuf),
    /// Certificate and key do not fit together.
    Refused(rustls::Error),
    /// A certificate that cannot be trusted, since it is not well formed.
    NoAuthority(rustls::Error),
    /// A certificate could not be made.
    NotMade(rcgen::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, why) => write!(f, "cannot read {} as PEM: {why}", path.display()),
            Self::NoCertificate(path) => write!(
                f,
                "{} has no certificate: it should begin with -----BEGIN CERTIFICATE-----",
                path.display()
            ),
            Self::Refused(why) => write!(
                f,
                "certificate and key cannot be used ({why}): give the key that the certificate \
                 was made with"
            ),
            Self::NoAuthority(why) => write!(f, "a certificate cannot be trusted: {why}"),
            Self::NotMade(why) => write!(f, "cannot make a certificate: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// TLS with the certificate (and those that lead to its root) and the key of two PEM files.
///
/// # Errors
/// A file cannot be read, or the two do not fit together.
pub fn from_files(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let chain = certificates(certificate)?;
    configure(chain, PrivateKeyDer::from_pem_file(key).map_err(wrong(key))?)
}

/// TLS of a client that trusts the certificates of a PEM file, and those that they vouch for.
///
/// # Errors
/// The file cannot be read, or one of them is no authority.
pub fn trusting(authorities: &Path) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(Error::NoAuthority)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

fn wrong(path: &Path) -> impl FnOnce(pem::Error) -> Error + Copy + '_ {
    move |why| Error::File(path.to_owned(), why)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain = CertificateDer::pem_file_iter(path).map_err(wrong(path))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(wrong(path))?;
    if chain.is_empty() {
        return Err(Error::NoCertificate(path.to_owned()));
    }
    Ok(chain)
}

/// TLS with a certificate that is made now, for these names and addresses, and signed by itself:
/// encrypted, but no client knows whom it talks to.
///
/// # Errors
/// One of the names is none.
pub fn self_signed(names: impl IntoIterator<Item = String>) -> Result<Arc<ServerConfig>, Error> {
    let names: Vec<_> = names.into_iter().collect();
    let made = rcgen::generate_simple_self_signed(names).map_err(Error::NotMade)?;
    let key = PrivateKeyDer::from(made.signing_key);
    configure(vec![made.cert.der().clone()], key)
}

fn configure(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, Error> {
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    Ok(Arc::new(config.map_err(Error::Refused)?))
}
