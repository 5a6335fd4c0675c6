//! The file as people write it.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Network, Rule, Rules, Transport};

/// A line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Counted from one.
    pub line: usize,
    why: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Transport(String),
    Condition(String),
    Twice(&'static str),
    Empty(&'static str),
    Port(String),
    Address(String),
    Bits(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.why {
            Problem::Transport(word) => {
                write!(f, "a rule begins with `memory`, `tcp`, `stp` or `qpip`, not with `{word}`")
            }
            Problem::Condition(word) => {
                write!(f, "`{word}` is no condition: `program=`, `port=` and `address=` are")
            }
            Problem::Twice(name) => write!(f, "`{name}=` stands there twice: write two rules"),
            Problem::Empty(name) => write!(f, "`{name}=` says nothing"),
            Problem::Port(text) => {
                write!(f, "`{text}` is no port (0 to 65535, or two such with a `-` between)")
            }
            Problem::Address(text) => write!(f, "`{text}` is no address (names are not looked up)"),
            Problem::Bits(text) => {
                write!(f, "`{text}` has more bits than the address, or no number")
            }
        }
    }
}

impl std::error::Error for Error {}

impl FromStr for Rules {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default();
            let line = at + 1;
            if let Some(rule) = rule(said, line).map_err(|why| Error { line, why })? {
                rules.push(rule);
            }
        }
        Ok(Self(rules))
    }
}

/// `None` where the line says nothing.
fn rule(said: &str, line: usize) -> Result<Option<Rule>, Problem> {
    let mut words = said.split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let transport: Transport = first.parse().map_err(|_| Problem::Transport(first.to_owned()))?;
    let mut rule = Rule { transport, line, program: None, ports: None, network: None };
    for word in words {
        match word.split_once('=') {
            Some(("program", name)) => {
                once(&mut rule.program, "program", name, |name| Ok(name.to_owned()))?;
            }
            Some(("port", ports)) => once(&mut rule.ports, "port", ports, range)?,
            Some(("address", text)) => once(&mut rule.network, "address", text, network)?,
            _ => return Err(Problem::Condition(word.to_owned())),
        }
    }
    Ok(Some(rule))
}

fn once<T>(
    place: &mut Option<T>,
    name: &'static str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<(), Problem> {
    if text.is_empty() {
        return Err(Problem::Empty(name));
    }
    match place.replace(read(text)?) {
        None => Ok(()),
        Some(_) => Err(Problem::Twice(name)),
    }
}

fn range(text: &str) -> Result<RangeInclusive<u16>, Problem> {
    let port = |part: &str| part.parse::<u16>().map_err(|_| Problem::Port(text.to_owned()));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if first > last { Err(Problem::Port(text.to_owned())) } else { Ok(first..=last) }
}

fn network(text: &str) -> Result<Network, Problem> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().map_err(|_| Problem::Address(text.to_owned()))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => match bits.parse() {
            Ok(bits) if bits <= most => bits,
            _ => return Err(Problem::Bits(text.to_owned())),
        },
    };
    Ok(Network { address, bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_said_with_its_line() {
        for (text, part) in [
            ("fast", "`memory`, `tcp`, `stp` or `qpip`, not with `fast`"),
            ("udp", "not with `udp`"),
            ("tcp 22", "`22` is no condition"),
            ("tcp host=a", "`host=a` is no condition"),
            ("tcp port=", "`port=` says nothing"),
            ("tcp port=65536", "`65536` is no port"),
            ("tcp port=9-1", "`9-1` is no port"),
            ("tcp port=-1", "`-1` is no port"),
            ("tcp port=1 port=2", "twice"),
            ("tcp address=localhost", "`localhost` is no address"),
            ("tcp address=10.0.0.0/33", "more bits"),
            ("tcp address=::/x", "more bits"),
        ] {
            let error = format!("memory\n# well\n{text}\n").parse::<Rules>().unwrap_err();
            assert_eq!(error.line, 3, "{text}");
            let said = error.to_string();
            assert!(said.starts_with("line 3: ") && said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_no_rule_is_nothing() {
        for text in ["", "\n\n", "# tcp", "   \t # tcp\r\n"] {
            assert!(text.parse::<Rules>().unwrap().is_empty(), "{text:?}");
        }
        assert_eq!("tcp # why\r\nmemory".parse::<Rules>().unwrap().len(), 2);
    }
}
