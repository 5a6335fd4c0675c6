//! Endpoints that prove themselves by certificates and raw public keys.

use landfall::stp::rustls::RootCertStore;
use landfall::stp::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use landfall::stp::{
    BindError, Builder, Certificates, Connection, Endpoint, Error, Faults, HandshakeError, Memory,
    Peer, PeerIdentity, SecurityError, TlsError, Transport,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::{PORT, loopback, noise, run, within};

type Issuer = CertifiedIssuer<'static, KeyPair>;
type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issued_until(issuer: &Issuer, names: &[&str], year: i32) -> Shown {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(1980, 1, 1), date_time_ymd(year, 1, 1));
    params.serial_number = Some(SerialNumber::from(7u64));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (vec![certificate.into()], private(&key))
}

fn issued(issuer: &Issuer, names: &[&str]) -> Shown {
    issued_until(issuer, names, 2400)
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(key.serialize_der()).unwrap()
}

fn roots(issuer: &Issuer) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    roots
}

fn show((chain, key): Shown) -> Certificates {
    Certificates::new().show(chain, key)
}

fn builder(certificates: Certificates) -> Builder {
    over(loopback(), certificates)
}

fn over(path: Transport, certificates: Certificates) -> Builder {
    Endpoint::builder().path(path).certificates(certificates).encrypt_loopback()
}

fn bind(certificates: Certificates) -> Endpoint {
    builder(certificates).bind().unwrap()
}

/// Where an endpoint on loopback listens.
fn port_of(endpoint: &Endpoint) -> u16 {
    let Some(Peer::Socket(at)) = endpoint.local() else { panic!("no address") };
    at.port()
}

async fn transfer(from: &Connection, to: &Connection, bytes: Vec<u8>) {
    let sending = from.send(bytes.clone()).start();
    let message = within(to.receive(Memory::zeroed(bytes.len()))).await.unwrap();
    assert!(*message == bytes);
    within(sending).await.unwrap();
}

async fn joined(client: &Endpoint, server: &Endpoint) -> (Connection, Connection) {
    let (listener, to) = (server.listen(PORT).unwrap(), server.local().unwrap());
    let both = async { tokio::join!(client.connect(to, PORT), listener.accept()) };
    let (here, there) = within(both).await;
    (here.unwrap(), there.unwrap())
}

