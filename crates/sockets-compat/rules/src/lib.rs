#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod group;
mod parse;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

pub use group::group_number;
pub use parse::Error;

/// How the bytes of a connection go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Through memory that both ends have, where both can.
    Memory,
    /// As the program asked for: by the kernel's TCP.
    Tcp,
    /// To another host by the Scheduled Transfer Protocol, where both hosts have a carrier;
    /// within this host as `Memory`.
    Stp,
    /// To another host by queue pairs; else as `Stp`.
    Qpip,
}

impl Transport {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Tcp, Self::Stp, Self::Qpip];

    /// The word for it in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
            Self::Stp => "stp",
            Self::Qpip => "qpip",
        }
    }
}

impl std::str::FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(word: &str) -> Result<Self, UnknownTransport> {
        Self::ALL.into_iter().find(|transport| transport.word() == word).ok_or(UnknownTransport)
    }
}

/// A word that means none of the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTransport;

impl std::fmt::Display for UnknownTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("neither `memory`, `tcp`, `stp` nor `qpip`")
    }
}

impl std::error::Error for UnknownTransport {}

/// What was decided, and by which line of the file; none where no rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The way that the connection may take.
    pub transport: Transport,
    /// The line of the rule, counted from one.
    pub line: Option<usize>,
}

/// The rules of a file, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    transport: Transport,
    line: usize,
    program: Option<String>,
    ports: Option<RangeInclusive<u16>>,
    network: Option<Network>,
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl Rules {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none: then all may be memory.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The way of a connection of this program; `called` is the end that was called.
    #[must_use]
    pub fn decide(&self, program: &str, called: SocketAddr) -> Decision {
        let called = SocketAddr::new(called.ip().to_canonical(), called.port());
        self.first(|rule| rule.is_for(program) && rule.fits(called))
    }

    /// What is decided for every connection of this program, if that is so: who has no
    /// business with us need not be asked each time.
    #[must_use]
    pub fn decide_for_all(&self, program: &str) -> Option<Decision> {
        let own: Vec<&Rule> = self.0.iter().filter(|rule| rule.is_for(program)).collect();
        let to_the_last = own.iter().position(|rule| rule.has_no_place());
        let reachable = &own[..to_the_last.map_or(own.len(), |at| at + 1)];
        let decision = match to_the_last {
            Some(at) => own[at].decision(),
            None => Decision { transport: Transport::Memory, line: None },
        };
        reachable.iter().all(|rule| rule.transport == decision.transport).then_some(decision)
    }

    fn first(&self, fits: impl Fn(&Rule) -> bool) -> Decision {
        let found = self.0.iter().find(|rule| fits(rule));
        found.map_or(Decision { transport: Transport::Memory, line: None }, Rule::decision)
    }
}

impl Rule {
    const fn decision(&self) -> Decision {
        Decision { transport: self.transport, line: Some(self.line) }
    }

    fn is_for(&self, program: &str) -> bool {
        self.program.as_ref().is_none_or(|pattern| is_like(pattern.as_bytes(), program.as_bytes()))
    }

    const fn has_no_place(&self) -> bool {
        self.ports.is_none() && self.network.is_none()
    }

    fn fits(&self, called: SocketAddr) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&called.port()))
            && self.network.is_none_or(|network| network.has(called.ip()))
    }
}

impl Network {
    fn has(self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                (ours.to_bits() ^ other.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                (ours.to_bits() ^ other.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Whether the name is as the pattern says, in which `*` stands for any letters.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut here) = (0, 0);
    // Where to go on if what follows the last star does not fit there.
    let mut again: Option<(usize, usize)> = None;
    while here < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                again = Some((at, here));
                at += 1;
            }
            Some(letter) if *letter == name[here] => {
                at += 1;
                here += 1;
            }
            _ => {
                let Some((star, from)) = again else { return false };
                again = Some((star, from + 1));
                at = star + 1;
                here = from + 1;
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn place(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = rules("tcp port=1-10\n\n# all the rest\nmemory port=5-20\ntcp");
        let line = |port: u16| rules.decide("p", (IpAddr::from([127, 0, 0, 1]), port).into()).line;
        assert_eq!([1, 5, 10, 11, 20, 21].map(line), [1, 1, 1, 4, 4, 5].map(Some));
    }

    #[test]
    fn without_rules_all_may_be_memory() {
        let decided = Rules::default().decide("p", place("[::1]:1"));
        assert_eq!(decided, Decision { transport: Transport::Memory, line: None });
    }

    #[test]
    fn each_way_has_a_word_of_its_own() {
        for transport in Transport::ALL {
            assert_eq!(transport.word().parse(), Ok(transport));
            let decided = rules(transport.word()).decide("p", place("10.0.0.1:1"));
            assert_eq!(decided, Decision { transport, line: Some(1) });
        }
        assert_eq!("STP".parse::<Transport>(), Err(UnknownTransport));
    }

    #[test]
    fn networks_have_what_begins_like_them() {
        for (network, address, has) in [
            ("10.1.0.0/16", "10.1.255.3:1", true),
            ("10.1.0.0/16", "10.2.0.0:1", false),
            ("10.1.0.0/16", "[::ffff:10.1.2.3]:1", true),
            ("0.0.0.0/0", "9.9.9.9:1", true),
            ("0.0.0.0/0", "[::1]:1", false),
            ("127.0.0.1", "127.0.0.2:1", false),
            ("::1", "[::1]:1", true),
            ("fe80::/10", "[febf::1]:1", true),
            ("fe80::/10", "[fec0::1]:1", false),
            ("::/0", "[fec0::1]:1", true),
        ] {
            let decided = rules(&format!("tcp address={network}")).decide("p", place(address));
            assert_eq!(decided.transport == Transport::Tcp, has, "{network} {address}");
        }
    }

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, fits) in [
            ("redis-*", "redis-server", true),
            ("redis-*", "redis", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*ab*b", "aabcabxb", true),
            ("*ab*b", "aabcabx", false),
            ("a*a", "a", false),
            ("a**a", "aba", true),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn who_is_never_meant_is_known_before_the_first_connection() {
        let decided =
            |text: &str| rules(text).decide_for_all("p").map(|decision| decision.transport);
        assert_eq!(decided(""), Some(Transport::Memory));
        assert_eq!(decided("tcp program=p"), Some(Transport::Tcp));
        assert_eq!(decided("tcp program=q"), Some(Transport::Memory));
        assert_eq!(decided("tcp port=1"), None);
        assert_eq!(decided("tcp port=1\ntcp"), Some(Transport::Tcp));
        assert_eq!(decided("memory port=1\ntcp"), None);
        assert_eq!(decided("stp address=10.0.0.0/8"), None);
        assert_eq!(decided("stp program=q\nqpip program=p"), Some(Transport::Qpip));
        assert_eq!(decided("tcp port=1\nstp port=2\ntcp"), None);
        assert_eq!(decided("memory program=q port=1\ntcp\nmemory port=2"), Some(Transport::Tcp));
    }
}
