//! Bounds, time-outs and errors of speculative defragmentation's front door.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use landfall::defrag::{
    Answer, CutBy, Delivery, Error, Fate, Filter, GateConfig, Memory, Mode, OpenError, Outgoing,
    Packet, PageReceiver, Receiver, ReceiverBuilder, RequesterConfig, Sender, Technique,
    TransferId, conventional,
};
use landfall_placement::InternetSum;
use landfall_testbed::{VethEnd, VethPair, require_namespaces};
use landfall_transport::memory::Regions;
use landfall_transport::ring::{Ring, RingConfig};

/// Sends pages with these numbers; gives what they are.
fn send(cable: &VethPair, sender: &mut Sender, count: u64) -> Vec<Vec<u8>> {
    let payloads: Vec<_> = (0..count).map(|n| noise(n, 4096)).collect();
    let memory = sender.register(Memory::from_bytes(&payloads.concat())).unwrap();
    let parts: Vec<_> = (0..count).map(|n| memory.part(n * 4096, 4096).unwrap()).collect();
    sender.send_datagrams(&mut datagrams(cable, true), &parts).unwrap();
    payloads
}

fn own_cut(cable: &VethPair) -> Sender {
    sender_as(&cable.a, |builder| builder.cut_by(CutBy::Sender))
}

/// Receives as many as come without anything being given back.
fn hold(receiver: &mut Receiver, most: usize) -> Vec<Packet> {
    let mut held = Vec::new();
    while held.len() < most {
        match receiver.receive(Duration::from_millis(200)).unwrap() {
            Some(packet) => held.push(packet),
            None => break,
        }
    }
    held
}

#[test]
fn who_holds_all_pages_gets_no_more_and_loses_nothing() {
    require_namespaces!();
    const SENT: usize = 200;
    let cable = cable();
    for delivery in [Delivery::FastBuffers, Delivery::Remap] {
        for technique in [Technique::Packet, Technique::PacketRing] {
            let mut receiver = receiver_as(&cable.b, |builder| {
                builder.technique(technique).delivery(delivery).pages(16, 4096).burst(4)
            })
            .unwrap();
            let what = format!("{technique}, {delivery}");
            let mut sent = Vec::new();
            let mut sender = own_cut(&cable);
            for _ in 0..SENT / 50 {
                sent.extend(send(&cable, &mut sender, 50));
            }
            let held = hold(&mut receiver, SENT);
            let count = held.len();
            assert!((1..SENT).contains(&count), "{what}: {count} packets were held");
            // What is held stays as it was.
            for (packet, payload) in held.iter().zip(&sent) {
                assert!(packet.to_vec().ends_with(payload), "{what}");
            }
            drop(held);
            for payload in &sent[count..] {
                let packet = receiver.receive(PATIENCE).unwrap().expect("the next one");
                assert!(packet.to_vec().ends_with(payload), "{what}");
            }
            assert_eq!(receiver.stats().unwrap().kernel_drops, 0, "{what}");
        }
    }
}

#[test]
fn a_packet_on_another_thread_gives_its_page_back() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = receiver_as(&cable.b, |builder| {
        builder.technique(Technique::Packet).pages(16, 4096).burst(4)
    })
    .unwrap();
    let mut sender = own_cut(&cable);
    let payloads = send(&cable, &mut sender, 100);
    let (give, take) = std::sync::mpsc::channel::<Packet>();
    std::thread::scope(|scope| {
        scope.spawn(move || take.into_iter().for_each(drop));
        for payload in &payloads {
            let packet = receiver.receive(PATIENCE).unwrap().expect("pages come back");
            assert!(packet.to_vec().ends_with(payload));
            give.send(packet).unwrap();
        }
        drop(give);
    });
}

/// How many ICMP time exceeded the kernel at an end has heard.
fn times_exceeded(cable: &VethPair) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = cable.a.namespace.enter(read).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let names = lines.next().unwrap().split_whitespace();
    let numbers = lines.next().unwrap().split_whitespace();
    let (_, number) = names.zip(numbers).find(|(name, _)| *name == "InTimeExcds").unwrap();
    number.parse().unwrap()
}

