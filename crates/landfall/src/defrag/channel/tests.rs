//! A gate, senders, and somebody who owns the wire between them, in virtual time.

use landfall_placement::{Duration, Instant, Refusal};
use spec_defrag::admission::envelope::{ENVELOPE_MAX, KIND};
use spec_defrag::admission::{
    ControlFrame, Envelope, Gate, GateConfig, Mac, Mode, Requester, RequesterConfig, TransferId,
};

use super::{Channel, ReceiverAddress};
use crate::security::{Identity, KnownPeers, Security};

const RECEIVER: Mac = [2, 0, 0, 0, 0, 2];
const SENDER: Mac = [2, 0, 0, 0, 0, 1];
const NAME: &str = "gate.example";
const STEP: Duration = Duration::from_micros(100);

/// A receiver that is asked, by the name of its certificate if it has one.
fn to(station: Mac) -> ReceiverAddress {
    ReceiverAddress { station, name: Some(NAME.into()) }
}

/// Proves itself with a new key; remembers receivers as long as it lives.
fn keyed() -> Security {
    let mut security = Security::default();
    security.set_identity(Identity::generate().unwrap());
    security.set_known_peers(KnownPeers::in_memory());
    security
}

fn shared(key: u8) -> Security {
    let mut security = Security::default();
    security.set_preshared_key([key; 32]);
    security
}

fn plain() -> Security {
    let mut security = Security::default();
    security.is_plain = true;
    security
}

#[cfg(feature = "certificates")]
mod certificates {
    //! Ends that prove themselves by certificates.

    use landfall_seal::{HandshakeError, PeerIdentity};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
    };
    use rustls::RootCertStore;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::security::Certificates;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn issuer(name: &str) -> Issuer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// Shows a certificate for this name until that year.
    fn shown(issuer: &Issuer, name: &str, year: i32) -> Certificates {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let (from, to) = (date_time_ymd(1980, 1, 1), date_time_ymd(year, 1, 1));
        (params.not_before, params.not_after) = (from, to);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Certificates::new().show(vec![certificate.into()], key)
    }

    fn roots(issuer: &Issuer) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).unwrap();
        roots
    }

    fn by(certificates: Certificates) -> Security {
        let mut security = Security::default();
        security.set_certificates(certificates);
        security
    }

    fn gate(issuer: &Issuer) -> Security {
        by(shown(issuer, NAME, 2400))
    }

    fn sender(issuer: &Issuer) -> Security {
        by(Certificates::new().trust(roots(issuer)))
    }

    fn is_handshake(frame: &[u8]) -> bool {
        Envelope::parse(frame).is_ok_and(|envelope| matches!(envelope.unit[0], 0xe1..=0xe3))
    }

    #[test]
    fn admission_by_certificates_is_granted_and_read_by_nobody() {
        let issuer = issuer("trusted");
        let mut world = World::new(gate(&issuer), [(sender(&issuer), SENDER)]);
        world.run_in_peace(millis(200));
        assert!(world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 1);
        assert!(world.senders[0].channel.no_keys().is_none());
        let count = world.passed.iter().filter(|frame| is_handshake(frame)).count();
        assert!(count > 6, "{count} frames of a handshake: it is in parts");
        for frame in &world.passed {
            assert!(frame.len() <= ENVELOPE_MAX);
            assert!(!frame[19..].windows(4).any(|part| part == b"LFAC"), "a message is in clear");
            assert!(
                !frame.windows(NAME.len()).any(|part| part == NAME.as_bytes()) || frame[22] == 0xe1
            );
        }
        let [(source, _)] = world.receiver.gate.fast(world.now).collect::<Vec<_>>()[..] else {
            panic!("one is fast");
        };
        let asker = world.receiver.channel.asker(source);
        assert_eq!(asker, Some((SENDER, Some(PeerIdentity::Anonymous))));
    }

    #[test]
    fn a_gate_that_asks_for_certificates_lets_in_those_who_show_one() {
        let (trusted, other) = (issuer("trusted"), issuer("another"));
        let gate = || by(shown(&trusted, NAME, 2400).trust(roots(&trusted)).ask_callers());
        let asks = |issuer: &Issuer, year| {
            by(shown(issuer, "sender.example", year).trust(roots(&trusted)))
        };
        let mut world = World::new(gate(), [(asks(&trusted, 2400), SENDER)]);
        world.run_in_peace(millis(200));
        assert!(world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 1);
        for wrong in [asks(&other, 2400), asks(&trusted, 1990), sender(&trusted)] {
            let mut world = World::new(gate(), [(wrong, SENDER)]);
            world.run_in_peace(Duration::from_secs(2));
            assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
            let why = world.senders[0].channel.no_keys().expect("it hears so");
            assert!(matches!(why.why, HandshakeError::Tls(_)), "{why}");
        }
    }

    #[test]
    fn a_gate_whose_certificate_is_no_good_grants_nothing_and_the_error_says_what_to_do() {
        let (trusted, other) = (issuer("trusted"), issuer("another"));
        for (shown, words) in [
            (shown(&trusted, NAME, 1990), "expired"),
            (shown(&other, NAME, 2400), "issuer"),
            (shown(&trusted, "other.example", 2400), "name"),
        ] {
            let mut world = World::new(by(shown), [(sender(&trusted), SENDER)]);
            world.run_in_peace(Duration::from_secs(2));
            assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
            let why = world.senders[0].channel.no_keys().expect("it says so").to_string();
            assert!(why.contains("02:00:00:00:00:02") && why.contains(words), "{why}");
        }
        // And one that proves itself in another way gets no answer that counts.
        let mut world = World::new(keyed(), [(sender(&trusted), SENDER)]);
        world.run_in_peace(Duration::from_secs(2));
        assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
    }

    /// Anyone who sees the parts of a handshake makes up others, which come before the true ones or
    /// behind them.
    #[test]
    fn made_up_parts_of_a_handshake_neither_end_nor_stall_admission() {
        let issuer = issuer("trusted");
        for is_first in [true, false] {
            for nth in 0..24 {
                let mut world = World::new(gate(&issuer), [(sender(&issuer), SENDER)]);
                let mut seen = 0;
                world.run(Duration::from_secs(3), |world, frame| {
                    if !is_handshake(frame) {
                        return true;
                    }
                    seen += 1;
                    if seen != nth + 1 {
                        return true;
                    }
                    let mut made_up = frame.to_vec();
                    // A byte of the part itself, behind its head.
                    if let Some(byte) = made_up.get_mut(22 + 32 + nth) {
                        *byte ^= 0x20;
                    }
                    let now = world.now;
                    if !is_first {
                        world.receiver.hear(now, frame);
                        world.hear_all(frame);
                    }
                    world.receiver.hear(now, &made_up);
                    world.hear_all(&made_up);
                    is_first
                });
                let sender = &world.senders[0];
                assert!(
                    sender.is_fast(world.now),
                    "{nth} {is_first}: {:?}",
                    sender.channel.no_keys()
                );
                assert_eq!(world.receiver.fast(world.now), 1);
            }
        }
    }
}

