//! What users choose by the environment.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use landfall::stp::{Builder, Config};

use crate::address::{Local, locals};
use crate::qpip::QpipSettings;

/// Encrypts nothing: `1`.
pub(crate) const PLAINTEXT: &str = "FI_LANDFALL_PLAINTEXT";
/// 64 hexadecimal digits that all ranks have: encrypts with them.
pub(crate) const KEY: &str = "FI_LANDFALL_KEY";
/// The interface, or the address, to be used.
pub(crate) const INTERFACE: &str = "FI_LANDFALL_IFACE";

/// The UDP ports that endpoints take: `20000-20063`.
pub(crate) const PORTS: &str = "FI_LANDFALL_PORTS";

/// How many seconds a peer may be silent before it is given up.
pub(crate) const PATIENCE: &str = "FI_LANDFALL_PATIENCE";

/// Further interfaces, addresses or networks, over which all is striped: `eth1,eth2`.
pub(crate) const RAILS: &str = "FI_LANDFALL_RAILS";
/// This many, beside the first.
const MOST_RAILS: usize = 7;

/// How many KiB may be on their way to an endpoint at a time.
pub(crate) const WINDOW: &str = "FI_LANDFALL_WINDOW";

/// What carries it between hosts: `stp`, unless `qpip` is chosen.
pub(crate) const CARRIER: &str = "FI_LANDFALL_CARRIER";

/// What the environment says.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// How an adapter of QPIP is opened, where that is the carrier.
    pub(crate) qpip: Option<QpipSettings>,
    is_plain: bool,
    key: Option<[u8; 32]>,
    pub(crate) interface: Option<String>,
    patience: Option<u32>,
    ports: Option<RangeInclusive<u16>>,
    rails: Vec<String>,
    window: Option<u64>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("is_plain", &self.is_plain).finish_non_exhaustive()
    }
}

impl Settings {
    /// What the environment of this process says.
    ///
    /// # Errors
    /// What makes no sense.
    pub(crate) fn of_environment() -> Result<Self, String> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_plain = match get(PLAINTEXT).as_deref() {
            None | Some("0" | "no" | "false") => false,
            Some("1" | "yes" | "true") => true,
            Some(other) => return Err(format!("{PLAINTEXT} is '{other}': 1 or 0 is meant")),
        };
        let key = match get(KEY) {
            None => None,
            Some(digits) => {
                Some(key(&digits).ok_or(format!("{KEY} has no 64 hexadecimal digits"))?)
            }
        };
        let patience = match get(PATIENCE).map(|seconds| seconds.parse()) {
            None => None,
            Some(Ok(seconds @ 1..=86_400)) => Some(seconds),
            Some(_) => return Err(format!("{PATIENCE} is no number of seconds, 1 to 86400")),
        };
        let ports = match get(PORTS) {
            None => None,
            Some(range) => {
                let why = format!("{PORTS} is '{range}': two ports are meant, as 20000-20063");
                Some(ports(&range).ok_or(why)?)
            }
        };
        let window = match get(WINDOW).map(|window| window.parse::<u64>()) {
            None => None,
            Some(Ok(kib @ 4..=4_194_304)) => Some(kib << 10),
            Some(_) => return Err(format!("{WINDOW} is no number of KiB, 4 to 4194304")),
        };
        let rails: Vec<String> = get(RAILS)
            .map(|names| names.split(',').map(|name| name.trim().to_owned()).collect())
            .unwrap_or_default();
        if rails.len() > MOST_RAILS {
            return Err(format!("{RAILS} names {}, and may name {MOST_RAILS}", rails.len()));
        }
        let of_stp = [(KEY, key.is_some()), (RAILS, !rails.is_empty()), (WINDOW, window.is_some())];
        let of_stp = of_stp.into_iter().find_map(|(name, is_set)| is_set.then_some(name));
        let qpip = qpip(get, is_plain, of_stp)?;
        // An adapter has no interface of this host.
        let interface = get(INTERFACE).filter(|_| qpip.is_none());
        Ok(Self { qpip, is_plain, key, interface, patience, ports, rails, window })
    }

    /// The addresses that endpoints may have, those first that other hosts reach.
    pub(crate) fn locals(&self) -> Vec<Local> {
        self.qpip.as_ref().map_or_else(locals, |qpip| vec![qpip.local.clone()])
    }

    /// Can memory of the other side be read and written?
    pub(crate) const fn reaches_memory(&self) -> bool {
        self.qpip.is_none()
    }

    /// How many seconds a peer may be silent, where users say so.
    pub(crate) const fn patience(&self) -> Option<u32> {
        self.patience
    }

    /// Where an endpoint of this address is reached beside it: the other rails that it has, in
    /// the order of their names. `all` are the addresses of this host.
    ///
    /// # Errors
    /// A name that none of them has.
    pub(crate) fn rails(&self, address: SocketAddr, all: &[Local]) -> Result<Vec<Local>, String> {
        let is_first = |local: &Local| local.ip == address.ip();
        let mut rails = Vec::new();
        for name in &self.rails {
            let is_meant = |local: &&Local| {
                local.ip.is_ipv4() == address.is_ipv4()
                    && (local.interface == *name
                        || local.ip.to_string() == *name
                        || local.network() == *name)
            };
            let found = all.iter().find(is_meant).ok_or_else(|| {
                let version = if address.is_ipv4() { 4 } else { 6 };
                format!("{RAILS}: no interface that is up is '{name}' and has IPv{version}")
            })?;
            if !is_first(found) && !rails.contains(found) {
                rails.push(found.clone());
            }
        }
        Ok(rails)
    }

    /// The addresses that an endpoint tries, one after the other: this one, and where the
    /// program leaves the port open and there is a choice of them, each of those.
    pub(crate) fn candidates(&self, address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let ports = match &self.ports {
            Some(ports) if address.port() == 0 => ports.clone(),
            _ => address.port()..=address.port(),
        };
        ports.map(move |port| SocketAddr::new(address.ip(), port))
    }

    /// The bounds of an endpoint's engine.
    fn config(&self) -> Config {
        let config = Config {
            connections: 1 << 14,
            half_open: 1 << 10,
            links: 1 << 15,
            sends: 1 << 13,
            receives: 1 << 13,
            operations: 512,
            exposed: 0xffff,
            ..Config::shared_network()
        };
        let config = Config { window: self.window.unwrap_or(config.window), ..config };
        match self.patience {
            None => config,
            Some(seconds) => config.patient_for(Duration::from_secs(seconds.into())),
        }
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder.config(self.config());
        match self.key {
            _ if self.is_plain => builder.plaintext(),
            Some(key) => builder.preshared_key(key),
            None => builder,
        }
    }
}

