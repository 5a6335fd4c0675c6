//! A certificate for `localhost`, and TLS 1.3 by rustls with it: AES-128-GCM of `aws-lc-rs`, as STP.

use std::sync::Arc;

use anyhow::Result;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

/// The certificate, and the key of it, as they are encoded (DER).
pub(crate) fn made() -> Result<(Vec<u8>, Vec<u8>)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    Ok((made.cert.der().to_vec(), made.signing_key.serialize_der()))
}

/// Both ends, as rustls is configured.
pub(crate) fn configs() -> Result<(ServerConfig, ClientConfig)> {
    let (certificate, key) = made()?;
    let certificate = CertificateDer::from(certificate);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let aes = |suite: &SupportedCipherSuite| {
        suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256
    };
    let provider = default_provider();
    let suites = provider.cipher_suites.iter().copied().filter(aes).collect();
    let provider = Arc::new(CryptoProvider { cipher_suites: suites, ..provider });
    let tls13 = [&rustls::version::TLS13];
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&tls13)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&tls13)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((server, client))
}
