//! Associations by TLS: handshakes that are longer than a packet, over a network that anybody may
//! change; who is refused and why; sessions that are resumed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_placement::{Duration, Engine as _, Peer, Refusal};
use landfall_seal::{
    Certificates, Expected, Fingerprint, HandshakeError, PeerIdentity, Proof, PublicKey, Role,
    SealConfig, TlsError, Trust, TrustAnybody,
};
use landfall_testkit::model::Faults;
use landfall_testkit::trials::noise;
use rcgen::{CertificateParams, CertificateRevocationListParams, KeyPair, SerialNumber};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::sealed::{Two, Wire, pair, psk, shows_text, text};
use crate::tls::{ALWAYS, Ends, Identity, Issuer, ends, issued, issuer, roots};

/// The longest unit of a handshake by TLS.
const UNIT: usize = 256;

impl Ends {
    pub(crate) fn proofs(&self) -> [Proof; 2] {
        let client = Certificates { client: Some(Arc::clone(&self.client)), server: None };
        let server = Certificates { client: None, server: Some(Arc::clone(&self.server)) };
        [client, server].map(Proof::Certificates)
    }
}

/// A certificate with this many other names that it is several KB long.
fn long(issuer: &Issuer, name: &str) -> Identity {
    let others = (0..150).map(|nth| format!("another-name-{nth}.of-the-same.example"));
    let names: Vec<String> = [name.to_owned()].into_iter().chain(others).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
    assert!(certificate.der().len() > 5_000);
    (certificate.into(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

fn long_ends() -> Ends {
    let issuer = issuer("trusted");
    ends(&issuer, long(&issuer, "here.example"), Some(long(&issuer, "there.example")))
}

/// The messages of a handshake by TLS, put together from these units as a listener does: a text may
/// lie across a cut, since rustls puts the extensions of a hello in another order each time.
fn messages(seen: &[Vec<u8>]) -> Vec<Vec<u8>> {
    /// Where the number of the message, that of the chunk, and its bytes lie.
    const CHUNK: (usize, usize, usize) = (12, 13, 32);
    /// The number of a chunk where there is none, and what is set beside a number.
    const NO_CHUNK: u8 = 0x7f;
    let mut chunks: BTreeMap<u8, BTreeMap<u8, &[u8]>> = BTreeMap::new();
    for unit in seen.iter().filter(|unit| (0xe1..=0xe3).contains(&unit[0])) {
        let (message, chunk) = (unit[CHUNK.0], unit[CHUNK.1] & NO_CHUNK);
        if chunk != NO_CHUNK {
            chunks.entry(message).or_default().insert(chunk, &unit[CHUNK.2..]);
        }
    }
    chunks.into_values().map(|parts| parts.into_values().flatten().copied().collect()).collect()
}

/// Runs until the caller has failed; says why.
fn failure(two: &mut Two) -> HandshakeError {
    for _ in 0..2_000 {
        two.hear();
        let peer = two.peer;
        if let Some(why) = two.end(0).failure(peer) {
            return why;
        }
        if !two.turn() && !two.wire.pass_time() {
            break;
        }
    }
    panic!("no handshake failed");
}

#[test]
fn certificates_prove_both_ends_and_nothing_of_a_transfer_is_seen() {
    let ends = Ends::usual();
    let mut two = Two::new(ends.proofs(), Faults::default(), 1);
    two.connect();
    two.transfer(&text(20_000));
    let peer = two.peer;
    let server = two.end(0).identity(peer).unwrap();
    let client = two.seen.iter().find(|unit| unit[0] == 0xe2).unwrap()[8..12].try_into().unwrap();
    let client = two.end(1).identity(Peer::Node(u32::from_be_bytes(client))).unwrap();
    assert!(matches!(server, PeerIdentity::Certificate(_)), "{server:?}");
    assert!(matches!(client, PeerIdentity::Certificate(_)) && client != server, "{client:?}");
    assert!(two.seen.iter().all(|unit| !shows_text(unit)));
    let handshake = two.seen.iter().filter(|unit| unit[0] != 0xe0);
    let messages = messages(&two.seen);
    assert_eq!(messages.len(), 4, "a hello, the answer, the caller's proof, a ticket");
    let has = |message: &[u8], text: &[u8]| message.windows(text.len()).any(|part| part == text);
    assert!(has(&messages[0], b"here.example"), "the name that is asked for is in the first");
    assert!(!messages.iter().any(|message| has(message, b"there.example")), "certificates are not");
    assert!(!messages[1..].iter().any(|message| has(message, b"here.example")), "nor the other");
    assert!(handshake.clone().all(|unit| unit.len() <= UNIT));
    for side in 0..2 {
        let stats = two.end(side).seal_stats();
        assert_eq!((stats.established, stats.resumed, stats.failed), (1, 0, 0));
    }
    two.wire.check_contract();
}

#[test]
fn handshakes_longer_than_a_packet_survive_every_mix_of_faults() {
    let ends = long_ends();
    for seed in 0..24 {
        let part = |bit: u64| if seed >> bit & 1 == 1 { 100_000 } else { 0 };
        let faults = Faults {
            loss: part(0),
            duplication: part(1),
            reordering: part(2),
            ..Faults::default()
        };
        let mut two = Two::new(ends.proofs(), faults, seed);
        two.connect();
        two.transfer(&text(9_000));
        assert!(two.end(1).seal_stats().failed == 0, "seed {seed}");
    }
}

/// Every unit of a handshake is lost once.
#[test]
fn any_unit_of_a_handshake_may_be_lost() {
    let ends = Ends::usual();
    for lost in 0..40 {
        let mut two = Two::new(ends.proofs(), Faults::default(), 3);
        let mut nth = 0;
        for _ in 0..200 {
            let mut moved = false;
            for side in 0..2 {
                for packet in two.wire.said(side) {
                    moved = true;
                    if nth != lost {
                        two.wire.hand_in(1 - side, &[packet]);
                    }
                    nth += 1;
                }
            }
            if nth > lost {
                break;
            }
            if !moved && !two.wire.pass_time() {
                break;
            }
        }
        two.connect();
        two.transfer(&text(2_000));
    }
}

#[test]
fn a_caller_that_has_not_shown_its_address_gets_three_times_what_it_sent() {
    let ends = long_ends();
    let mut two = Two::new(ends.proofs(), Faults::default(), 2);
    let (mut asked, mut answered, mut most) = (0, 0, 0);
    // Its answers are lost. It asks again and again.
    for _ in 0..100 {
        let first = two.wire.said(0);
        assert!(first.iter().all(|unit| unit[0] == 0xe1 && unit.len() == UNIT));
        for unit in first {
            asked += unit.len();
            two.wire.hand_in(1, &[unit]);
            answered += two.wire.said(1).iter().map(Vec::len).sum::<usize>();
            assert!(answered <= 3 * asked, "{answered} bytes for {asked}");
            most = most.max(answered);
        }
        if !two.wire.pass_time() {
            break;
        }
    }
    assert!(most > 2_000, "it is answered at all: {most}");
    assert_eq!(two.end(1).associations(), 1);
}

/// A crowd of callers that say nothing more: who comes then hears of a cookie, and is let in with it.
#[test]
fn in_a_crowd_callers_with_certificates_prove_their_addresses() {
    let ends = Ends::usual();
    let configs = ends.proofs().map(|proof| SealConfig { half_open: 8, ..SealConfig::new(proof) });
    let mut two = Two::with(configs, Faults::default(), 7, || Box::new(TrustAnybody));
    let now = two.wire.now;
    for _ in 0..6 {
        let expected = Expected { name: Some("here.example"), ..Expected::default() };
        two.end(0).associate_with(now, Wire::PATH, Peer::Node(1), expected).unwrap();
    }
    let crowd = two.wire.said(0);
    two.wire.hand_in(1, &crowd);
    let answers = two.wire.said(1);
    let (retries, others): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer[0] == 0xe4);
    assert!(retries.iter().all(|retry| retry.len() == 28));
    assert_eq!(two.end(1).associations(), 4, "the other three are forgotten");
    // One hears of its cookie, comes again and is remembered. One that makes it up is not.
    let is_it = |retry: &&Vec<u8>| retry[4..8] == retries[0][4..8];
    let its: Vec<_> = retries.iter().filter(is_it).cloned().collect();
    two.wire.hand_in(0, &its);
    let again = two.wire.said(0);
    let mut made_up = again.clone();
    made_up.iter_mut().for_each(|unit| unit[8] ^= 1);
    two.wire.hand_in(1, &made_up);
    assert_eq!(two.end(1).associations(), 4);
    two.wire.hand_in(1, &again);
    assert_eq!(two.end(1).associations(), 5);
    // The others come again when nobody has answered them, and all get their keys.
    two.wire.hand_in(0, &others);
    for _ in 0..200 {
        if two.end(1).seal_stats().established == 7 {
            break;
        }
        if !two.turn() && !two.wire.pass_time() {
            break;
        }
    }
    assert_eq!(two.end(0).seal_stats().established, 7);
    assert_eq!(two.end(1).seal_stats().established, 7);
}

/// Accepts what is signed, and counts how often it was asked.
#[derive(Debug)]
struct Counting(Arc<WebPkiServerVerifier>, AtomicU32);

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verify_server_cert(end, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[test]
fn a_resumed_handshake_does_no_work_with_certificates() {
    let issuer = issuer("trusted");
    let verifier = WebPkiServerVerifier::builder(roots(&issuer)).build().unwrap();
    let verifier = Arc::new(Counting(verifier, AtomicU32::new(0)));
    let shared: Arc<dyn ServerCertVerifier> = Arc::<Counting>::clone(&verifier);
    let client = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(shared)
        .with_no_client_auth();
    let usual = ends(&issuer, issued(&issuer, "here.example", ALWAYS), None);
    let ends = Ends { client: Arc::new(client), ..usual };
    let mut lengths = Vec::new();
    for nth in 0..4 {
        let mut two = Two::new(ends.proofs(), Faults::default(), nth);
        two.connect();
        two.transfer(&text(1_000));
        let resumed = u64::from(nth > 0);
        assert_eq!(verifier.1.load(Ordering::Relaxed), 2, "certificate and signature, once");
        for side in 0..2 {
            let stats = two.end(side).seal_stats();
            assert_eq!((stats.established, stats.resumed), (1, resumed), "{nth}");
        }
        let peer = two.peer;
        assert!(matches!(two.end(0).identity(peer), Some(PeerIdentity::Certificate(_))));
        lengths.push(two.seen.iter().filter(|unit| unit[0] == 0xe2).map(Vec::len).sum::<usize>());
    }
    assert!(lengths[1] + 300 < lengths[0], "the responder says less: {lengths:?}");
}

#[test]
fn certificates_that_are_refused_say_so_at_both_ends() {
    let (trusted, stranger) = (issuer("trusted"), issuer("stranger"));
    let good = || issued(&trusted, "here.example", ALWAYS);
    // The callee's, as the caller finds it.
    for (identity, expected) in [
        (issued(&trusted, "here.example", (1980, 1990)), TlsError::Expired),
        (issued(&trusted, "here.example", (2390, 2400)), TlsError::NotValidYet),
        (issued(&stranger, "here.example", ALWAYS), TlsError::UnknownIssuer),
        (issued(&trusted, "elsewhere.example", ALWAYS), TlsError::WrongName),
    ] {
        let mut two = Two::new(ends(&trusted, identity, None).proofs(), Faults::default(), 1);
        assert_eq!(failure(&mut two), HandshakeError::Tls(expected));
        two.turn();
        assert_eq!(two.end(1).seal_stats().established, 0);
        assert_eq!(two.end(1).seal_stats().failed, 1, "it heard why");
    }
    // The caller's, as it hears from the callee, whichever unit is lost.
    for seed in 0..8 {
        for (identity, advice) in [
            (issued(&trusted, "there.example", (1980, 1990)), "clocks of both machines"),
            (issued(&stranger, "there.example", ALWAYS), "add the issuer to its roots"),
        ] {
            let loss = if seed == 0 { 0 } else { 200_000 };
            let faults = Faults { loss, ..Faults::default() };
            let ends = ends(&trusted, good(), Some(identity));
            let why = failure(&mut Two::new(ends.proofs(), faults, seed));
            assert!(matches!(why, HandshakeError::Tls(TlsError::Refused(_))), "{why:?}");
            assert!(why.to_string().contains(advice), "{why}");
        }
    }
    // It shows none, and has to.
    let strict = ends(&trusted, good(), Some(issued(&trusted, "there.example", ALWAYS)));
    let open = ends(&trusted, good(), None);
    let mixed = Ends { client: open.client, server: strict.server };
    let why = failure(&mut Two::new(mixed.proofs(), Faults::default(), 1));
    assert!(why.to_string().contains("shows none"), "{why}");
}

#[test]
fn a_revoked_certificate_is_refused_and_so_is_one_of_which_nothing_fresh_is_known() {
    let trusted = issuer("trusted");
    let key = KeyPair::generate().unwrap();
    let serial = SerialNumber::from(7u64);
    let mut params = CertificateParams::new(["here.example".to_owned()]).unwrap();
    params.serial_number = Some(serial.clone());
    let certificate = params.signed_by(&key, &trusted).unwrap();
    let identity =
        || (certificate.clone().into(), PrivateKeyDer::try_from(key.serialize_der()).unwrap());
    for (revoked, until, expected) in
        [(true, 2400, TlsError::Revoked), (false, 1990, TlsError::UnknownRevocation)]
    {
        let entry = rcgen::RevokedCertParams {
            serial_number: if revoked { serial.clone() } else { SerialNumber::from(8u64) },
            revocation_time: rcgen::date_time_ymd(1985, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(1985, 1, 1),
            next_update: rcgen::date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: vec![entry],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&trusted).unwrap();
        let verifier = WebPkiServerVerifier::builder(roots(&trusted))
            .with_crls([list.into()])
            .enforce_revocation_expiration()
            .build()
            .unwrap();
        let client = ClientConfig::builder().with_webpki_verifier(verifier).with_no_client_auth();
        let usual = ends(&trusted, identity(), None);
        let ends = Ends { client: Arc::new(client), ..usual };
        let why = failure(&mut Two::new(ends.proofs(), Faults::default(), 1));
        assert_eq!(why, HandshakeError::Tls(expected));
    }
}

/// A clock that stands.
#[derive(Debug)]
struct Year(u64);

impl TimeProvider for Year {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            (self.0 - 1970) * 31_556_952,
        )))
    }
}

