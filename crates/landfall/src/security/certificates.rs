//! [`Certificates`]: ends that prove themselves by certificates or raw public keys, in TLS 1.3.

use std::fmt;
use std::sync::Arc;

use landfall_seal::{Certificates as Configs, Fingerprint, tls_provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName,
    SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};

/// What an endpoint shows, and whom it trusts: certificates, or raw public keys (RFC 7250).
///
/// The end that connects verifies the other's certificate by its roots, and that it is for the
/// name, or the address, that was connected to. The end that listens asks for none, unless
/// [`ask_callers`](Self::ask_callers) says so. An earlier session is resumed where both ends still
/// know it: that verifies no certificate anew.
///
/// ```
/// use landfall::stp::{Certificates, Memory, Transport, blocking::Endpoint, rustls};
/// use rustls::pki_types::PrivateKeyDer;
///
/// # let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
/// # let certificate = made.cert.der().clone();
/// # let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
/// let mut roots = rustls::RootCertStore::empty();
/// roots.add(certificate.clone())?;
/// let bind = |certificates| {
///     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
///     let builder = Endpoint::builder().path(path).certificates(certificates);
///     builder.encrypt_loopback().bind().map(Endpoint::from)
/// };
/// let server = bind(Certificates::new().show(vec![certificate], key))?;
/// let client = bind(Certificates::new().trust(roots))?;
/// let listener = server.listen(7)?;
/// let sending = client.connect(server.local().unwrap(), 7)?;
/// let pending = sending.send("only who has that certificate reads this").start();
/// let received = listener.accept()?.receive(Memory::zeroed(100)).wait()?;
/// # assert_eq!(&*received, b"only who has that certificate reads this");
/// # pending.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
#[must_use = "nothing is shown or trusted until an endpoint is built with it"]
pub struct Certificates {
    own: Option<Credential>,
    trusted: Option<Trusted>,
    asks_callers: bool,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    protocols: Vec<Vec<u8>>,
}

/// What an end shows.
enum Credential {
    Chain(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    Key(PrivateKeyDer<'static>),
}

/// Whom it trusts.
#[derive(Clone)]
enum Trusted {
    Roots(Arc<RootCertStore>),
    Keys(Arc<RawKeys>),
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("fingerprint", &self.fingerprint())
            .field("asks_callers", &self.asks_callers)
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// Nothing to show, and nobody who is trusted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows this certificate, with those of its issuers behind it, to anyone who connects, and to
    /// those it connects to if they ask. It has to be for the name by which others connect.
    pub fn show(
        mut self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        self.own = Some(Credential::Chain(chain, key));
        self
    }

    /// Shows a raw public key in place of a certificate. The other end has to
    /// [trust that key](Self::trust_keys).
    pub fn show_key(mut self, key: PrivateKeyDer<'static>) -> Self {
        self.own = Some(Credential::Key(key));
        self
    }

    /// Trusts certificates of these issuers.
    pub fn trust(mut self, roots: RootCertStore) -> Self {
        self.trusted = Some(Trusted::Roots(Arc::new(roots)));
        self
    }

    /// Trusts the raw public keys with these fingerprints, whatever name or address they are at.
    pub fn trust_keys(mut self, keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        let keys = keys.into_iter().collect();
        self.trusted = Some(Trusted::Keys(Arc::new(RawKeys { keys, provider: provider() })));
        self
    }

    /// Refuses certificates that are revoked in one of these lists, and those of an issuer that
    /// has no list among them, or an old one.
    pub fn revoked(
        mut self,
        lists: impl IntoIterator<Item = CertificateRevocationListDer<'static>>,
    ) -> Self {
        self.revoked.extend(lists);
        self
    }

    /// Lets only those connect who show a certificate, or a raw public key, that is trusted.
    pub const fn ask_callers(mut self) -> Self {
        self.asks_callers = true;
        self
    }

    /// Speaks one of these application protocols (ALPN), the first the other end has, too. Which
    /// one is said by [`Connection::application_protocol`](crate::stp::Connection::application_protocol).
    pub fn protocols<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.protocols.extend(names.into_iter().map(|name| name.as_bytes().to_vec()));
        self
    }

    /// The fingerprint of what is shown: what the other end has for
    /// [`Connection::peer_identity`](crate::stp::Connection::peer_identity).
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let der = match self.own.as_ref()? {
            Credential::Chain(chain, _) => chain.first()?.to_vec(),
            Credential::Key(key) => public_key(key).ok()?.to_vec(),
        };
        Some(Fingerprint::of_certificate(&der))
    }

