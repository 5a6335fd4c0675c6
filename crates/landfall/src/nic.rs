//! Simulated adapters as a transport: cards of `nic-firmware-model` that run the receive
//! path of their protocol, in front of a real path or between endpoints of one process.
//!
//! Chosen in code, or by configuration: with `LANDFALL_TRANSPORT=nic` in the environment
//! every path, link and receiver that a program opens has such a card in front of it.
//! Anyone who is at the other end stays who it was: the kernel behind a TAP, a station of the
//! Ethernet, another process behind UDP, with a card of its own or without.
//!
//! ```sh
//! LANDFALL_TRANSPORT=nic cargo run --release --example bulk
//! LANDFALL_TRANSPORT=nic,costs=period cargo run --release --example qpip_rpc
//! LANDFALL_TRANSPORT=nic,wire cargo run --release --example striping
//! ```
//!
//! With `costs=period` what an adapter does takes as long as it took on the adapters of
//! the papers, as far as this machine is fast enough. Without, it takes no time but this
//! machine's. With `wire` there is nothing real behind the cards: they are on [`Wire`]s of
//! this process that lose nothing, and need no privileges.
//!
//! | protocol | the card | with `wire` |
//! | --- | --- | --- |
//! | STP over UDP, IP | a Tigon-II ([`behind_nic`](crate::stp::Transport::behind_nic)) | at that address; all of them on one wire |
//! | STP over Ethernet, AF_XDP | the same | with a station address, on the wire with the name of that interface |
//! | QPIP on TAP, Ethernet, AF_XDP | a LANai 9 ([`behind_nic`](crate::qpip::Link::behind_nic)) | on the wire with the name of that interface |
//! | QPIP through a tunnel | the same | all of them on one wire |
//! | CLAN over UDP, Ethernet, AF_XDP | a CLAN adapter ([`behind_nic`](crate::clan::network::Transport::behind_nic)) | as STP |
//! | pages in fragments | a Hamachi ([`behind_nic`](crate::defrag::ReceiverBuilder::behind_nic)) | no difference: frames come from the interface |
//!
//! What joins two endpoints, adapters or nodes of a process is a wire of their own between
//! two cards, whatever else is said.
//!
//! Drivers that were handed in stay what they are. The CLAN adapter of the paper has links
//! that lose nothing; over other networks its card takes nothing off the host, and only
//! carries frames. Without the feature `nic` the environment is not looked at.
//!
//! What does not live here: the adapters, their firmware and the driver
//! (`nic-firmware-model`).

#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
use std::collections::BTreeMap;
use std::io;
#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
use std::sync::Mutex;

pub use nic_firmware_model::driver::{Pace, Port, Wire, WireConfig};

#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
use crate::runtime::locked;

/// Where a program is told to use simulated adapters.
pub const VARIABLE: &str = "LANDFALL_TRANSPORT";

/// The wires that configuration makes, by name.
#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
static WIRES: Mutex<BTreeMap<String, Wire>> = Mutex::new(BTreeMap::new());

/// What the environment says of simulated adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// How fast they are.
    pub pace: Pace,
    /// They are on wires of this process, and reach nobody outside of it.
    pub alone: bool,
}

/// Does the environment choose simulated adapters, and which?
///
/// # Errors
/// It says something else than this module has.
pub fn chosen() -> io::Result<Option<Chosen>> {
    std::env::var_os(VARIABLE).map_or(Ok(None), |value| {
        let understood = value.to_str().and_then(parse);
        let wrong = || {
            let value = value.display();
            let help = "`nic` is known, with `,wire` and `,costs=period` behind it or without, \
                        or leave it out";
            io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE}={value}: {help}"))
        };
        understood.map(Some).ok_or_else(wrong)
    })
}

fn parse(value: &str) -> Option<Chosen> {
    let mut words = value.split(',');
    if words.next() != Some("nic") {
        return None;
    }
    words.try_fold(Chosen::default(), |chosen, word| match word {
        "wire" => Some(Chosen { alone: true, ..chosen }),
        "costs=off" => Some(Chosen { pace: Pace::Free, ..chosen }),
        "costs=period" => Some(Chosen { pace: Pace::Period, ..chosen }),
        _ => None,
    })
}

/// The wire of this name; it is there for as long as anything is plugged in.
#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
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
        let of = |pace, alone| Some(Chosen { pace, alone });
        assert_eq!(parse("nic"), of(Pace::Free, false));
        assert_eq!(parse("nic,costs=off"), of(Pace::Free, false));
        assert_eq!(parse("nic,costs=period"), of(Pace::Period, false));
        assert_eq!(parse("nic,wire"), of(Pace::Free, true));
        assert_eq!(parse("nic,costs=period,wire"), of(Pace::Period, true));
        assert_eq!(["udp", "", "nic,", "NIC", "nic,costs=2", "wire"].map(parse), [None; 6]);
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