#[test]
fn wrong_clocks_say_so() {
    let trusted = issuer("trusted");
    let server = || issued(&trusted, "here.example", (2020, 2040));
    let usual = ends(&trusted, server(), None);
    for (year, expected) in [(1971, TlsError::NotValidYet), (2050, TlsError::Expired)] {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_details(provider, Arc::new(Year(year)))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots(&trusted))
            .with_no_client_auth();
        let ends = Ends { client: Arc::new(client), server: Arc::clone(&usual.server) };
        let why = failure(&mut Two::new(ends.proofs(), Faults::default(), 1));
        assert_eq!(why, HandshakeError::Tls(expected));
        assert!(why.to_string().contains("clocks of both machines"), "{why}");
    }
}

/// Neither end is made to prove itself in another way than it was told to.
#[test]
fn certificates_are_not_exchanged_for_another_proof() {
    let ends = Ends::usual;
    let of = |side: usize| {
        let [client, server] = ends().proofs();
        if side == 0 { client } else { server }
    };
    for proofs in [[of(0), psk(1)], [of(0), pair(1)], [psk(1), of(1)], [pair(1), of(1)]] {
        let mut two = Two::new(proofs, Faults::default(), 1);
        assert_eq!(failure(&mut two), HandshakeError::Unfinished);
        assert_eq!(two.end(1).associations(), 0);
        assert_eq!(two.end(1).seal_stats().established, 0);
    }
}