/// A gate and its way.
struct Receiver {
    gate: Gate,
    channel: Channel,
}

impl Receiver {
    fn new(security: Security) -> Self {
        let gate = Gate::new(GateConfig::new(RECEIVER), [1; 32]).unwrap();
        let channel = Channel::of_gate(security, RECEIVER, 16, None).unwrap();
        Self { gate, channel }
    }

    fn hear(&mut self, now: Instant, frame: &[u8]) {
        let gate = &mut self.gate;
        self.channel.handle_frame(now, frame, |frame| {
            let _ = gate.handle_frame(now, frame);
        });
    }

    fn say(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.gate.handle_timeout(now);
        self.channel.handle_timeout(now);
        while let Some(frame) = self.gate.poll_transmit(now) {
            self.channel.send(now, frame);
        }
        std::iter::from_fn(|| self.channel.poll_frame(now)).collect()
    }

    fn fast(&self, now: Instant) -> usize {
        self.gate.fast(now).count()
    }
}

/// A requester and its way.
struct Sender {
    station: Mac,
    requester: Requester,
    channel: Channel,
    transfer: TransferId,
}

impl Sender {
    /// One that asks at once.
    fn new(security: Security, station: Mac, now: Instant) -> Self {
        let config = RequesterConfig::new(station, RECEIVER);
        let mut requester = Requester::new(config, [station[5]; 32]).unwrap();
        let channel = Channel::of_sender(security, station, to(RECEIVER), None).unwrap();
        let transfer = requester.ask(now).unwrap();
        Self { station, requester, channel, transfer }
    }

    fn hear(&mut self, now: Instant, frame: &[u8]) {
        let requester = &mut self.requester;
        self.channel.handle_frame(now, frame, |frame| {
            let _ = requester.handle_frame(now, frame);
        });
    }

