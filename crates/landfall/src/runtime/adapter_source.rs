//! A path by a simulated adapter, and what configuration puts one in place of.

use std::fmt;
use std::io;

use landfall_placement::{Instant, PathId, PathLimits, Peer};
use landfall_transport::driver::Interests;
use landfall_transport::memory::Regions;
use landfall_transport::{Capabilities, Counters, Progress};
use nic_firmware_model::driver::{Cable, Far, FarEnd, NicDriver, Pace, Relay, Wire};
use nic_firmware_model::firmware::Firmware;
#[cfg(any(feature = "clan", feature = "stp"))]
use nic_firmware_model::machine::Adapter;
use nic_firmware_model::node::Offloaded;

use super::AnyDriver;
#[cfg(any(feature = "clan", feature = "stp"))]
use super::{DriverSource, Path, PeerKind};
use crate::nic::wire_named;

/// A card, before it is plugged in.
pub(crate) struct AdapterSource {
    cable: CableEnd,
    pub(crate) pace: Pace,
}

/// Where the cable of a card leads.
enum CableEnd {
    /// To other cards of this process.
    Wire {
        wire: Wire,
        /// The card's address there, where that is not the engine's to say.
        address: Peer,
        /// The longest unit, or frame, that it carries.
        unit: u32,
    },
    /// To whatever is there without a card.
    #[cfg(any(feature = "clan", feature = "stp"))]
    Driver(DriverSource<Relay>),
}

/// This many bytes of IP are in a frame, unless something else was said.
const MTU: u32 = 1_500;
/// The header of Ethernet, where an engine writes it itself.
#[cfg(feature = "qpip")]
const ETHERNET: u32 = 14;

impl AdapterSource {
    /// A card on a wire of this process, for units of at most this many bytes.
    pub(crate) const fn on(wire: Wire, address: Peer, unit: u32, pace: Pace) -> Self {
        Self { cable: CableEnd::Wire { wire, address, unit }, pace }
    }