#[test]
fn who_lost_a_piece_is_told() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = receiver_as(&cable.b, |builder| {
        builder.technique(Technique::Packet).reassembly(conventional::Config {
            lifetime: Duration::from_millis(20),
            ..conventional::Config::default()
        })
    })
    .unwrap();
    let mut nth = 0;
    let mut sender = sender_as(&cable.a, |builder| {
        builder.fate(move |_, _| {
            nth += 1;
            if nth == 2 { Fate::Lost } else { Fate::Sent }
        })
    });
    send(&cable, &mut sender, 1);
    let started = std::time::Instant::now();
    while receiver.stats().unwrap().answers == 0 {
        assert!(started.elapsed() < PATIENCE, "{:?}", receiver.stats());
        assert!(receiver.receive(Duration::from_millis(10)).unwrap().is_none());
    }
    while times_exceeded(&cable) == 0 {
        assert!(started.elapsed() < PATIENCE, "the answer is not understood");
    }
    assert_eq!(receiver.stats().unwrap().gathered.expired, 1);
}

#[test]
fn one_sender_at_a_time_is_fast() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = gated(&cable, |builder| builder);
    let ask = RequesterConfig::new([0; 6], cable.b.mac.0);
    let mut sender = sender_as(&cable.a, |builder| builder.cut_by(CutBy::Sender).ask(ask));
    let joined = while_receiving(&mut receiver, || {
        assert_eq!(sender.mode(), Some(Mode::Plain));
        let transfer = granted(&mut sender, |sender| sender.ask().unwrap());
        assert!(matches!(sender.mode(), Some(Mode::Fast { .. })));
        for _ in 0..4 {
            send(&cable, &mut sender, 32);
        }
        sender.end(transfer).unwrap();
        assert_eq!(sender.mode(), Some(Mode::Plain));
        // A long one asks by itself.
        let transfer = granted(&mut sender, |sender| sender.begin(1 << 30).unwrap());
        sender.end(transfer).unwrap();
    });
    assert_eq!(joined, 128);
    // Whose keys are those of the user, as the sender's are.
    for stats in [receiver.seal_stats(), sender.seal_stats()] {
        assert!(stats.established == 1 && stats.opened > 1 && stats.sealed > 1, "{stats:?}");
        assert_eq!((stats.forged, stats.plain), (0, 0));
    }
    assert!(sender.no_keys().is_none());
}

/// A receiver with a gate.
fn gated(
    cable: &VethPair,
    adjust: impl FnOnce(ReceiverBuilder) -> ReceiverBuilder + Send,
) -> Receiver {
    let gate = GateConfig::new(cable.b.mac.0);
    let adjust = |builder: ReceiverBuilder| adjust(builder.technique(Technique::Packet));
    receiver_as(&cable.b, |builder| adjust(builder).gate_with(gate)).unwrap()
}

/// Does something while a thread receives. Gives how many packets came.
fn while_receiving(receiver: &mut Receiver, work: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut joined = 0;
            while !is_over.load(Ordering::Relaxed) {
                joined += u64::from(receiver.receive(Duration::from_millis(1)).unwrap().is_some());
            }
            while receiver.try_receive().unwrap().is_some() {
                joined += 1;
            }
            joined
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        let joined = receiving.join().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        joined
    })
}

