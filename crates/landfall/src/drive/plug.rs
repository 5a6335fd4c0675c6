//! A path by a simulated adapter, and what configuration puts one in place of.

use std::fmt;
use std::io;

use landfall_placement::{Instant, PathId, PathLimits, Peer};
use landfall_transport::driver::Interests;
use landfall_transport::{Capabilities, Counters, Progress};
use nic_firmware_model::driver::{NicDriver, Pace, Wire};
use nic_firmware_model::firmware::Firmware;
use nic_firmware_model::node::Offloaded;

use super::AnyDriver;
use crate::nic::wire_named;

/// A card, before it is plugged in.
#[derive(Clone, Debug)]
pub(crate) struct Plug {
    pub(crate) wire: Wire,
    /// Its address there, where that is not the engine's to say.
    pub(crate) address: Peer,
    /// The longest unit, or frame, that it carries.
    pub(crate) unit: u32,
    pub(crate) pace: Pace,
}

/// So many bytes of IP are in a frame, unless something else was said.
const MTU: u32 = 1_500;
/// The header of Ethernet, where an engine writes it itself.
#[cfg(feature = "qpip")]
const ETHERNET: u32 = 14;

impl Plug {
    /// What stands in for a way whose payloads are units. Nothing does for a driver that
    /// was handed in.
    #[cfg(feature = "stp")]
    pub(crate) fn of_units<E>(way: &super::Way<E>, pace: Pace) -> Option<Self> {
        use super::Way;

        let sockets = || wire_named("sockets and hosts");
        // The wire knows a station address that is free.
        let station = Peer::Ethernet([0; 6]);
        let (wire, address, unit) = match way {
            Way::Udp(config) => (sockets(), config.bind.into(), config.unit),
            #[cfg(feature = "io-uring")]
            Way::UringUdp(config) => (sockets(), config.udp.bind.into(), config.udp.unit),
            Way::RawIp(config) => (sockets(), Peer::Ip(config.bind), config.unit),
            Way::Packet(config) => (wire_of(&config.interface), station, MTU),
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => (wire_of(&config.interface), station, MTU),
            Way::Xdp(config) => (wire_of(&config.interface), station, MTU),
            Way::Driver(..) => return None,
        };
        Some(Self { wire, address, unit, pace })
    }

    /// What stands in for an Ethernet by this name, whose units are whole frames.
    #[cfg(feature = "qpip")]
    pub(crate) fn of_frames(ethernet: &str, frame: Option<u32>, pace: Pace) -> Self {
        let unit = frame.unwrap_or(MTU + ETHERNET);
        Self { wire: wire_named(ethernet), address: Peer::Unaddressed, unit, pace }
    }
}

/// The wire of an interface.
#[cfg(feature = "stp")]
fn wire_of(interface: &landfall_transport::packet::Interface) -> Wire {
    wire_named(&interface.to_string())
}

impl fmt::Display for Plug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Peer::Unaddressed => f.write_str("a simulated adapter"),
            address => write!(f, "a simulated adapter at {address}"),
        }
    }
}

/// [`NicDriver`], among drivers of other kinds.
pub(crate) struct Nic<F: Firmware>(pub(crate) NicDriver<F>);

impl<E, F> AnyDriver<E> for Nic<F>
where
    E: Offloaded,
    F: Firmware<Command = E::Command, Report = E::Report> + Send,
    NicDriver<F>: Send,
{
    fn path(&self) -> PathId {
        self.0.path()
    }

    fn limits(&self) -> PathLimits {
        self.0.limits()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }

    fn counters_mut(&mut self) -> &mut Counters {
        self.0.counters_mut()
    }

    fn turn(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.0.turn(engine, now)
    }

    fn interests(&self) -> Interests {
        self.0.interests()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn cut(&mut self, engine: &mut E, now: Instant) {
        self.0.cut(engine, now);
    }
}
