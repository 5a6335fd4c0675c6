//! The link below: nothing of it is for the kernel's own protocols.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};

use spec_defrag::admission::Mac;

use super::BigMtuError;
use super::control::parse_station;

/// What shows that the kernel uses an interface itself: a route of IPv4 over it, or an
/// address of IPv6 beyond that of the link, which comes by itself.
pub(super) fn in_use(lower: &str) -> Option<String> {
    // `/proc/net` would show the namespace of the process, not of this thread.
    let table = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    ipv4_route(&table("route").unwrap_or_default(), lower)
        .or_else(|| ipv6_address(&table("if_inet6").unwrap_or_default(), lower))
}

/// Is there still an interface of this name? One that was taken away says so only to
/// who sends over it.
pub(super) fn is_there(lower: &str) -> bool {
    let Ok(table) = fs::read_to_string("/proc/thread-self/net/dev") else { return true };
    names(&table).any(|name| name == lower)
}

/// The station of a neighbour over this interface, as far as the kernel knows it.
pub(super) fn neighbour(interface: &str, address: Ipv4Addr) -> Option<Mac> {
    station_in(&fs::read_to_string("/proc/thread-self/net/arp").ok()?, interface, address)
}

fn station_in(table: &str, interface: &str, address: Ipv4Addr) -> Option<Mac> {
    table.lines().skip(1).find_map(|row| {
        let columns: Vec<_> = row.split_ascii_whitespace().collect();
        let [of, _, _, station, _, over] = columns[..] else { return None };
        let is_it = over == interface && of.parse() == Ok(address);
        // One that is being looked for has none.
        is_it.then(|| parse_station(station))?.filter(|station| *station != [0; 6])
    })
}

fn names(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|row| Some(row.split_once(':')?.0.trim()))
}

fn ipv4_route(table: &str, lower: &str) -> Option<String> {
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace();
        if columns.next()? != lower {
            return None;
        }
        // As it lies in memory, so its first byte comes last here on most machines.
        let to = u32::from_str_radix(columns.next()?, 16).ok()?.to_ne_bytes();
        Some(format!("a route to {}", Ipv4Addr::from(to)))
    })
}

fn ipv6_address(table: &str, lower: &str) -> Option<String> {
    /// `IPV6_ADDR_LINKLOCAL` of `net/ipv6.h`.
    const OF_THE_LINK: &str = "20";
    table.lines().find_map(|row| {
        let columns: Vec<_> = row.split_ascii_whitespace().collect();
        let [address, _, _, scope, _, name] = columns[..] else { return None };
        if name != lower || scope == OF_THE_LINK {
            return None;
        }
        let address = u128::from_str_radix(address, 16).ok()?;
        Some(format!("the address {}", std::net::Ipv6Addr::from(address)))
    })
}

/// Keeps all that arrives at an interface from the kernel's protocols, as long as it
/// lives. Dropped in another network namespace it leaves the rule behind.
#[derive(Debug)]
pub(super) struct InterfaceGuard {
    table: String,
}

impl InterfaceGuard {
    pub(super) fn raise(lower: &str) -> Result<Self, BigMtuError> {
        /// Before everything else that hangs on the hook.
        const PRIORITY: i32 = -500;
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let table: String = lower.chars().map(plain).collect();
        let table = format!("landfall_bigmtu_{table}");
        // The first two lines take away what one that was killed has left.
        let script = format!(
            "table netdev {table} {{ }}\ndelete table netdev {table}\ntable netdev {table} {{\n \
             chain kept {{\n  type filter hook ingress device \"{lower}\" priority {PRIORITY}; \
             policy drop;\n }}\n}}\n"
        );
        let said = nft(&["-f", "-"], &script).map_err(BigMtuError::NoNft)?;
        if said.status.success() {
            return Ok(Self { table });
        }
        let said = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        Err(BigMtuError::Nft { lower: lower.to_owned(), said })
    }
}

impl Drop for InterfaceGuard {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; with the lower link it goes too.
        let _ = nft(&["delete", "table", "netdev", &self.table], "");
    }
}

fn nft(arguments: &[&str], script: &str) -> io::Result<Output> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_the_kernel_uses_is_known() {
        let routes = "Iface\tDestination\tGateway\neth0\t0000000A\t00000000\n";
        let found = ipv4_route(routes, "eth0");
        if cfg!(target_endian = "little") {
            assert_eq!(found.as_deref(), Some("a route to 10.0.0.0"));
        }
        assert_eq!(ipv4_route(routes, "eth"), None);
        let links = "Inter-| Receive\n face |bytes\n  eth0: 1 2\n";
        assert_eq!(names(links).collect::<Vec<_>>(), ["eth0"]);
        let neighbours = "IP address HW type Flags HW address Mask Device\n\
                          10.9.0.2 0x1 0x2 02:00:00:00:00:0a * big0\n\
                          10.9.0.3 0x1 0x0 00:00:00:00:00:00 * big0\n";
        let station = |last, over| station_in(neighbours, over, Ipv4Addr::new(10, 9, 0, last));
        assert_eq!(station(2, "big0"), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!(
            (station(3, "big0"), station(2, "big1"), station(4, "big0")),
            (None, None, None)
        );
        let addresses = "fe800000000000000000000000000001 02 40 20 80 eth0\n\
                         fd000000000000000000000000000001 02 40 00 80     eth1\n";
        assert_eq!(ipv6_address(addresses, "eth0"), None);
        assert_eq!(ipv6_address(addresses, "eth1").as_deref(), Some("the address fd00::1"));
    }
}
