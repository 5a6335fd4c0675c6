//! Fragments that are lost where they enter a machine. As an ordinary user each
//! test skips with one line.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use landfall_testbed::ingress::why_no_ingress;
use landfall_testbed::{
    Error, IngressLoss, Lose, Namespace, VethConfig, VethPair, require_namespaces, skip_unless,
};

const LIMIT: Duration = Duration::from_secs(20);

/// Sockets at both ends of a cable that is known to work.
struct Ends {
    from: UdpSocket,
    to: UdpSocket,
}

impl Ends {
    fn new(pair: &VethPair, from: IpAddr, to: IpAddr) -> Self {
        let bind = |namespace: &Namespace, to| {
            namespace.enter(|| UdpSocket::bind((to, 0))).unwrap().unwrap()
        };
        let (from, to) = (bind(&pair.a.namespace, from), bind(&pair.b.namespace, to));
        from.connect(to.local_addr().unwrap()).unwrap();
        let ends = Self { from, to };
        // An interface that was just switched on may lose what it shall send.
        ends.to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (started, mut buffer) = (Instant::now(), [0; 1]);
        while ends.from.send(b"?").is_err() || ends.to.recv(&mut buffer).is_err() {
            assert!(started.elapsed() < LIMIT, "no cable");
        }
        ends.to.set_read_timeout(Some(LIMIT)).unwrap();
        ends
    }

    fn over_ipv4(pair: &VethPair) -> Self {
        Self::new(pair, pair.a.ipv4.into(), pair.b.ipv4.into())
    }

    /// Whether a datagram in three fragments arrives before a short one that
    /// follows it.
    fn a_long_one_arrives(&self) -> bool {
        self.from.send(&[7; 4000]).unwrap();
        self.from.send(b"end").unwrap();
        let mut buffer = [0; 5000];
        let mut long = false;
        loop {
            match self.to.recv(&mut buffer).unwrap() {
                4000 => long = true,
                3 => return long,
                // Of the search for the cable.
                _ => {}
            }
        }
    }
}

macro_rules! require_ingress {
    () => {
        require_namespaces!();
        skip_unless!(why_no_ingress());
    };
}

#[test]
fn all_fragments_to_an_address_are_lost_and_nothing_else() {
    require_ingress!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let addresses = [
        (pair.a.ipv4.into(), pair.b.ipv4.into(), Lose::All { to: pair.b.ipv4.into() }),
        (pair.a.ipv6.into(), pair.b.ipv6.into(), Lose::All { to: pair.b.ipv6.into() }),
    ];
    for (from, to, lose) in addresses {
        let ends = Ends::new(&pair, from, to);
        assert!(ends.a_long_one_arrives());
        let loss = IngressLoss::new(&pair.b, lose).unwrap();
        let other = Lose::All { to: Ipv4Addr::new(192, 0, 2, 1).into() };
        let nothing = IngressLoss::new(&pair.b, other).unwrap();
        assert!(!ends.a_long_one_arrives());
        assert_eq!((loss.lost().unwrap(), nothing.lost().unwrap()), (3, 0));
        drop(loss);
        assert!(ends.a_long_one_arrives(), "the rules are gone");
    }
}

#[test]
fn a_chosen_fragment_alone_is_lost() {
    require_ingress!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let ipv6 = Ends::new(&pair, pair.a.ipv6.into(), pair.b.ipv6.into());
    // What a fragment holds behind the headers of its IP version.
    for (ends, step) in [(Ends::over_ipv4(&pair), 1480), (ipv6, 1448)] {
        for offset in [0, step, 2 * step] {
            let loss = IngressLoss::new(&pair.b, Lose::At { offset, identification: None });
            let loss = loss.unwrap();
            assert!(!ends.a_long_one_arrives(), "without the one at {offset}");
            assert_eq!(loss.lost().unwrap(), 1);
        }
        let elsewhere = Lose::At { offset: 8, identification: None };
        let loss = IngressLoss::new(&pair.b, elsewhere).unwrap();
        assert!(ends.a_long_one_arrives());
        assert_eq!(loss.lost().unwrap(), 0);
    }
}

#[test]
fn one_of_many_is_lost_by_count() {
    require_ingress!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let ends = Ends::over_ipv4(&pair);
    // Six fragments are two datagrams: one of them arrives.
    for nth in [0, 5] {
        let loss = IngressLoss::new(&pair.b, Lose::OneOf { many: 6, nth }).unwrap();
        let arrived: Vec<bool> = (0..6).map(|_| ends.a_long_one_arrives()).collect();
        assert_eq!(arrived.iter().filter(|arrived| **arrived).count(), 3, "{arrived:?}");
        assert_eq!(loss.lost().unwrap(), 3);
    }
}

#[test]
fn a_share_is_lost_at_random() {
    require_ingress!();
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let ends = Ends::over_ipv4(&pair);
    let everything = IngressLoss::new(&pair.b, Lose::Percent(100)).unwrap();
    assert!(!ends.a_long_one_arrives());
    assert_eq!(everything.lost().unwrap(), 3);
    drop(everything);
    let some = IngressLoss::new(&pair.b, Lose::Percent(30)).unwrap();
    let tries = 200;
    let arrived = (0..tries).filter(|_| ends.a_long_one_arrives()).count();
    // A third of them, 0.7 to the third power; chance does not leave these bounds.
    assert!((20..160).contains(&arrived), "{arrived} of {tries}");
    // Of 600 fragments 180, give or take 11.
    let lost = some.lost().unwrap();
    assert!((100..260).contains(&lost), "{lost} of 600");
}

#[test]
fn an_interface_that_is_not_there_is_said() {
    require_ingress!();
    let namespace = Namespace::new().unwrap();
    let to = Ipv4Addr::LOCALHOST.into();
    for name in ["nowhere", "a\" ; flush ruleset", ""] {
        let error = IngressLoss::at(&namespace, name, Lose::All { to }).unwrap_err();
        assert!(!matches!(error, Error::Panicked(_)), "{error}");
    }
    assert!(IngressLoss::at(&namespace, "lo", Lose::All { to }).is_ok());
}
