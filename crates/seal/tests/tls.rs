//! TLS as a handshake: certificates that are trusted, expired, of strangers; what somebody on
//! the way changes.

use std::sync::Arc;

use landfall_seal::{
    Established, Handshake, HandshakeError, MOST_MESSAGE, PeerIdentity, Suite, Tls, TlsError,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;
pub(crate) type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub(crate) fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate that is valid from one year to another.
pub(crate) fn issued(issuer: &Issuer, name: &str, (from, to): (i32, i32)) -> Identity {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.into(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

pub(crate) const ALWAYS: (i32, i32) = (1980, 2400);

pub(crate) fn roots(issuer: &Issuer) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    Arc::new(roots)
}

/// What both ends are configured with; the client shows a certificate if it has one.
pub(crate) struct Ends {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

pub(crate) fn ends(trusted: &Issuer, server: Identity, client: Option<Identity>) -> Ends {
    let builder = ClientConfig::builder().with_root_certificates(roots(trusted));
    let config = ServerConfig::builder();
    let (builder, config) = match client {
        Some((certificate, key)) => {
            let verifier = WebPkiClientVerifier::builder(roots(trusted)).build().unwrap();
            let client = builder.with_client_auth_cert(vec![certificate], key).unwrap();
            (client, config.with_client_cert_verifier(verifier))
        }
        None => (builder.with_no_client_auth(), config.with_no_client_auth()),
    };
    let server = config.with_single_cert(vec![server.0], server.1).unwrap();
    Ends { client: Arc::new(builder), server: Arc::new(server) }
}

const SUITE: Suite = Suite::Aes128Gcm;

impl Ends {
    pub(crate) fn usual() -> Self {
        let issuer = issuer("trusted");
        let server = issued(&issuer, "here.example", ALWAYS);
        let client = issued(&issuer, "there.example", ALWAYS);
        ends(&issuer, server, Some(client))
    }

    fn client(&self, context: &[u8], suite: Suite) -> Tls {
        let name = ServerName::try_from("here.example").unwrap();
        Tls::client(Arc::clone(&self.client), name, context, suite).unwrap()
    }

    fn server(&self, context: &[u8], suite: Suite) -> Tls {
        Tls::server(Arc::clone(&self.server), context, suite).unwrap()
    }

    fn pair(&self) -> [Tls; 2] {
        [self.client(b"", SUITE), self.server(b"", SUITE)]
    }
}

type Outcome = Result<Established, HandshakeError>;

/// Carries messages to and fro; each goes through the change with its number.
fn carry(mut ends: [Tls; 2], mut change: impl FnMut(usize, &mut Vec<u8>)) -> [Outcome; 2] {
    let mut errors = [None, None];
    for nth in 0.. {
        let Some((from, mut message)) = (0..2).find_map(|e| Some((e, ends[e].poll_message()?)))
        else {
            break;
        };
        assert!(message.len() <= MOST_MESSAGE);
        change(nth, &mut message);
        if let Err(error) = ends[1 - from].handle_message(&message) {
            errors[1 - from] = Some(error);
            assert!(ends[1 - from].poll_message().is_none(), "an end that failed says nothing");
        }
    }
    let [here, there] = ends.map(Handshake::finish);
    // The first error says more than what `finish` says of it.
    [
        here.map_err(|late| errors[0].unwrap_or(late)),
        there.map_err(|late| errors[1].unwrap_or(late)),
    ]
}

fn honest(ends: [Tls; 2]) -> [Outcome; 2] {
    carry(ends, |_, _| {})
}

#[test]
fn two_ends_with_certificates_have_the_same_keys() {
    let [here, there] = honest(Ends::usual().pair()).map(Result::unwrap);
    let exported = |end: &Established| *end.keys.export("test", b"").as_bytes();
    assert_eq!(exported(&here), exported(&there));
    let (PeerIdentity::Certificate(server), PeerIdentity::Certificate(client)) =
        (here.peer, there.peer)
    else {
        panic!("{:?} {:?}", here.peer, there.peer)
    };
    assert_ne!(server, client);
}

#[test]
fn a_client_without_a_certificate_is_anonymous_or_refused() {
    let issuer = issuer("trusted");
    let server = || issued(&issuer, "here.example", ALWAYS);
    let open = ends(&issuer, server(), None);
    let [here, there] = honest(open.pair()).map(Result::unwrap);
    assert!(matches!(here.peer, PeerIdentity::Certificate(_)));
    assert_eq!(there.peer, PeerIdentity::Anonymous);
    let strict = ends(&issuer, server(), Some(issued(&issuer, "there.example", ALWAYS)));
    let mixed = [open.client(b"", SUITE), strict.server(b"", SUITE)];
    let [_, refused] = honest(mixed);
    assert_eq!(refused.unwrap_err(), HandshakeError::Tls(TlsError::NoCertificate));
}

#[test]
fn certificates_that_are_no_good_say_what_to_do() {
    let (trusted, stranger) = (issuer("trusted"), issuer("stranger"));
    for (identity, expected, advice) in [
        (issued(&trusted, "here.example", (1980, 1990)), TlsError::Expired, "renew"),
        (issued(&trusted, "here.example", (2390, 2400)), TlsError::NotValidYet, "clocks"),
        (issued(&stranger, "here.example", ALWAYS), TlsError::UnknownIssuer, "add its issuer"),
        (issued(&trusted, "elsewhere.example", ALWAYS), TlsError::WrongName, "another name"),
    ] {
        let [here, there] = honest(ends(&trusted, identity, None).pair());
        let error = here.unwrap_err();
        assert_eq!(error, HandshakeError::Tls(expected));
        assert!(error.to_string().contains(advice), "{error}");
        assert_eq!(there.unwrap_err(), HandshakeError::Unfinished, "it hears no proof");
    }
}

#[test]
fn tls_refuses_a_downgrade() {
    let ends = Ends::usual();
    for (context, suite) in [(&b"other"[..], SUITE), (b"", Suite::ChaCha20Poly1305)] {
        for pair in [
            [ends.client(b"", SUITE), ends.server(context, suite)],
            [ends.client(context, suite), ends.server(b"", SUITE)],
        ] {
            let outcome = honest(pair);
            assert!(outcome.iter().all(Result::is_err), "{outcome:?}");
        }
    }
}

/// In each message, bits all over it: no end that heard it finishes.
#[test]
fn a_flipped_bit_in_tls_is_refused() {
    let ends = Ends::usual();
    for message in 0..3 {
        for at in (0..900).step_by(23) {
            let mut was_changed = false;
            let outcome = carry(ends.pair(), |nth, bytes| {
                if nth == message && at < bytes.len() {
                    bytes[at] ^= 1 << (at % 8);
                    was_changed = true;
                }
            });
            // The client has finished when it sends the last message.
            let client_may = !was_changed || message == 2;
            assert!(client_may || outcome[0].is_err(), "{message} {at}");
            assert!(!was_changed || outcome[1].is_err(), "{message} {at}");
        }
    }
}

#[test]
fn a_message_of_tls_that_is_cut_or_repeated_is_refused() {
    let ends = Ends::usual();
    for message in 0..3 {
        for keep in [0, 1, 3, 40, 200] {
            let outcome = carry(ends.pair(), |nth, bytes| {
                if nth == message {
                    bytes.truncate(keep);
                }
            });
            assert!(outcome[1].is_err(), "{message} {keep}");
        }
        let outcome = carry(ends.pair(), |nth, bytes| {
            if nth == message {
                bytes.extend_from_slice(&bytes.clone());
            }
        });
        assert!(outcome[1].is_err(), "{message}");
    }
}

/// Nobody on the way sees who the two are: certificates go encrypted.
#[test]
fn certificates_are_not_seen_on_the_way() {
    let mut seen = Vec::new();
    let outcome = carry(Ends::usual().pair(), |_, bytes| seen.extend_from_slice(bytes));
    assert!(outcome.iter().all(Result::is_ok));
    let has = |text: &[u8]| seen.windows(text.len()).any(|part| part == text);
    assert!(has(b"here.example"), "the name that is asked for is in the first message");
    assert!(!has(b"there.example"));
}
