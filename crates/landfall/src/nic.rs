//! Simulated adapters as a transport: two endpoints of one process, each behind a card
//! of `nic-firmware-model` that runs the receive path of its protocol, on one [`Wire`].
//!
//! Chosen in code, by [`stp::Transport::nic`](crate::stp::Transport::nic) and
//! [`qpip::Link::nic`](crate::qpip::Link::nic), or by configuration: with
//! `LANDFALL_TRANSPORT=nic` in the environment every path of STP and link of QPIP here is
//! one of a simulated adapter, whatever the program asked for. Addresses stay what they
//! were. Peers in other processes are not there.
//!
//! ```sh
//! LANDFALL_TRANSPORT=nic cargo run --release --example bulk
//! LANDFALL_TRANSPORT=nic,costs=period cargo run --release --example qpip_rpc
//! ```
//!
//! With `costs=period` what an adapter does takes as long as it took on the adapters of
//! the papers, as far as this machine is fast enough. Without, it takes no time but this
//! machine's.
//!
//! | asked for | what stands there instead |
//! | --- | --- |
//! | STP over UDP, IP | a Tigon-II at that address; all of them on one wire |
//! | STP over Ethernet, AF_XDP | a Tigon-II with a station address, on the wire with the name of that interface |
//! | STP between two endpoints of the process | two Tigon-IIs on a wire of their own |
//! | QPIP on TAP, Ethernet, AF_XDP | a LANai 9 on the wire with the name of that interface |
//! | QPIP through a tunnel | a LANai 9; all of them on one wire |
//! | QPIP between two adapters of the process | two LANai 9 on a wire of their own |
//!
//! Drivers that were handed in stay what they are, and so do paths of CLAN and receivers of
//! fragments: they have no adapter here. Without the feature `nic` the
//! environment is not looked at.
//!
//! What does not live here: the adapters, their firmware and the driver
//! (`nic-firmware-model`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

pub use nic_firmware_model::driver::{Pace, Port, Wire, WireConfig};

use crate::drive::locked;

/// Where a program is told to use simulated adapters.
pub const VARIABLE: &str = "LANDFALL_TRANSPORT";

/// The wires that configuration makes, by name.
static WIRES: Mutex<BTreeMap<String, Wire>> = Mutex::new(BTreeMap::new());

/// Does the environment choose simulated adapters, and of which pace?
///
/// # Errors
/// It says something else than this module has.
pub fn chosen() -> io::Result<Option<Pace>> {
    std::env::var_os(VARIABLE).map_or(Ok(None), |value| {
        let understood = value.to_str().and_then(pace_of);
        let wrong = || {
            let value = value.display();
            let help = "`nic` and `nic,costs=period` are known, or leave it out";
            io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE}={value}: {help}"))
        };
        understood.map(Some).ok_or_else(wrong)
    })
}

fn pace_of(value: &str) -> Option<Pace> {
    match value {
        "nic" | "nic,costs=off" => Some(Pace::Free),
        "nic,costs=period" => Some(Pace::Period),
        _ => None,
    }
}

/// The wire of this name; it is there for as long as anything is plugged in.
pub(crate) fn wire_named(name: &str) -> Wire {
    let mut wires = locked(&WIRES);
    wires.retain(|_, wire| !wire.is_unused());
    let new = || Wire::new(WireConfig::default());
    wires.entry(name.to_owned()).or_insert_with(new).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_understood_or_refused() {
        assert_eq!(pace_of("nic"), Some(Pace::Free));
        assert_eq!(pace_of("nic,costs=off"), Some(Pace::Free));
        assert_eq!(pace_of("nic,costs=period"), Some(Pace::Period));
        assert_eq!(["udp", "", "nic,", "NIC", "nic,costs=2"].map(pace_of), [None; 5]);
    }

    #[test]
    fn a_wire_is_the_same_for_all_who_name_it_and_gone_behind_the_last() {
        let of = |node| landfall_placement::Peer::Node(node);
        let one = wire_named("test 1").plug(of(1)).unwrap();
        assert!(wire_named("test 1").plug(of(1)).is_err(), "somebody is there");
        assert!(wire_named("test 2").plug(of(1)).is_ok());
        drop(one);
        assert!(wire_named("test 1").plug(of(1)).is_ok());
    }
}