/// Why a client gets no keys of a server that listens.
async fn refusal(client: &Endpoint, server: &Endpoint) -> (HandshakeError, String) {
    let (_listener, to) = (server.listen(PORT).unwrap(), server.local().unwrap());
    match within(client.connect(to, PORT)).await {
        Err(Error::NoKeys { peer, why, advice }) => {
            (why, Error::NoKeys { peer, why, advice }.to_string())
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is connected"),
    }
}

#[test]
fn a_certificate_proves_who_listens() {
    let issuer = issuer("trusted");
    let shown = show(issued(&issuer, &["127.0.0.1"]));
    let fingerprint = shown.fingerprint();
    let server = bind(shown);
    let client = bind(Certificates::new().trust(roots(&issuer)));
    assert_eq!((server.fingerprint(), client.fingerprint()), (fingerprint, None));
    run(async {
        let (here, there) = joined(&client, &server).await;
        assert_eq!(here.peer_identity(), fingerprint.map(PeerIdentity::Certificate));
        assert_eq!(there.peer_identity(), Some(PeerIdentity::Anonymous));
        for len in [1, 1_000, 1_000_000] {
            transfer(&here, &there, noise(len as u64, len)).await;
            transfer(&there, &here, noise(len as u64, len)).await;
        }
    });
}

#[test]
fn callers_that_are_asked_show_certificates_too() {
    let (issuer, stranger) = (issuer("trusted"), issuer("stranger"));
    let shown = |names: &[&str]| show(issued(&issuer, names)).trust(roots(&issuer));
    let server = bind(shown(&["127.0.0.1"]).ask_callers().protocols(["files/1"]));
    let caller = shown(&["a caller.example"]).protocols(["files/2", "files/1"]);
    let fingerprint = caller.fingerprint();
    let caller = bind(caller);
    let nobody = bind(Certificates::new().trust(roots(&issuer)).protocols(["files/1"]));
    let other = show(issued(&stranger, &["a caller.example"])).trust(roots(&issuer));
    let other = bind(other.protocols(["files/1"]));
    let old = bind(shown(&["a caller.example"]).protocols(["files/2"]));
    run(async {
        let (here, there) = joined(&caller, &server).await;
        assert_eq!(there.peer_identity(), fingerprint.map(PeerIdentity::Certificate));
        assert_eq!(here.application_protocol().as_deref(), Some(&b"files/1"[..]));
        assert_eq!(there.application_protocol(), here.application_protocol());
        transfer(&here, &there, noise(1, 10_000)).await;
        drop((here, there));
        for (client, advice) in [
            (nobody, "asks for a certificate, and this end shows none"),
            (other, "does not trust who issued the certificate of this end"),
            (old, "no application protocol in common"),
        ] {
            let (why, said) = refusal(&client, &server).await;
            assert!(matches!(why, HandshakeError::Tls(TlsError::Refused(_))), "{why:?}");
            assert!(said.contains(advice), "{said}");
        }
    });
}

#[test]
fn certificates_that_are_no_good_are_errors_that_say_what_to_do() {
    let (issuer, stranger) = (issuer("trusted"), issuer("stranger"));
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(1985, 1, 1),
        next_update: date_time_ymd(2400, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(7u64),
            revocation_time: date_time_ymd(1985, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer).unwrap();
    let trusting = || Certificates::new().trust(roots(&issuer));
    for (server, client, expected, advice) in [
        (
            issued_until(&issuer, &["127.0.0.1"], 1990),
            trusting(),
            TlsError::Expired,
            "look at the clocks of both machines",
        ),
        (issued(&stranger, &["127.0.0.1"]), trusting(), TlsError::UnknownIssuer, "add its issuer"),
        (issued(&issuer, &["elsewhere.example"]), trusting(), TlsError::WrongName, "another name"),
        (
            issued(&issuer, &["127.0.0.1"]),
            trusting().revoked([list.into()]),
            TlsError::Revoked,
            "needs a new one",
        ),
        (issued(&issuer, &["127.0.0.1"]), Certificates::new(), TlsError::NotConfigured, "roots"),
    ] {
        let (server, client) = (bind(show(server)), bind(client));
        run(async {
            let (why, said) = refusal(&client, &server).await;
            assert_eq!(why, HandshakeError::Tls(expected), "{said}");
            assert!(said.contains(advice), "{said}");
        });
    }
}

#[test]
fn a_host_is_known_by_the_name_that_it_is_called_by() {
    let issuer = issuer("trusted");
    let server = bind(show(issued(&issuer, &["localhost", "here.example"])));
    let client = bind(Certificates::new().trust(roots(&issuer)));
    let (port, to) = (port_of(&server), server.local().unwrap());
    run(async {
        let _listener = server.listen(PORT).unwrap();
        within(client.connect(("localhost", port), PORT)).await.unwrap();
        within(client.connect(format!("localhost:{port}"), PORT)).await.unwrap();
        within(client.connect_named(to, PORT, "here.example")).await.unwrap();
        for wrong in [
            within(client.connect_named(to, PORT, "there.example")).await,
            within(client.connect(("127.0.0.1", port), PORT)).await,
        ] {
            let error = wrong.unwrap_err();
            let why = HandshakeError::Tls(TlsError::WrongName);
            assert!(matches!(error, Error::NoKeys { why: is, .. } if is == why), "{error}");
        }
    });
}

#[test]
fn raw_public_keys_take_the_place_of_certificates() {
    let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
    let shown = || keys.each_ref().map(|key| Certificates::new().show_key(private(key)));
    let [one, other, third] = shown().map(|shown| shown.fingerprint().unwrap());
    let [caller, listener, stranger] = shown();
    let server = bind(listener.trust_keys([one]).ask_callers());
    let caller = bind(caller.trust_keys([other]));
    let stranger = bind(stranger.trust_keys([other]));
    let [misled, ..] = shown();
    let misled = bind(misled.trust_keys([third]));
    run(async {
        let (here, there) = joined(&caller, &server).await;
        assert_eq!(here.peer_identity(), Some(PeerIdentity::Certificate(other)));
        assert_eq!(there.peer_identity(), Some(PeerIdentity::Certificate(one)));
        transfer(&here, &there, noise(2, 50_000)).await;
        drop((here, there));
        let (why, _) = refusal(&stranger, &server).await;
        assert!(matches!(why, HandshakeError::Tls(TlsError::Refused(_))), "{why:?}");
        let (why, _) = refusal(&misled, &server).await;
        assert_eq!(why, HandshakeError::Tls(TlsError::UnknownIssuer));
    });
}

#[test]
fn sessions_are_resumed_and_only_named_peers_come_in() {
    let issuer = issuer("trusted");
    let shown = |names: &[&str]| show(issued(&issuer, names)).trust(roots(&issuer));
    let caller = shown(&["one.example"]);
    let only = caller.fingerprint();
    let server = shown(&["127.0.0.1"]).ask_callers();
    let server = builder(server).only_peers(only).bind().unwrap();
    let (caller, other) = (bind(caller), bind(shown(&["other.example"])));
    run(async {
        for nth in 0..3 {
            let (here, there) = joined(&caller, &server).await;
            assert_eq!(there.peer_identity(), only.map(PeerIdentity::Certificate));
            // What was said after the handshake came behind the tickets.
            transfer(&there, &here, noise(nth, 1_000)).await;
            assert_eq!(server.stats().seal.resumed, nth);
            assert_eq!(caller.stats().seal.resumed, nth);
        }
        let (why, said) = refusal(&other, &server).await;
        assert!(matches!(why, HandshakeError::Tls(TlsError::Refused(_))), "{why:?}");
        assert!(said.contains("lets others in"), "{said}");
    });
}

#[test]
fn certificates_survive_faults() {
    let faults =
        Faults { loss: 50_000, duplication: 50_000, reordering: 50_000, ..Faults::default() };
    let issuer = issuer("trusted");
    for seed in 0..6 {
        let bind = |certificates, seed| {
            let path = loopback().with_faults(faults, [seed; 32]);
            over(path, certificates).bind().unwrap()
        };
        let server = bind(show(issued(&issuer, &["127.0.0.1"])), seed);
        let client = bind(Certificates::new().trust(roots(&issuer)), seed + 100);
        run(async {
            let (here, there) = joined(&client, &server).await;
            transfer(&here, &there, noise(seed.into(), 100_000)).await;
        });
    }
}

#[test]
fn other_ways_to_prove_oneself_are_no_way_in() {
    let issuer = issuer("trusted");
    let server = bind(show(issued(&issuer, &["127.0.0.1"])));
    let to = server.local().unwrap();
    let with_key = Endpoint::builder().path(loopback()).preshared_key([1; 32]).encrypt_loopback();
    let plain = Endpoint::builder().path(loopback()).plaintext();
    run(async {
        let _listener = server.listen(PORT).unwrap();
        for client in [with_key, plain].map(|builder| builder.bind().unwrap()) {
            let connecting = client.connect(to, PORT);
            let tried = tokio::time::timeout(std::time::Duration::from_millis(300), connecting);
            assert!(!matches!(tried.await, Ok(Ok(_))));
        }
        assert_eq!(server.stats().connections, 0);
    });
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_the_start() {
    let issuer = issuer("trusted");
    let ((chain, _), (_, key)) = (issued(&issuer, &["one"]), issued(&issuer, &["two"]));
    let mixed = Certificates::new().show(chain, key);
    let asks = show(issued(&issuer, &["127.0.0.1"])).ask_callers();
    for (certificates, expected) in [(mixed, "key"), (asks, "nobody is trusted")] {
        let error = builder(certificates).bind().unwrap_err();
        assert!(matches!(error, BindError::Security(SecurityError::Identity(_))), "{error}");
        let said = format!("{:#}", anyhow::Error::from(error));
        assert!(said.to_lowercase().contains(expected), "{said}");
    }
}