    fn say(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.requester.handle_timeout(now);
        self.channel.handle_timeout(now);
        let is_due = self.requester.poll_timeout().is_some_and(|at| at <= now);
        if !is_due || self.channel.may_ask(now) {
            while let Some(frame) = self.requester.poll_transmit(now) {
                self.channel.send(now, frame);
            }
        }
        std::iter::from_fn(|| self.channel.poll_frame(now)).collect()
    }

    fn is_fast(&self, now: Instant) -> bool {
        matches!(self.requester.mode(now), Mode::Fast { .. })
    }
}

/// All of them, and what passed.
struct World {
    now: Instant,
    receiver: Receiver,
    senders: Vec<Sender>,
    passed: Vec<Vec<u8>>,
}

impl World {
    fn new(gate: Security, senders: impl IntoIterator<Item = (Security, Mac)>) -> Self {
        let now = Instant::from_millis(1);
        let sender = |(security, station)| Sender::new(security, station, now);
        let senders = senders.into_iter().map(sender).collect();
        Self { now, receiver: Receiver::new(gate), senders, passed: Vec::new() }
    }

    /// One exchange. `attack` sees each frame before it arrives, and says whether it does.
    fn step(&mut self, attack: &mut impl FnMut(&mut Self, &[u8]) -> bool) {
        self.now += STEP;
        let now = self.now;
        let mut frames: Vec<_> =
            self.senders.iter_mut().flat_map(|sender| sender.say(now)).collect();
        for frame in std::mem::take(&mut frames) {
            if attack(self, &frame) {
                self.receiver.hear(now, &frame);
            }
            self.passed.push(frame);
        }
        for frame in self.receiver.say(now) {
            if attack(self, &frame) {
                self.hear_all(&frame);
            }
            self.passed.push(frame);
        }
    }

    fn hear_all(&mut self, frame: &[u8]) {
        let now = self.now;
        for sender in &mut self.senders {
            // As an interface does.
            if frame.starts_with(&sender.station) {
                sender.hear(now, frame);
            }
        }
    }

    fn run(&mut self, time: Duration, mut attack: impl FnMut(&mut Self, &[u8]) -> bool) {
        let end = self.now + time;
        while self.now < end {
            self.step(&mut attack);
        }
    }