#[test]
fn who_has_no_name_or_no_roots_hears_what_to_do() {
    let ends = Ends::usual();
    let [client, server] = ends.proofs();
    let mut two = Two::new([server, client], Faults::default(), 1);
    assert_eq!(failure(&mut two), HandshakeError::Tls(TlsError::NotConfigured));
    let mut two = Two::new(ends.proofs(), Faults::default(), 1);
    let now = two.wire.now;
    two.peer = two.end(0).associate(now, Wire::PATH, Peer::Node(1), None).unwrap();
    assert_eq!(failure(&mut two), HandshakeError::Tls(TlsError::NoName));
}

#[test]
fn a_pinned_certificate_must_be_the_right_one() {
    let issuer = issuer("trusted");
    let server = issued(&issuer, "here.example", ALWAYS);
    let shown = Fingerprint::of_certificate(&server.0);
    let ends = ends(&issuer, server, None);
    for pinned in [shown, Fingerprint([7; 20])] {
        let mut two = Two::new(ends.proofs(), Faults::default(), 1);
        two.connect();
        let now = two.wire.now;
        let name = Some("here.example");
        let expected = Expected { pinned: Some(pinned), name, ..Expected::default() };
        two.peer = two.end(0).associate_with(now, Wire::PATH, Peer::Node(1), expected).unwrap();
        for _ in 0..50 {
            if !two.turn() {
                two.wire.pass_time();
            }
        }
        let peer = two.peer;
        let expected = (pinned != shown).then_some(HandshakeError::WrongPeer(shown));
        assert_eq!(two.end(0).failure(peer), expected);
        assert_eq!(two.end(1).seal_stats().established, 1 + u64::from(pinned == shown));
    }
}

