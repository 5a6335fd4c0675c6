//! TLS 1.3 by rustls: certificates or raw public keys, client authentication, ALPN.
//!
//! It goes through the interface that rustls has for QUIC, which has no records of its own.
//! A message of ours is a row of parts, each with its level, length and bytes of the TLS
//! handshake:
//!
//! | level | what it has | how it goes |
//! | --- | --- | --- |
//! | 0 | the two Hellos | as it is |
//! | 1 | extensions, certificates, proofs, tickets | sealed with the handshake keys of TLS, as QUIC does |
//! | 2 | one byte: the alert that says why an end failed | sealed, once there are keys |
//!
//! QUIC's transport parameters carry what both ends agree on. Records do not use the traffic
//! keys of TLS: their secret is exported (RFC 8446, 7.5).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{
    ClientConnection, Connection, KeyChange, Keys as TlsKeys, ServerConnection, Version,
};
use rustls::{CertificateError, CipherSuite, ClientConfig, HandshakeKind, ServerConfig};

use super::{
    Established, Fingerprint, Handshake, HandshakeError, MOST_MESSAGE, PeerIdentity, agreement,
};
use crate::aead::Suite;
use crate::keys::{Keys, Role};
use crate::secret::Secret;

const LABEL: &[u8] = b"EXPORTER-landfall records";
/// Level and length before each part.
const PART_HEAD: usize = 3;
/// Levels of parts.
const PLAIN: u8 = 0;
const SEALED: u8 = 1;
const ALERT: u8 = 2;
/// An alert: who proved itself is not let in (RFC 8446, section 6.2).
const ACCESS_DENIED: u8 = 49;

/// The provider of rustls, whose first choice is `TLS_AES_128_GCM_SHA256`: processors have
/// instructions for SHA-256 and none for SHA-384, which took two fifths of a resumed handshake, and
/// the [suite](Suite) of records is agreed on elsewhere.
///
/// ```
/// use std::sync::Arc;
///
/// let provider = Arc::new(landfall_seal::tls_provider());
/// let builder = rustls::ClientConfig::builder_with_provider(provider);
/// assert!(builder.with_protocol_versions(&[&rustls::version::TLS13]).is_ok());
/// ```
#[must_use]
pub fn tls_provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let is_first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != is_first);
    provider
}

/// Why TLS did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer's certificate was valid once.
    #[error(
        "the peer's certificate has expired: renew it there, and look at the clocks of both machines"
    )]
    Expired,
    /// The peer's certificate will be valid.
    #[error("the peer's certificate is not valid yet: look at the clocks of both machines")]
    NotValidYet,
    /// The peer's certificate was withdrawn.
    #[error("the peer's certificate was revoked by who issued it: it needs a new one")]
    Revoked,
    /// Nobody has said lately whether the peer's certificate was revoked.
    #[error(
        "nothing fresh says whether the peer's certificate was revoked: renew the revocation lists of this side, and look at its clock"
    )]
    UnknownRevocation,
    /// Nobody whom this side trusts has issued the peer's certificate.
    #[error(
        "the peer's certificate is from nobody whom this side trusts: add its issuer to the roots, or let the peer show another one"
    )]
    UnknownIssuer,
    /// The peer's certificate is for other names.
    #[error("the peer's certificate is for another name than the one that was connected to")]
    WrongName,
    /// The peer's certificate is broken, or for another purpose.
    #[error("the peer's certificate cannot be used")]
    BadCertificate,
    /// The peer has to show a certificate, and does not.
    #[error("the peer shows no certificate, and this side asks for one")]
    NoCertificate,
    /// The two ends have no protocol in common.
    #[error("the two ends have no application protocol in common")]
    NoApplicationProtocol,
    /// The two ends have no suite, group or version in common.
    #[error("the peer's TLS and this one have nothing in common")]
    Incompatible,
    /// This end was not told whom it trusts, or what it shows.
    #[error(
        "this end has no certificates for that: one that connects needs roots to trust, one that listens a certificate to show"
    )]
    NotConfigured,
    /// Nobody said which name the peer's certificate has.
    #[error(
        "say which name the peer's certificate has: its address is none that certificates know"
    )]
    NoName,
    /// The peer did not accept this end, and says why.
    #[error("the peer refuses this end: {0}")]
    Refused(&'static str),
    /// The configuration is not fit for TLS 1.3 with a suite that QUIC can have.
    #[error("the configuration of TLS cannot be used: it needs TLS 1.3")]
    BadConfig,
}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error;
        Self::Tls(match error {
            Error::InvalidCertificate(why) => of_certificate(&why),
            Error::NoCertificatesPresented => TlsError::NoCertificate,
            Error::NoApplicationProtocol => TlsError::NoApplicationProtocol,
            Error::PeerIncompatible(_) => TlsError::Incompatible,
            Error::General(_) | Error::UnsupportedNameType | Error::InconsistentKeys(_) => {
                TlsError::BadConfig
            }
            Error::DecryptError => return Self::NotProven,
            _ => return Self::Malformed("TLS does not understand it"),
        })
    }
}

