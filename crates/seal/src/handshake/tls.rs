//! TLS 1.3 by rustls: certificates or raw public keys, client authentication, ALPN.
//!
//! It goes through the interface that rustls has for QUIC, which has no records of its own.
//! A message of ours is a row of parts, each with its level, length and bytes of the TLS
//! handshake:
//!
//! | level | what it has | how it goes |
//! | --- | --- | --- |
//! | 0 | the two Hellos | as it is |
//! | 1 | extensions, certificates, proofs | sealed with the handshake keys of TLS, as QUIC does |
//!
//! QUIC's transport parameters carry what both ends agree on. Records do not use the traffic
//! keys of TLS: their secret is exported (RFC 8446, 7.5).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{
    ClientConnection, Connection, KeyChange, Keys as TlsKeys, ServerConnection, Version,
};
use rustls::{CertificateError, ClientConfig, ServerConfig};

use super::{
    Established, Fingerprint, Handshake, HandshakeError, MOST_MESSAGE, PeerIdentity, agreement,
};
use crate::aead::Suite;
use crate::keys::{Keys, Role};
use crate::secret::Secret;

const LABEL: &[u8] = b"EXPORTER-landfall records";
/// Level and length before each part.
const PART_HEAD: usize = 3;

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
        Why::UnknownIssuer => TlsError::UnknownIssuer,
        Why::NotValidForName | Why::NotValidForNameContext { .. } => TlsError::WrongName,
        _ => TlsError::BadCertificate,
    }
}

/// One end of a TLS handshake.
///
/// Which certificates are trusted, what the clock says and where random bytes come from is
/// rustls's configuration. Session tickets are not sent: each handshake is a full one.
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

    /// The end that answers.
    ///
    /// # Errors
    ///
    /// [`TlsError::BadConfig`] if TLS 1.3 cannot be spoken with this configuration.
    pub fn server(
        config: &ServerConfig,
        context: &[u8],
        suite: Suite,
    ) -> Result<Self, HandshakeError> {
        let agreed = agreement("TLS", suite, context);
        let mut config = config.clone();
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        let connection = ServerConnection::new(Arc::new(config), Version::V1, agreed.clone())?;
        Ok(Self::new(connection.into(), Role::Responder, suite, agreed))
    }

    fn new(connection: Connection, role: Role, suite: Suite, agreed: Vec<u8>) -> Self {
        let (handshake, next, to_send) = (None, [0; 2], None);
        let connection = Some(Box::new(connection));
        Self { connection, role, suite, agreed, handshake, next, to_send }
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
                put_part(self.to_send.get_or_insert_default(), keys, number, &bytes)?;
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
            // A part more than the handshake has.
            if self.is_over() {
                return Err(HandshakeError::OutOfTurn);
            }
            let (level, bytes) = take_part(&mut rest)?;
            let bytes = match level {
                // Once there are keys, nothing counts that anybody could have written.
                0 if self.handshake.is_none() => bytes.to_vec(),
                1 => self.open_part(bytes)?,
                _ => return Err(HandshakeError::Malformed("a part has a level out of turn")),
            };
            let connection = self.connection.as_mut().ok_or(HandshakeError::OutOfTurn)?;
            connection.read_hs(&bytes)?;
            let theirs = connection.quic_transport_parameters();
            if theirs.is_some_and(|theirs| theirs != self.agreed) {
                return Err(HandshakeError::NotProven);
            }
            self.collect()?;
        }
        Ok(())
    }

    fn open_part(&mut self, sealed: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let keys = self.handshake.as_ref();
        let keys = keys.ok_or(HandshakeError::Malformed("a part has a level out of turn"))?;
        let mut bytes = sealed.to_vec();
        let opened = keys.remote.packet.decrypt_in_place(self.next[1], &[1], &mut bytes);
        let len = opened.map_err(|_| HandshakeError::NotProven)?.len();
        self.next[1] += 1;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_handshaking())
    }
}

/// Appends a part, sealed where there are keys.
fn put_part(
    message: &mut Vec<u8>,
    keys: Option<&TlsKeys>,
    number: u64,
    bytes: &[u8],
) -> Result<(), HandshakeError> {
    let mut part = bytes.to_vec();
    if let Some(keys) = keys {
        let tag = keys.local.packet.encrypt_in_place(number, &[1], &mut part)?;
        part.extend_from_slice(tag.as_ref());
    }
    let len = u16::try_from(part.len()).ok();
    let len = len.filter(|_| message.len() + PART_HEAD + part.len() <= MOST_MESSAGE);
    let len = len.ok_or(HandshakeError::Malformed("the certificates are too long"))?;
    message.push(u8::from(keys.is_some()));
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

    fn finish(self) -> Result<Established, HandshakeError> {
        let is_finished = self.is_finished();
        let connection = self.connection.ok_or(HandshakeError::OutOfTurn)?;
        // A peer without transport parameters has agreed on nothing.
        let has_agreed = connection.quic_transport_parameters() == Some(&self.agreed);
        if !is_finished || !has_agreed {
            return Err(HandshakeError::Unfinished);
        }
        let secret = connection.export_keying_material([0; 32], LABEL, None)?;
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.map_or(PeerIdentity::Anonymous, |certificate| {
            PeerIdentity::Certificate(Fingerprint::of(b"landfall certificate", certificate))
        });
        let keys = Keys::new(Secret::new(secret), self.role, self.suite);
        Ok(Established { keys, peer })
    }
}