/// Lets nobody in.
struct TrustNobody;

impl Trust for TrustNobody {
    fn check(&mut self, _: Role, _: Peer, _: PublicKey) -> Result<(), HandshakeError> {
        Err(HandshakeError::NotProven)
    }

    fn check_certificate(
        &mut self,
        role: Role,
        _: Peer,
        shown: Option<Fingerprint>,
    ) -> Result<(), HandshakeError> {
        let shown = shown.expect("both ends show one");
        if role == Role::Responder { Err(HandshakeError::WrongPeer(shown)) } else { Ok(()) }
    }
}

/// Anyone who it is, and whatever its issuer: it hears that it was refused, and that alone.
#[test]
fn who_is_not_let_in_hears_so() {
    let ends = Ends::usual();
    for seed in 0..4 {
        let configs = ends.proofs().map(SealConfig::new);
        let loss = if seed == 0 { 0 } else { 100_000 };
        let faults = Faults { loss, ..Faults::default() };
        let mut two = Two::with(configs, faults, seed, || Box::new(TrustNobody));
        let why = failure(&mut two);
        assert!(why.to_string().contains("lets others in"), "{why}");
        assert_eq!(two.end(1).seal_stats().established, 0);
    }
}

#[test]
fn an_application_protocol_is_agreed_on_or_refused() {
    let issuer = issuer("trusted");
    let usual = ends(&issuer, issued(&issuer, "here.example", ALWAYS), None);
    let with = |client: &[&str], server: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (mut one, mut other) = ((*usual.client).clone(), (*usual.server).clone());
        (one.alpn_protocols, other.alpn_protocols) = (names(client), names(server));
        Ends { client: Arc::new(one), server: Arc::new(other) }
    };
    let mut two = Two::new(with(&["a", "b"], &["b"]).proofs(), Faults::default(), 1);
    two.connect();
    let peer = two.peer;
    assert_eq!(two.end(0).application_protocol(peer), Some(&b"b"[..]));
    let mut two = Two::new(with(&["a"], &["b"]).proofs(), Faults::default(), 1);
    let why = failure(&mut two);
    assert!(why.to_string().contains("no application protocol"), "{why}");
}