/// Asks until it is granted: on a busy machine a handshake may take so long that the receiver
/// counts as one without a gate, until it is asked again.
pub(super) fn granted(
    sender: &mut Sender,
    ask: impl FnOnce(&mut Sender) -> TransferId,
) -> TransferId {
    let transfer = ask(sender);
    let started = std::time::Instant::now();
    loop {
        match sender.answer(transfer, Duration::from_millis(50)).unwrap() {
            Answer::Granted { .. } => return transfer,
            other => assert!(started.elapsed() < PATIENCE, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// By default, and with a pre-shared key: the frames on the cable show that somebody asks, and
/// nothing else.
#[test]
fn who_listens_to_a_cable_reads_no_request() {
    require_namespaces!();
    let regions = Regions::new(8);
    let config = |end: &VethEnd| RingConfig::new(&*end.name, Filter::ethertypes([0x88b5]));
    let ring = |end: &VethEnd| {
        end.namespace.enter(|| Ring::open(&config(end), &regions)).unwrap().unwrap()
    };
    for is_plain in [false, true] {
        // A cable for each: what the ring hands over late belongs to none but its own.
        let cable = cable();
        let mut rings = [ring(&cable.a), ring(&cable.b)];
        let mut receiver = gated(&cable, |builder| match is_plain {
            true => builder.plaintext(),
            false => builder.preshared_key([7; 32]),
        });
        let ask = RequesterConfig::new([0; 6], cable.b.mac.0);
        let mut sender = sender_as(&cable.a, |builder| match is_plain {
            true => builder.ask(ask).plaintext(),
            false => builder.ask(ask).preshared_key([7; 32]),
        });
        while_receiving(&mut receiver, || {
            let transfer = granted(&mut sender, |sender| sender.ask().unwrap());
            sender.end(transfer).unwrap();
        });
        // A block that is not full is handed over after a while.
        let (mut heard, started) = (Vec::new(), std::time::Instant::now());
        while heard.len() < if is_plain { 2 } else { 4 } {
            assert!(started.elapsed() < PATIENCE, "{} frames", heard.len());
            for ring in &mut rings {
                while let Some(block) = ring.next_block() {
                    heard.extend(block.frames().map(|frame| frame.bytes.to_vec()));
                }
            }
        }
        for frame in heard {
            // Behind the magic number and the version is the kind.
            assert_eq!(frame[14..19], *b"LFAC\x01");
            assert_eq!(frame[19] == 6, !is_plain, "{frame:02x?}");
        }
    }
}

/// The receiver has a certificate, and the sender trusts its issuer and knows its name.
#[cfg(feature = "certificates")]
#[test]
fn over_a_cable_a_receiver_is_known_by_its_certificate() {
    use landfall::defrag::Certificates;
    use rustls::pki_types::PrivateKeyDer;

    require_namespaces!();
    let cable = cable();
    let made = rcgen::generate_simple_self_signed(["receiver.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let shown = Certificates::new().show(vec![made.cert.der().clone()], key);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut receiver = gated(&cable, |builder| builder.certificates(shown));
    let ask = RequesterConfig::new([0; 6], cable.b.mac.0);
    for (name, is_known) in [("another.example", false), ("receiver.example", true)] {
        let trusting = Certificates::new().trust(roots.clone());
        let mut sender =
            sender_as(&cable.a, |builder| builder.ask(ask).certificates(trusting, name));
        while_receiving(&mut receiver, || {
            if is_known {
                let transfer = granted(&mut sender, |sender| sender.ask().unwrap());
                assert!(matches!(sender.mode(), Some(Mode::Fast { .. })));
                sender.end(transfer).unwrap();
            } else {
                let transfer = sender.ask().unwrap();
                let started = std::time::Instant::now();
                while sender.no_keys().is_none() {
                    assert!(started.elapsed() < PATIENCE, "nobody says so");
                    sender.answer(transfer, Duration::from_millis(20)).unwrap();
                }
                assert!(!matches!(sender.mode(), Some(Mode::Fast { .. })));
            }
        });
    }
}

#[test]
fn over_a_cable_an_end_that_encrypts_nothing_is_never_fast() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = gated(&cable, |builder| builder);
    let ask = RequesterConfig::new([0; 6], cable.b.mac.0);
    let mut sender = sender_as(&cable.a, |builder| builder.ask(ask).plaintext());
    while_receiving(&mut receiver, || {
        let transfer = sender.ask().unwrap();
        let started = std::time::Instant::now();
        while sender.answer(transfer, Duration::from_millis(50)).unwrap() != Answer::NoGate {
            assert!(started.elapsed() < PATIENCE);
        }
        assert_eq!(sender.mode(), Some(Mode::Plain));
    });
    let stats = receiver.seal_stats();
    assert!(stats.plain >= 5 && stats.established == 0, "{stats:?}");
}

#[test]
fn without_a_gate_nobody_waits() {
    require_namespaces!();
    let cable = cable();
    let ask = RequesterConfig::new([0; 6], cable.b.mac.0);
    for is_plain in [false, true] {
        let mut sender = sender_as(&cable.a, |builder| match is_plain {
            true => builder.ask(ask).plaintext(),
            false => builder.ask(ask),
        });
        let transfer = sender.ask().unwrap();
        let started = std::time::Instant::now();
        while sender.answer(transfer, Duration::from_millis(50)).unwrap() != Answer::NoGate {
            assert!(started.elapsed() < PATIENCE);
        }
        assert_eq!(sender.mode(), Some(Mode::Plain));
        sender.end(transfer).unwrap();
    }
    let mut plain = own_cut(&cable);
    assert!(matches!(plain.ask(), Err(Error::NoAdmission)));
}

#[test]
fn tasks_get_the_same_packets() {
    require_namespaces!();
    let cable = cable();
    let packets = receiver(&cable.b, Technique::Auto, Delivery::FastBuffers).into_tasks().unwrap();
    let mut sender = own_cut(&cable);
    let payloads = send(&cable, &mut sender, 40);
    run(async {
        for payload in &payloads {
            let packet = packets.receive().await.unwrap();
            assert!(packet.to_vec().ends_with(payload));
        }
        assert!(packets.try_receive().unwrap().is_none());
    });
}

#[test]
fn what_cannot_work_says_what_would() {
    require_namespaces!();
    let cable = cable();
    let refused = receiver_as(&cable.b, |builder| {
        builder.technique(Technique::Packet).delivery(Delivery::List)
    });
    assert!(matches!(refused, Err(OpenError::NothingToLend { .. })), "{refused:?}");
    let refused = cable.b.namespace.enter(|| Receiver::builder("nowhere").open()).unwrap();
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("nowhere") && text.contains("ip link"), "{text}");
    let auto = receiver(&cable.b, Technique::Auto, Delivery::FastBuffers);
    assert_eq!(auto.chosen().technique, Technique::PacketRing, "{}", auto.chosen());
    let (one, two) = (own_cut(&cable), own_cut(&cable));
    let memory = one.register(Memory::zeroed(4096)).unwrap();
    let mut two = two;
    let part = memory.part(0, 4096).unwrap();
    let sent = two.send_datagrams(&mut datagrams(&cable, true), &[part]);
    assert!(matches!(sent, Err(Error::ForeignMemory)), "{sent:?}");
    assert!(matches!(memory.part(1, 4096), Err(Error::OutOfBounds { .. })));
    assert_eq!(memory.take_back().unwrap().len(), 4096);
}

#[test]
fn a_page_that_changed_on_the_way_is_not_handed_out() {
    require_namespaces!();
    let cable = cable();
    for is_ipv4 in [true, false] {
        let receiver = receiver(&cable.b, Technique::Packet, Delivery::FastBuffers);
        let mut pages = PageReceiver::new(receiver, PORT);
        let mut sender = own_cut(&cable);
        let mut datagrams = datagrams(&cable, is_ipv4);
        let payload = noise(1, 4096);
        let memory = sender.register(Memory::from_bytes(&payload)).unwrap();
        let body = memory.part(0, 4096).unwrap();
        let mut sum = InternetSum::new();
        sum.add(&payload);
        // The sum of other bytes than those that are sent.
        let mut other = sum;
        other.add_word(1);
        for sum in [other, sum] {
            let head = datagrams.next(4096, sum).unwrap();
            sender.send(&[Outgoing { head: &head, body }]).unwrap();
        }
        assert!(next(&mut pages).bytes() == payload);
        assert_eq!(pages.corrupt(), 1);
    }
}