    /// A card in front of a driver.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) const fn before(driver: DriverSource<Relay>, pace: Pace) -> Self {
        Self { cable: CableEnd::Driver(driver), pace }
    }

    /// What stands in for a driver whose payloads are units, for cards of this process alone.
    /// Nothing does for a driver that was handed in.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn of_units<E>(driver: &DriverSource<E>, pace: Pace) -> Option<Self> {
        let sockets = || wire_named("sockets and hosts");
        let wire_of = |interface: &landfall_transport::packet::Interface| {
            // The wire knows a station address that is free.
            (wire_named(&interface.to_string()), Peer::Ethernet([0; 6]), MTU)
        };
        let (wire, address, unit) = match driver {
            DriverSource::Udp(config) => (sockets(), config.bind.into(), config.unit),
            DriverSource::UdpPacket(config) => (sockets(), config.udp.bind.into(), config.udp.unit),
            #[cfg(feature = "io-uring")]
            DriverSource::UringUdpPacket(config) => {
                (sockets(), config.udp.bind.into(), config.udp.unit)
            }
            #[cfg(feature = "io-uring")]
            DriverSource::UringUdp(config) => (sockets(), config.udp.bind.into(), config.udp.unit),
            DriverSource::RawIp(config) => (sockets(), Peer::Ip(config.bind), config.unit),
            DriverSource::Packet(config) => wire_of(&config.interface),
            #[cfg(feature = "io-uring")]
            DriverSource::UringPacket(config) => wire_of(&config.interface),
            DriverSource::Xdp(config) => wire_of(&config.interface),
            DriverSource::Member(_) | DriverSource::HandedIn(..) => return None,
            #[cfg(feature = "faults")]
            DriverSource::Impaired(..) => return None,
        };
        Some(Self::on(wire, address, unit, pace))
    }

    /// What stands in for an Ethernet by this name, whose units are whole frames.
    #[cfg(feature = "qpip")]
    pub(crate) fn of_frames(ethernet: &str, frame: Option<u32>, pace: Pace) -> Self {
        let unit = frame.unwrap_or(MTU + ETHERNET);
        Self::on(wire_named(ethernet), Peer::Unaddressed, unit, pace)
    }

    /// Is it on a network that others share, so that it should yield to them?
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) const fn is_shared(&self) -> bool {
        match &self.cable {
            CableEnd::Wire { .. } => false,
            CableEnd::Driver(driver) => driver.is_shared(),
        }
    }

    /// Plugs a card in, which is made for units of such a length.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn open<E, F>(
        self,
        path: PathId,
        regions: &Regions,
        card: impl FnOnce(u32, Pace) -> Adapter<'static, F>,
    ) -> io::Result<Path<E>>
    where
        E: Offloaded,
        F: Firmware<Command = E::Command, Report = E::Report> + Send + 'static,
        Adapter<'static, F>: Send,
    {
        let (cable, unit, kind, local) = match self.cable {
            CableEnd::Wire { wire, address, unit } => {
                let port = wire.plug(address)?;
                let local = port.address();
                (Box::new(port) as Box<dyn Cable>, unit, PeerKind::of(local), Some(local))
            }
            CableEnd::Driver(driver) => {
                let (far, (kind, local)) = far(path, |regions| {
                    let Path { driver, kind, local, .. } = driver.open(path, regions)?;
                    Ok((driver, (kind, local)))
                })?;
                let unit = far.unit();
                (Box::new(far) as Box<dyn Cable>, unit, kind, local)
            }
        };
        let card = card(unit, self.pace);
        let driver =
            Box::new(AdapterDriver(NicDriver::new(path, number(path), card, cable, regions, unit)));
        Ok(Path::new(driver, kind, local))
    }

    /// Plugs the port of a card in whose address is its engine's. Returns the longest frame.
    #[cfg(feature = "qpip")]
    pub(crate) fn port(&self, station: [u8; 6]) -> io::Result<(Box<dyn Cable>, u32)> {
        match &self.cable {
            CableEnd::Wire { wire, unit, .. } => {
                Ok((Box::new(wire.plug(Peer::Ethernet(station))?), *unit))
            }
            #[cfg(any(feature = "clan", feature = "stp"))]
            CableEnd::Driver(driver) => {
                Err(io::Error::other(format!("{driver} carries no frames")))
            }
        }
    }
}

/// Which of an engine's adapters the card of this path is. Paths beyond the last adapter are
/// on that one; it knows nothing of them.
pub(crate) fn number(path: PathId) -> u8 {
    u8::try_from(path.0).unwrap_or(u8::MAX)
}

/// A cable to what a driver reaches, which is opened for this path and in this memory.
pub(crate) fn far<T>(
    path: PathId,
    open: impl FnOnce(&Regions) -> io::Result<(Box<dyn AnyDriver<Relay>>, T)>,
) -> io::Result<(Far, T)> {
    let mut beside = None;
    let far = Far::open(path, |regions| {
        let (driver, found) = open(regions)?;
        beside = Some(found);
        Ok(Box::new(End(driver)))
    })?;
    // It is there if the driver is.
    let beside = beside.ok_or_else(|| io::Error::other("nothing was opened"))?;
    Ok((far, beside))
}

/// A driver of any kind, at the far end of a cable.
struct End(Box<dyn AnyDriver<Relay>>);

impl FarEnd for End {
    fn limits(&self) -> PathLimits {
        self.0.limits()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn turn(&mut self, relay: &mut Relay, now: Instant) -> io::Result<Progress> {
        self.0.turn(relay, now)
    }

    fn interests(&self) -> Interests {
        self.0.interests()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }
}

impl fmt::Display for AdapterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cable {
            CableEnd::Wire { address: Peer::Unaddressed, .. } => f.write_str("a simulated adapter"),
            CableEnd::Wire { address, .. } => write!(f, "a simulated adapter at {address}"),
            #[cfg(any(feature = "clan", feature = "stp"))]
            CableEnd::Driver(driver) => write!(f, "a simulated adapter before {driver}"),
        }
    }
}

/// [`NicDriver`], among drivers of other kinds.
pub(crate) struct AdapterDriver<F: Firmware>(pub(crate) NicDriver<F>);

impl<E, F> AnyDriver<E> for AdapterDriver<F>
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