/// A bit of each unit of a handshake, in turn: there are keys at both ends or an error, and what is
/// transferred then is what was sent.
#[test]
fn a_flipped_bit_in_any_unit_ends_a_handshake_or_changes_nothing() {
    let ends = Ends::usual();
    let mut is_unhurt = 0;
    for flipped in 0..240 {
        let mut two = Two::new(ends.proofs(), Faults::default(), 3);
        let (mut nth, mut is_over) = (0, false);
        for _ in 0..400 {
            let mut moved = false;
            for side in 0..2 {
                for mut packet in two.wire.said(side) {
                    moved = true;
                    if nth == flipped / 12 && packet[0] != 0xe0 {
                        let at = (flipped * 37 + 5) % packet.len();
                        packet[at] ^= 1 << (flipped % 8);
                    }
                    nth += 1;
                    two.wire.hand_in(1 - side, &[packet]);
                }
            }
            let peer = two.peer;
            is_over |= two.end(0).failure(peer).is_some();
            is_over |= two.end(0).seal_stats().opened > 0;
            if is_over || !moved && !two.wire.pass_time() {
                break;
            }
        }
        let peer = two.peer;
        if two.end(0).seal_stats().opened > 0 {
            is_unhurt += 1;
            two.connect();
            two.transfer(&text(1_000));
        } else {
            assert!(two.end(0).failure(peer).is_some() || two.end(1).seal_stats().opened == 0);
        }
    }
    assert!(is_unhurt > 20, "{is_unhurt}");
}