fn of_certificate(why: &CertificateError) -> TlsError {
    use CertificateError as Why;
    match why {
        Why::Expired | Why::ExpiredContext { .. } => TlsError::Expired,
        Why::NotValidYet | Why::NotValidYetContext { .. } => TlsError::NotValidYet,
        Why::Revoked => TlsError::Revoked,
        Why::UnknownRevocationStatus
        | Why::ExpiredRevocationList
        | Why::ExpiredRevocationListContext { .. } => TlsError::UnknownRevocation,
        Why::UnknownIssuer => TlsError::UnknownIssuer,
        Why::NotValidForName | Why::NotValidForNameContext { .. } => TlsError::WrongName,
        _ => TlsError::BadCertificate,
    }
}

/// What the peer's alert means to this end (RFC 8446, section 6.2).
const fn of_alert(alert: u8) -> TlsError {
    TlsError::Refused(match alert {
        40 | 70 | 71 | 109 => "its TLS and this one have nothing in common",
        42 | 43 | 46 => "it cannot use the certificate of this end",
        44 => "the certificate of this end was revoked by who issued it: it needs a new one",
        45 => {
            "by its clock the certificate of this end has expired or is not valid yet: renew it, and look at the clocks of both machines"
        }
        48 => {
            "it does not trust who issued the certificate of this end: add the issuer to its roots, or show another certificate"
        }
        ACCESS_DENIED => "it lets others in, and not this end",
        51 => {
            "the certificate of this end is not signed by the issuer of that name there, or is not the one of its key"
        }
        112 => "it has no certificate for the name that was asked for",
        116 => "it asks for a certificate, and this end shows none",
        120 => "the two ends have no application protocol in common",
        _ => "it does not accept the handshake",
    })
}

