//! Losing IP fragments where they enter a machine: before its own protocols see
//! them, and behind the place where sockets that hear every protocol do.
//!
//! The hook is netfilter's at the ingress of an interface (nftables, family
//! `netdev`); the program `nft` sets it up. Two uses: the kernel shall not join
//! what somebody else joins, and tests want to lose exactly one fragment.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::veth::VethEnd;

/// Before everything else that hangs on the hook.
const PRIORITY: i32 = -500;

/// Which fragments are lost; what is no IP fragment never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lose {
    /// All that are for this address.
    All {
        /// Where they go.
        to: IpAddr,
    },
    /// Those that begin at this offset in the payload of their packet, IPv4 and
    /// IPv6.
    At {
        /// A multiple of 8, below 65,536.
        offset: u32,
        /// Only of packets with this identification.
        identification: Option<u32>,
    },
    /// One of this many, counted one after another over all packets: the same
    /// ones in each run.
    OneOf {
        /// How many.
        many: u32,
        /// Which of them, from 0 on.
        nth: u32,
    },
    /// This many in a hundred, at random.
    Percent(u8),
}

/// Fragments are lost at an interface as long as this lives.
#[derive(Debug)]
pub struct IngressLoss {
    namespace: Namespace,
    table: String,
}

impl IngressLoss {
    /// Loses fragments that enter at this interface.
    ///
    /// # Errors
    /// The rule makes no sense, or `nft` is not there, or is not allowed to.
    pub fn new(end: &VethEnd, lose: Lose) -> Result<Self, Error> {
        Self::at(&end.namespace, &end.name, lose)
    }

    /// The same at any interface of a namespace.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn at(namespace: &Namespace, interface: &str, lose: Lose) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let table = format!("landfall_{}_{number}", std::process::id());
        let rules = lose.rules()?;
        // The kernel would wait for an interface that is not there yet.
        namespace.enter(|| Netlink::open()?.index_of(interface))??;
        let mut script = format!(
            "table netdev {table} {{\n counter lost {{ }}\n chain loss {{\n  type filter hook \
             ingress device \"{interface}\" priority {PRIORITY};\n"
        );
        for rule in rules {
            script += &format!("  {rule} counter name lost drop\n");
        }
        script += " }\n}\n";
        run(namespace, &["-f", "-"], &script)?;
        Ok(Self { namespace: namespace.clone(), table })
    }

    /// How many fragments were lost so far.
    ///
    /// # Errors
    /// `nft` failed.
    pub fn lost(&self) -> Result<u64, Error> {
        let said = run(&self.namespace, &["list", "counter", "netdev", &self.table, "lost"], "")?;
        let said = String::from_utf8_lossy(&said.stdout);
        let mut words = said.split_ascii_whitespace().skip_while(|word| *word != "packets");
        let count = words.nth(1).and_then(|count| count.parse().ok());
        count.ok_or_else(|| Error::Unsupported(format!("the counters of nft, which said: {said}")))
    }
}

impl Drop for IngressLoss {
    /// Takes the rules away, though the namespace may live on.
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the kernel takes the
        // rules with the namespace or the interface anyway.
        let _ = run(&self.namespace, &["delete", "table", "netdev", &self.table], "");
    }
}

impl Lose {
    /// What the fragments match, for IPv4 and for IPv6.
    fn rules(self) -> Result<Vec<String>, Error> {
        // Without either neither more fragments follow nor others came before.
        const IPV4: &str = "ip frag-off & 0x3fff != 0";
        const IPV6: &str = "meta protocol ip6 exthdr frag exists";
        let bad = |what: String| Err(Error::BadRequest(what));
        let both = |more: &str| vec![format!("{IPV4} {more}"), format!("{IPV6} {more}")];
        Ok(match self {
            Self::All { to: IpAddr::V4(to) } => vec![format!("ip daddr {to} {IPV4}")],
            Self::All { to: IpAddr::V6(to) } => vec![format!("ip6 daddr {to} {IPV6}")],
            Self::At { offset, .. } if offset % 8 != 0 || offset > 65_528 => {
                return bad(format!("fragments at {offset}: use a multiple of 8 below 65,536"));
            }
            Self::At { offset, identification } => {
                let (units, mut rules) = (offset / 8, Vec::new());
                let of = |name| identification.map_or(String::new(), |id| format!("{name} {id}"));
                if identification.is_none_or(|id| u16::try_from(id).is_ok()) {
                    rules.push(format!("{IPV4} ip frag-off & 0x1fff == {units} {}", of("ip id")));
                }
                rules.push(format!("{IPV6} frag frag-off {units} {}", of("frag id")));
                rules
            }
            Self::OneOf { many, nth } if nth >= many => {
                return bad(format!("fragment {nth} of {many}, counted from 0"));
            }
            // Each rule counts for itself.
            Self::OneOf { many, nth } => both(&format!("numgen inc mod {many} == {nth}")),
            Self::Percent(percent) if percent > 100 => {
                return bad(format!("a loss of {percent} in a hundred"));
            }
            Self::Percent(100) => both(""),
            Self::Percent(0) => Vec::new(),
            Self::Percent(percent) => both(&format!("numgen random mod 100 < {percent}")),
        })
    }
}

/// Why `nft` cannot be used here; `None` when it can.
#[must_use]
pub fn why_no_ingress() -> Option<String> {
    match Command::new("nft").arg("--version").output() {
        Ok(said) if said.status.success() => None,
        Ok(said) => Some(format!("needs nft, which ended with {}", said.status)),
        Err(error) => Some(format!("needs nft (package nftables): {error}")),
    }
}

/// Runs `nft` in a namespace, with a script if it wants one.
fn run(namespace: &Namespace, arguments: &[&str], script: &str) -> Result<Output, Error> {
    let said = namespace.enter(|| -> io::Result<Output> {
        // A child begins in the namespace of the thread that starts it.
        let mut child = Command::new("nft")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that is gone already says why below.
            let _ = stdin.write_all(script.as_bytes());
        }
        child.wait_with_output()
    })?;
    let said = said.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Unsupported("nft (package nftables)".into()),
        _ => Error::system("run nft", source),
    })?;
    if said.status.success() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(Error::Unsupported(format!("nft {}: {why}", arguments.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_losses_are_refused() {
        let at = |offset| Lose::At { offset, identification: None };
        for lose in [at(4), at(65_536), Lose::OneOf { many: 3, nth: 3 }, Lose::Percent(101)] {
            assert!(matches!(lose.rules(), Err(Error::BadRequest(_))), "{lose:?}");
        }
        let long = Lose::At { offset: 8, identification: Some(70_000) };
        assert_eq!(long.rules().unwrap().len(), 1, "IPv4 has no such identification");
        assert_eq!(Lose::Percent(0).rules().unwrap().len(), 0);
    }
}