    /// As rustls is configured with it.
    pub(super) fn configure(&self) -> Result<Configs, Error> {
        Ok(Configs { client: self.client()?, server: self.server()? })
    }

    /// For connections that begin here; nothing where nobody is trusted.
    fn client(&self) -> Result<Option<Arc<ClientConfig>>, Error> {
        let Some(trusted) = &self.trusted else { return Ok(None) };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match trusted {
            Trusted::Roots(roots) => {
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider())
                        .with_crls(self.revoked.iter().cloned())
                        .enforce_revocation_expiration();
                builder.with_webpki_verifier(verifier.build().map_err(unusable)?)
            }
            Trusted::Keys(keys) => {
                let keys: Arc<dyn ServerCertVerifier> = Arc::<RawKeys>::clone(keys);
                builder.dangerous().with_custom_certificate_verifier(keys)
            }
        };
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(Credential::Chain(chain, key)) => {
                builder.with_client_auth_cert(chain.clone(), key.clone_key())?
            }
            Some(Credential::Key(key)) => {
                let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(key)?);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(Some(Arc::new(config)))
    }

    /// For connections that come in; nothing where nothing is shown.
    fn server(&self) -> Result<Option<Arc<ServerConfig>>, Error> {
        let Some(own) = &self.own else { return Ok(None) };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match (&self.trusted, self.asks_callers) {
            (_, false) => builder.with_no_client_auth(),
            (None, true) => {
                return Err(Error::General(
                    "callers are asked for certificates, and nobody is trusted: say whom".into(),
                ));
            }
            (Some(Trusted::Roots(roots)), true) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
                        .with_crls(self.revoked.iter().cloned())
                        .enforce_revocation_expiration();
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
            (Some(Trusted::Keys(keys)), true) => {
                let keys: Arc<dyn ClientCertVerifier> = Arc::<RawKeys>::clone(keys);
                builder.with_client_cert_verifier(keys)
            }
        };
        let mut config = match own {
            Credential::Chain(chain, key) => {
                builder.with_single_cert(chain.clone(), key.clone_key())?
            }
            Credential::Key(key) => {
                let resolver = AlwaysResolvesServerRawPublicKeys::new(certified(key)?);
                builder.with_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        // One for each connection: who comes again has one. What is resumed is in the ticket, and
        // takes no memory here.
        config.send_tls13_tickets = 1;
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        Ok(Some(Arc::new(config)))
    }
}

/// Roots or lists that nothing can be verified with.
fn unusable(why: impl fmt::Display) -> Error {
    Error::General(why.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(tls_provider())
}

fn public_key(key: &PrivateKeyDer<'static>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let key = aws_lc_rs::sign::any_supported_type(key)?;
    let public = key.public_key().map(SubjectPublicKeyInfoDer::into_owned);
    public.ok_or_else(|| Error::General("the key does not say its public part".into()))
}

/// A key pair as rustls shows it: its public key in place of a certificate.
fn certified(key: &PrivateKeyDer<'static>) -> Result<Arc<CertifiedKey>, Error> {
    let public = CertificateDer::from(public_key(key)?.to_vec());
    let key = aws_lc_rs::sign::any_supported_type(key)?;
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Raw public keys that are trusted.
#[derive(Debug)]
struct RawKeys {
    keys: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl RawKeys {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let is_trusted = self.keys.contains(&Fingerprint::of_certificate(shown));
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        if is_trusted { Ok(()) } else { Err(unknown) }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// TLS 1.2 is not spoken.
fn no_tls12() -> Error {
    Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for RawKeys {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for RawKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