/// One end of a TLS handshake.
///
/// Which certificates are trusted, what the clock says, where random bytes come from and whether
/// sessions are resumed is rustls's configuration. A server that sends tickets says them in a
/// message behind the client's last: a client that wants them keeps its end
/// ([`take_keys`](Self::take_keys)) and hands that message in.
pub struct Tls {
    /// Nothing once it has failed.
    connection: Option<Box<Connection>>,
    role: Role,
    suite: Suite,
    agreed: Vec<u8>,
    handshake: Option<Box<TlsKeys>>,
    /// The next numbers of sealed parts, of this end and of the peer.
    next: [u64; 2],
    to_send: Option<Vec<u8>>,
    /// Keys are handed over once.
    has_keys_taken: bool,
    /// Says to the peer why this end has failed.
    alert: Option<Vec<u8>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("role", &self.role)
            .field("has_failed", &self.connection.is_none())
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// The end that begins, and looks whether the other has a certificate of that name.
    ///
    /// # Errors
    ///
    /// [`TlsError::BadConfig`] if TLS 1.3 cannot be spoken with this configuration.
    pub fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        context: &[u8],
        suite: Suite,
    ) -> Result<Self, HandshakeError> {
        let agreed = agreement("TLS", suite, context);
        let connection = ClientConnection::new(config, Version::V1, name, agreed.clone())?;
        let mut tls = Self::new(connection.into(), Role::Initiator, suite, agreed);
        tls.collect()?;
        Ok(tls)
    }

    /// The end that answers. There is no early data: it could be replayed.
    ///
    /// # Errors
    ///
    /// [`TlsError::BadConfig`] if TLS 1.3 cannot be spoken with this configuration.
    pub fn server(
        config: Arc<ServerConfig>,
        context: &[u8],
        suite: Suite,
    ) -> Result<Self, HandshakeError> {
        let agreed = agreement("TLS", suite, context);
        let config = if config.max_early_data_size == 0 {
            config
        } else {
            let mut without = (*config).clone();
            without.max_early_data_size = 0;
            Arc::new(without)
        };
        let connection = ServerConnection::new(config, Version::V1, agreed.clone())?;
        Ok(Self::new(connection.into(), Role::Responder, suite, agreed))
    }

    fn new(connection: Connection, role: Role, suite: Suite, agreed: Vec<u8>) -> Self {
        Self {
            connection: Some(Box::new(connection)),
            role,
            suite,
            agreed,
            handshake: None,
            next: [0; 2],
            to_send: None,
            has_keys_taken: false,
            alert: None,
        }
    }

    /// The peer's certificates, once it has shown them: its own first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.connection.as_ref()?.peer_certificates()
    }

    /// The application protocol that both ends have chosen.
    #[must_use]
    pub fn application_protocol(&self) -> Option<&[u8]> {
        self.connection.as_ref()?.alpn_protocol()
    }

    /// Did both ends go on with an earlier session? Then no certificate was shown or verified;
    /// what was proven then holds.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        let kind = self.connection.as_ref().and_then(|connection| connection.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    /// The message that says to the peer why this end has failed. It is not waited for.
    pub const fn take_alert(&mut self) -> Option<Vec<u8>> {
        self.alert.take()
    }

    /// The message that says to the peer that it is not let in, whatever it has proven.
    pub fn refuse(&mut self) -> Option<Vec<u8>> {
        self.alert_message(ACCESS_DENIED)
    }

    /// Was a part opened that only the peer of this handshake can have sealed?
    pub(crate) const fn has_opened(&self) -> bool {
        self.next[1] > 0
    }

    /// Are the parts of this message sealed by the peer of this handshake? Changes nothing. Before
    /// there are keys nobody knows, and every message may be.
    pub(crate) fn opens(&self, message: &[u8]) -> bool {
        let Some(keys) = &self.handshake else { return true };
        let (mut rest, mut number) = (message, self.next[1]);
        while !rest.is_empty() {
            let Ok((level, bytes)) = take_part(&mut rest) else { return false };
            let mut bytes = bytes.to_vec();
            if keys.remote.packet.decrypt_in_place(number, &[level], &mut bytes).is_err() {
                return false;
            }
            number += 1;
        }
        true
    }

    /// Hands over the keys, once. A client may stay, for the tickets of its peer.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::Unfinished`] before the peer has proven itself;
    /// [`HandshakeError::OutOfTurn`] the second time.
    pub fn take_keys(&mut self) -> Result<Established, HandshakeError> {
        let is_over = self.is_over();
        let connection = self.connection.as_ref().ok_or(HandshakeError::OutOfTurn)?;
        // A peer without transport parameters has agreed on nothing.
        let has_agreed = connection.quic_transport_parameters() == Some(&self.agreed);
        if !is_over || !has_agreed {
            return Err(HandshakeError::Unfinished);
        }
        if core::mem::replace(&mut self.has_keys_taken, true) {
            return Err(HandshakeError::OutOfTurn);
        }
        let secret = connection.export_keying_material([0; 32], LABEL, None)?;
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.map_or(PeerIdentity::Anonymous, |certificate| {
            PeerIdentity::Certificate(Fingerprint::of_certificate(certificate))
        });
        let keys = Keys::new(Secret::new(secret), self.role, self.suite);
        Ok(Established { keys, peer })
    }

    /// Takes what TLS has to say, and the keys to say it with.
    fn collect(&mut self) -> Result<(), HandshakeError> {
        let connection = self.connection.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        loop {
            let mut bytes = Vec::new();
            let change = connection.write_hs(&mut bytes);
            if !bytes.is_empty() {
                let keys = self.handshake.as_deref();
                let number = self.next[0];
                self.next[0] += u64::from(keys.is_some());
                let level = if keys.is_some() { SEALED } else { PLAIN };
                put_part(self.to_send.get_or_insert_default(), (level, keys), number, &bytes)?;
            } else if change.is_none() {
                return Ok(());
            }
            match change {
                Some(KeyChange::Handshake { keys }) => self.handshake = Some(Box::new(keys)),
                // Records have keys of their own.
                Some(KeyChange::OneRtt { .. }) | None => {}
            }
        }
    }

    fn read(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        if message.len() > MOST_MESSAGE {
            return Err(HandshakeError::Malformed("it is too long"));
        }
        if message.is_empty() {
            return Err(HandshakeError::Malformed("it is empty"));
        }
        let mut rest = message;
        while !rest.is_empty() {
            let (level, bytes) = take_part(&mut rest)?;
            // Behind its end a handshake has nothing but tickets for a client, or why it was
            // refused in the end.
            if self.is_over() && (level == PLAIN || self.role == Role::Responder) {
                return Err(HandshakeError::OutOfTurn);
            }
            let bytes = match level {
                // Once there are keys, nothing counts that anybody could have written.
                PLAIN | ALERT if self.handshake.is_none() => bytes.to_vec(),
                SEALED | ALERT => self.open_part(level, bytes)?,
                _ => return Err(HandshakeError::Malformed("a part has a level out of turn")),
            };
            if level == ALERT {
                let alert = bytes.first().copied().unwrap_or_default();
                return Err(HandshakeError::Tls(of_alert(alert)));
            }
            let connection = self.connection.as_mut().ok_or(HandshakeError::OutOfTurn)?;
            connection.read_hs(&bytes)?;
            // A client that resumes a session has those of then until it hears the new ones.
            let is_said = self.role == Role::Responder || !connection.is_handshaking();
            let theirs = connection.quic_transport_parameters();
            if is_said && theirs.is_some_and(|theirs| theirs != self.agreed) {
                return Err(HandshakeError::NotProven);
            }
            self.collect()?;
        }
        Ok(())
    }

    fn open_part(&mut self, level: u8, sealed: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let keys = self.handshake.as_ref();
        let keys = keys.ok_or(HandshakeError::Malformed("a part has a level out of turn"))?;
        let mut bytes = sealed.to_vec();
        let opened = keys.remote.packet.decrypt_in_place(self.next[1], &[level], &mut bytes);
        let len = opened.map_err(|_| HandshakeError::NotProven)?.len();
        self.next[1] += 1;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The message with the alert that TLS has for its last error, if it has one.
    fn make_alert(&mut self) -> Option<Vec<u8>> {
        let alert = self.connection.as_ref()?.alert()?;
        self.alert_message(alert.into())
    }

    fn alert_message(&mut self, alert: u8) -> Option<Vec<u8>> {
        let (keys, mut message, number) = (self.handshake.as_deref(), Vec::new(), self.next[0]);
        self.next[0] += 1;
        put_part(&mut message, (ALERT, keys), number, &[alert]).ok()?;
        Some(message)
    }

    fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_handshaking())
    }
}