/// Any bytes, and any that look like messages of TLS.
#[test]
fn no_bytes_make_an_end_with_certificates_panic() {
    let ends = Ends::usual();
    let mut two = Two::new(ends.proofs(), Faults::default(), 1);
    for (nth, mut bytes) in (0..4_000u64).map(|nth| (nth, noise(nth, (nth % 300) as usize))) {
        for (at, byte) in [(0, 0xe1 + (nth % 4) as u8), (1, 1), (2, 1), (3, 3), (12, 1)] {
            if let Some(place) = bytes.get_mut(at).filter(|_| nth % 5 > 0) {
                *place = byte;
            }
        }
        two.wire.inject((nth % 2) as usize, bytes);
        if nth % 16 == 0 {
            two.turn();
        }
    }
    assert!(two.end(1).associations() <= 257);
    let mut two = Two::new(ends.proofs(), Faults::default(), 1);
    two.connect();
    two.transfer(&text(3_000));
}

/// What an idle association by TLS keeps is no more than one by key pairs keeps.
#[test]
fn nothing_of_a_handshake_is_kept() {
    let ends = long_ends();
    let mut two = Two::new(ends.proofs(), Faults::default(), 1);
    two.connect();
    two.transfer(&text(1_000));
    let start = two.wire.now;
    while two.wire.now.since(start) < Duration::from_secs(5) {
        if !two.turn() && !two.wire.pass_time() {
            break;
        }
    }
    for side in 0..2 {
        assert!(!format!("{:?}", two.end(side)).contains("Talk {"), "end {side}");
    }
}

/// What somebody makes of a unit who sees it, and is faster.
const FORGERIES: [fn(&mut Vec<u8>); 5] = [
    // Another chunk.
    |unit| unit.get_mut(40).into_iter().for_each(|byte| *byte ^= 1),
    // The end of it.
    |unit| *unit.last_mut().unwrap() ^= 1,
    // A message of another length.
    |unit| unit[15] ^= 3,
    // Of another end.
    |unit| unit[9] ^= 1,
    // All of it came.
    |unit| unit[16..32].fill(0xff),
];

/// One unit was made up, and came before the true one.
#[test]
fn a_made_up_unit_delays_a_handshake_and_does_not_end_it() {
    for (kind, forge) in FORGERIES.into_iter().enumerate() {
        let mut most = 0;
        for forged in 0..60 {
            println!("kind {kind}, unit {forged}");
            // Others each time: a session that is resumed shows no certificates.
            let mut two = Two::new(long_ends().proofs(), Faults::default(), 3);
            let mut nth = 0;
            while nth <= forged {
                let mut moved = false;
                for side in 0..2 {
                    for packet in two.wire.said(side) {
                        moved = true;
                        if nth == forged && packet[0] != 0xe0 {
                            let mut made_up = packet.clone();
                            forge(&mut made_up);
                            two.wire.hand_in(1 - side, &[made_up]);
                            most = forged;
                        }
                        two.wire.hand_in(1 - side, &[packet]);
                        nth += 1;
                    }
                }
                if !moved && !two.wire.pass_time() {
                    break;
                }
            }
            two.connect();
            two.transfer(&text(2_000));
            let peer = two.peer;
            assert!(two.end(0).failure(peer).is_none(), "kind {kind}, unit {forged}");
        }
        assert!(most > 30, "{most}");
    }
}

/// The numbers of both ends are random: who does not see them is not heard.
#[test]
fn who_does_not_see_a_handshake_by_certificates_changes_nothing() {
    let ends = Ends::usual();
    let mut two = Two::new(ends.proofs(), Faults::default(), 5);
    for _ in 0..200 {
        let mut moved = false;
        for side in 0..2 {
            for packet in two.wire.said(side) {
                moved = true;
                // A first message names nobody yet.
                for number in (1..20_u32).filter(|_| packet[0] != 0xe1) {
                    let mut made_up = packet.clone();
                    made_up[4..8].copy_from_slice(&number.to_be_bytes());
                    *made_up.last_mut().unwrap() ^= 1;
                    two.wire.hand_in(1 - side, &[made_up]);
                }
                two.wire.hand_in(1 - side, &[packet]);
            }
        }
        if !moved && !two.wire.pass_time() {
            break;
        }
    }
    two.connect();
    two.transfer(&text(2_000));
    for side in 0..2 {
        let stats = two.end(side).seal_stats();
        assert_eq!((stats.established, stats.failed), (1, 0));
        let refused = two.end(side).refusals().of(Refusal::UnknownId);
        assert!(refused > 20, "{refused}");
    }
}