    fn run_in_peace(&mut self, time: Duration) {
        self.run(time, |_, _| true);
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn is_sealed_unit(frame: &[u8]) -> bool {
    Envelope::parse(frame).is_ok_and(|envelope| envelope.unit[0] == 0xe0)
}

#[test]
fn who_listens_to_admission_reads_no_message() {
    for [here, there] in [[keyed(), keyed()], [shared(1), shared(1)]] {
        let mut world = World::new(there, [(here, SENDER)]);
        world.run_in_peace(millis(200));
        assert!(world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 1);
        let transfer = world.senders[0].transfer;
        world.senders[0].requester.end(world.now, transfer);
        world.run_in_peace(millis(1));
        assert_eq!(world.receiver.fast(world.now), 0, "it was given back");
        assert!(world.passed.iter().any(|frame| is_sealed_unit(frame)));
        for frame in &world.passed {
            assert_eq!(ControlFrame::parse(frame), Err(Refusal::Unsupported));
            let shown = &frame[19..];
            assert!(!shown.windows(4).any(|part| part == b"LFAC"), "a message is in clear");
        }
        // What is asked again does not look like what was asked before.
        let units = world.passed.iter().filter(|frame| is_sealed_unit(frame));
        let contents: Vec<_> = units.map(|frame| &frame[54..]).collect();
        assert!((1..contents.len()).all(|nth| !contents[..nth].contains(&contents[nth])));
    }
}

#[test]
fn a_flipped_bit_of_admission_changes_nothing_and_is_counted() {
    let mut world = World::new(shared(1), [(shared(1), SENDER)]);
    let mut flips = 0;
    world.run(millis(300), |world, frame| {
        if !is_sealed_unit(frame) {
            return true;
        }
        let (fast, granted) = (world.receiver.fast(world.now), world.senders[0].is_fast(world.now));
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Where a caller is says its last genuine frame, as on other networks.
            if (6..12).contains(&(bit / 8)) {
                continue;
            }
            flips += 1;
            world.receiver.hear(world.now, &flipped);
            world.hear_all(&flipped);
            // Nothing is said about it either.
            assert!(world.receiver.say(world.now).is_empty(), "bit {bit}");
        }
        assert_eq!(
            (fast, granted),
            (world.receiver.fast(world.now), world.senders[0].is_fast(world.now))
        );
        true
    });
    assert!(flips > 3_000, "{flips}");
    assert!(world.senders[0].is_fast(world.now), "the true frames have their effect");
    let stats = world.receiver.channel.stats();
    assert!(stats.forged > 500 && stats.opened > 1, "{stats:?}");
    assert!(world.senders[0].channel.stats().forged > 500);
}

#[test]
fn admission_that_comes_again_is_refused() {
    let mut world = World::new(keyed(), [(keyed(), SENDER)]);
    world.run_in_peace(millis(60));
    assert!(world.senders[0].is_fast(world.now));
    let transfer = world.senders[0].transfer;
    world.senders[0].requester.end(world.now, transfer);
    world.run_in_peace(millis(1));
    let recorded = world.passed.clone();
    let opened = world.receiver.channel.stats().opened;
    for frame in &recorded {
        world.receiver.hear(world.now, frame);
        world.hear_all(frame);
        world.receiver.say(world.now);
        world.senders[0].say(world.now);
        assert_eq!(world.receiver.fast(world.now), 0);
        assert!(!world.senders[0].is_fast(world.now));
    }
    let stats = world.receiver.channel.stats();
    assert_eq!(stats.opened, opened, "nothing is heard twice");
    assert!(stats.replayed > 0 && world.senders[0].channel.stats().replayed > 0, "{stats:?}");
    // A gate that was started anew has other keys.
    world.receiver = Receiver::new(keyed());
    for frame in &recorded {
        world.receiver.hear(world.now, frame);
        world.receiver.say(world.now);
        assert_eq!(world.receiver.fast(world.now), 0);
    }
    assert!(world.receiver.channel.refused(Refusal::UnknownId) > 0);
}

#[test]
fn made_up_admission_changes_nothing() {
    let mut world = World::new(keyed(), [(keyed(), SENDER)]);
    let mut random = landfall_placement::Random::from_number(7);
    let mut make_up = |world: &mut World, frame: &[u8]| {
        // As a frame of the other kind, too: kinds are nothing that is encrypted.
        for _ in 0..40 {
            let mut made_up = frame.to_vec();
            let from = random.below(12) as usize;
            for byte in &mut made_up[12 + from..] {
                if random.chance(300_000) {
                    *byte = random.below(256) as u8;
                }
            }
            if made_up.get(34).is_some() && random.chance(500_000) {
                made_up[12..20].copy_from_slice(&[0x88, 0xb5, b'L', b'F', b'A', b'C', 1, KIND]);
                // The association is that of a true one, for who listens knows it.
                made_up[22] = 0xe0;
                made_up[26..30].copy_from_slice(&frame[26..30]);
            }
            world.receiver.hear(world.now, &made_up);
            world.hear_all(&made_up);
        }
        true
    };
    // Until some were made up of units that were sealed: keys are new in each run, and what is
    // made up may cost a greeting a second try.
    let end = world.now + Duration::from_secs(10);
    while world.receiver.channel.stats().forged == 0 {
        world.run(millis(60), &mut make_up);
        assert!(world.now < end, "nothing was sealed: {:?}", world.receiver.channel.stats());
    }
    world.run_in_peace(Duration::from_secs(3));
    assert!(world.senders[0].is_fast(world.now), "once it is quiet all is well");
    assert_eq!(world.receiver.fast(world.now), 1);
}

#[test]
fn an_end_that_encrypts_nothing_gets_no_admission() {
    let mut world = World::new(keyed(), [(plain(), SENDER)]);
    world.run(Duration::from_secs(2), |world, _| {
        assert!(!world.senders[0].is_fast(world.now));
        true
    });
    assert!(world.receiver.channel.stats().plain > 5, "it has asked");
    assert_eq!(world.receiver.gate.refusals().total(), 0, "the gate has heard nothing");
    // Nor does an answer in clear count.
    let mut world = World::new(plain(), [(keyed(), SENDER)]);
    world.run(Duration::from_secs(2), |world, frame| {
        let answer = ControlFrame {
            to: SENDER,
            from: RECEIVER,
            ..ControlFrame::parse(&an_answer()).unwrap()
        };
        world.hear_all(&answer.to_bytes());
        assert!(!world.senders[0].is_fast(world.now), "{frame:02x?}");
        true
    });
    assert!(world.senders[0].channel.stats().plain > 5);
    assert_eq!(world.senders[0].requester.mode(world.now), Mode::Plain, "there is no gate for it");
}

/// A grant in clear.
fn an_answer() -> Vec<u8> {
    let now = Instant::from_millis(1);
    let mut gate = Gate::new(GateConfig::new(RECEIVER), [3; 32]).unwrap();
    let config = RequesterConfig::new(SENDER, RECEIVER);
    let mut requester = Requester::new(config, [3; 32]).unwrap();
    requester.ask(now).unwrap();
    gate.handle_frame(now, &requester.poll_transmit(now).unwrap()).unwrap();
    gate.poll_transmit(now).unwrap().to_vec()
}

#[test]
fn both_in_clear_are_as_they_were() {
    let mut world = World::new(plain(), [(plain(), SENDER)]);
    world.run_in_peace(millis(60));
    assert!(world.senders[0].is_fast(world.now));
    assert!(world.passed.iter().all(|frame| ControlFrame::parse(frame).is_ok()));
    assert_eq!(world.receiver.channel.asker(SENDER), Some((SENDER, None)));
}

#[test]
fn another_key_gets_no_admission_and_grants_none() {
    // With another pre-shared key.
    let mut world = World::new(shared(1), [(shared(2), SENDER)]);
    world.run_in_peace(Duration::from_secs(2));
    assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
    assert!(world.receiver.channel.stats().failed > 0);
    // One that may not ask.
    let mut gate = keyed();
    gate.set_only(vec![Identity::generate().unwrap().fingerprint()]);
    let mut world = World::new(gate, [(keyed(), SENDER)]);
    world.run_in_peace(Duration::from_secs(2));
    assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
    // A receiver that is not the one that was known.
    let mut world = World::new(keyed(), [(keyed(), SENDER)]);
    world.run_in_peace(millis(60));
    assert!(world.senders[0].is_fast(world.now) && world.senders[0].channel.no_keys().is_none());
    world.receiver = Receiver::new(keyed());
    world.run_in_peace(Duration::from_secs(4));
    assert!(!world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 0);
    let why = world.senders[0].channel.no_keys().expect("it says so").to_string();
    assert!(why.contains("02:00:00:00:00:02") && why.contains("only_peers"), "{why}");
}

#[test]
fn a_gate_that_was_started_again_is_asked_with_new_keys() {
    let gate = keyed();
    let mut world = World::new(gate.clone(), [(keyed(), SENDER)]);
    world.run_in_peace(millis(60));
    assert!(world.senders[0].is_fast(world.now));
    world.receiver = Receiver::new(gate);
    world.run_in_peace(Duration::from_secs(4));
    assert!(world.senders[0].is_fast(world.now) && world.receiver.fast(world.now) == 1);
}

/// Whatever station its frames say they are from.
#[test]
fn a_sender_is_known_by_its_keys_and_not_by_its_address() {
    let (one, two) = (keyed(), keyed());
    let keys = [&one, &two].map(|security| security.fingerprint());
    let mut world = World::new(keyed(), [(one, SENDER)]);
    world.run_in_peace(millis(60));
    let [(source, _)] = world.receiver.gate.fast(world.now).collect::<Vec<_>>()[..] else {
        panic!("one is fast");
    };
    let key_of = |world: &World, source| match world.receiver.channel.asker(source) {
        Some((SENDER, Some(super::PeerIdentity::PublicKey(key)))) => Some(key.fingerprint()),
        other => panic!("{other:?}"),
    };
    assert_eq!(key_of(&world, source), keys[0]);
    // Another one at the same station waits for its turn, and ends nothing.
    let now = world.now;
    world.senders.push(Sender::new(two, SENDER, now));
    world.run_in_peace(millis(100));
    assert_eq!(world.receiver.gate.fast(world.now).next().map(|(fast, _)| fast), Some(source));
    assert!(world.senders[0].is_fast(world.now) && !world.senders[1].is_fast(world.now));
    assert_eq!(world.receiver.gate.waiting(), 1);
    // The turn of the first ends.
    world.run_in_peace(millis(500));
    let (other, _) = world.receiver.gate.fast(world.now).next().expect("somebody is fast");
    assert_ne!(other, source);
    assert_eq!(key_of(&world, other), keys[1]);
}

/// Nobody calls a sender: it spends no key exchange on who tries.
#[test]
fn a_sender_answers_nobody_who_calls_it() {
    let now = Instant::from_millis(1);
    let mut sender = Sender::new(keyed(), SENDER, now);
    sender.say(now);
    let mut caller = Channel::of_sender(keyed(), RECEIVER, to(SENDER), None).unwrap();
    assert!(!caller.may_ask(now), "it waits for an answer");
    let first = caller.poll_frame(now).expect("it calls");
    sender.hear(now, &first);
    assert!(sender.say(now).is_empty());
    assert_eq!(sender.channel.refused(Refusal::Unexpected), 1);
}