/// How an adapter of QPIP is opened, if that is chosen, which has no use for a setting of STP.
fn qpip(
    get: impl Fn(&str) -> Option<String>,
    is_plain: bool,
    of_stp: Option<&str>,
) -> Result<Option<QpipSettings>, String> {
    match (get(CARRIER).as_deref(), of_stp) {
        (None | Some("stp"), _) => Ok(None),
        (Some("qpip"), Some(name)) => {
            Err(format!("{name} is of STP, and {CARRIER} is 'qpip': leave one out"))
        }
        (Some("qpip"), None) if !is_plain => {
            Err(format!("QPIP encrypts nothing: {CARRIER}=qpip needs {PLAINTEXT}=1"))
        }
        (Some("qpip"), None) => QpipSettings::read(get).map(Some),
        (Some(other), _) => Err(format!("{CARRIER} is '{other}': stp or qpip is meant")),
    }
}

fn ports(range: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1..=last).contains(&first).then_some(first..=last)
}

fn key(digits: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_try_the_ports_that_there_are() {
        assert_eq!(ports("20000-20063"), Some(20_000..=20_063));
        assert_eq!(ports("7"), Some(7..=7));
        for nonsense in ["", "-", "0-5", "9-3", "1-70000", "a-b"] {
            assert_eq!(ports(nonsense), None, "{nonsense}");
        }
        let settings = Settings { ports: ports("7-9"), ..Settings::default() };
        let tried = |address: &str| -> Vec<u16> {
            settings.candidates(address.parse().unwrap()).map(|address| address.port()).collect()
        };
        assert_eq!(tried("192.0.2.1:0"), [7, 8, 9]);
        assert_eq!(tried("192.0.2.1:4711"), [4711], "the program's own choice");
        let free = Settings::default();
        assert_eq!(free.candidates(([192, 0, 2, 1], 0).into()).count(), 1);
    }

    #[test]
    fn rails_are_found_by_interface_address_and_network() {
        let local = |interface: &str, ip: &str, prefix| Local {
            interface: interface.to_owned(),
            ip: ip.parse().unwrap(),
            scope: 0,
            prefix,
        };
        let all = [
            local("eth0", "192.0.2.1", 24),
            local("eth1", "198.51.100.1", 24),
            local("eth1", "2001:db8::1", 64),
            local("eth2", "203.0.113.1", 25),
        ];
        let found = |names: &str, address: &str| {
            let rails = names.split(',').map(str::to_owned).collect();
            let settings = Settings { rails, ..Settings::default() };
            let rails = settings.rails(address.parse().unwrap(), &all)?;
            Ok::<_, String>(rails.iter().map(|rail| rail.ip.to_string()).collect::<Vec<_>>())
        };
        let both = Ok(vec!["198.51.100.1".to_owned(), "203.0.113.1".to_owned()]);
        assert_eq!(found("eth1,eth2", "192.0.2.1:7"), both);
        assert_eq!(found("198.51.100.1,203.0.113.0/25", "192.0.2.1:7"), both);
        assert_eq!(found("eth0,eth1,eth2,eth1", "192.0.2.1:7"), both, "each once");
        assert_eq!(found("eth1", "[2001:db8::7]:7"), Ok(vec!["2001:db8::1".to_owned()]));
        let why = found("eth2", "[2001:db8::7]:7").unwrap_err();
        assert!(why.contains("'eth2' and has IPv6"), "{why}");
    }

    #[test]
    fn a_key_has_64_digits() {
        assert_eq!(key(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(key(&"0g".repeat(32)), None);
        assert_eq!(key("0a"), None);
    }
}