/// Appends a part, sealed where there are keys.
fn put_part(
    message: &mut Vec<u8>,
    (level, keys): (u8, Option<&TlsKeys>),
    number: u64,
    bytes: &[u8],
) -> Result<(), HandshakeError> {
    let mut part = bytes.to_vec();
    if let Some(keys) = keys {
        let tag = keys.local.packet.encrypt_in_place(number, &[level], &mut part)?;
        part.extend_from_slice(tag.as_ref());
    }
    let len = u16::try_from(part.len()).ok();
    let len = len.filter(|_| message.len() + PART_HEAD + part.len() <= MOST_MESSAGE);
    let len = len.ok_or(HandshakeError::Malformed("the certificates are too long"))?;
    message.push(level);
    message.extend_from_slice(&len.to_be_bytes());
    message.extend_from_slice(&part);
    Ok(())
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), HandshakeError> {
    let cut = HandshakeError::Malformed("a part is cut short");
    let ([level, high, low], tail) = rest.split_first_chunk::<PART_HEAD>().ok_or(cut)?;
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (bytes, tail) = tail.split_at_checked(len).ok_or(cut)?;
    *rest = tail;
    Ok((*level, bytes))
}

impl Handshake for Tls {
    fn handle_message(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        let read = self.read(message);
        if read.is_err() {
            self.alert = self.make_alert();
            (self.connection, self.to_send) = (None, None);
        }
        read
    }

    fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.to_send.take()
    }

    fn is_finished(&self) -> bool {
        self.is_over() && self.to_send.is_none()
    }

    fn finish(mut self) -> Result<Established, HandshakeError> {
        if self.to_send.is_some() {
            return Err(HandshakeError::Unfinished);
        }
        self.take_keys()
    }
}
