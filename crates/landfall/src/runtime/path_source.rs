//! [`PathSource`]: what an endpoint or node is reached over: a driver, or a simulated adapter.

use std::fmt;
#[cfg(feature = "nic")]
use std::io;

use landfall_placement::Engine;
#[cfg(feature = "nic")]
use landfall_placement::PathId;
#[cfg(feature = "faults")]
use landfall_placement::Seed;
#[cfg(feature = "faults")]
use landfall_transport::fault::Faults;
#[cfg(feature = "nic")]
use landfall_transport::memory::Regions;
#[cfg(feature = "clan")]
use landfall_transport::udp::UdpConfig;
#[cfg(feature = "nic")]
use nic_firmware_model::driver::Pace;
#[cfg(feature = "nic")]
use nic_firmware_model::firmware::Firmware;
#[cfg(feature = "nic")]
use nic_firmware_model::machine::Adapter;
#[cfg(feature = "nic")]
use nic_firmware_model::node::Offloaded;

use super::DriverSource;
#[cfg(any(feature = "clan", feature = "stp"))]
use super::Reach;
#[cfg(any(feature = "clan", feature = "stp"))]
use super::SharedPath;
#[cfg(feature = "nic")]
use super::adapter_source::AdapterSource;
#[cfg(feature = "nic")]
use super::path::Path;

/// What an endpoint or node is reached over: a driver, or a simulated adapter.
pub(crate) enum PathSource<E> {
    Driver(DriverSource<E>),
    #[cfg(feature = "nic")]
    Adapter(AdapterSource),
}

impl<E: Engine + 'static> PathSource<E> {
    /// The same path, on which things go wrong. Around a simulated adapter they do not: its
    /// wire has faults of its own.
    #[cfg(feature = "faults")]
    pub(crate) fn impaired(self, faults: Faults, seed: Seed) -> Self {
        match self {
            Self::Driver(driver) => Self::Driver(driver.impaired(faults, seed)),
            #[cfg(feature = "nic")]
            Self::Adapter(adapter) => Self::Adapter(adapter),
        }
    }

    /// How far what is sent over it gets. What is behind a simulated adapter is a model.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn reach(&self) -> Reach {
        match self {
            Self::Driver(driver) => driver.reach(),
            #[cfg(feature = "nic")]
            Self::Adapter(_) => Reach::Process,
        }
    }

    /// Where it is bound, if it is UDP by a socket, and how.
    #[cfg(feature = "clan")]
    pub(crate) fn udp(&self) -> Option<UdpConfig> {
        match self {
            Self::Driver(driver) => driver.udp(),
            #[cfg(feature = "nic")]
            Self::Adapter(_) => None,
        }
    }

    /// What it is, if several engines can share it. A simulated adapter has one behind it.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn as_shared(&self) -> Option<SharedPath> {
        match self {
            Self::Driver(driver) => driver.as_shared(),
            #[cfg(feature = "nic")]
            Self::Adapter(_) => None,
        }
    }

    /// It hears this group of stations, too. Says whether it can.
    #[cfg(feature = "clan")]
    pub(crate) fn hear_group(&mut self, group: [u8; 6]) -> bool {
        match self {
            Self::Driver(driver) => driver.hear_group(group),
            #[cfg(feature = "nic")]
            Self::Adapter(_) => false,
        }
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        match self {
            Self::Driver(driver) => driver.is_shared(),
            #[cfg(feature = "nic")]
            Self::Adapter(adapter) => adapter.is_shared(),
        }
    }
}

#[cfg(feature = "nic")]
impl<E: Offloaded + 'static> PathSource<E> {
    /// What configuration says that it shall be.
    pub(crate) fn configured(self) -> io::Result<Self> {
        let Some(chosen) = crate::nic::chosen()? else { return Ok(self) };
        Ok(match self {
            Self::Driver(driver) if chosen.alone => {
                match AdapterSource::of_units(&driver, chosen.pace) {
                    Some(adapter) => Self::Adapter(adapter),
                    None => Self::Driver(driver),
                }
            }
            Self::Driver(_) => self.behind(chosen.pace),
            Self::Adapter(_) => self,
        })
    }

    /// An adapter stands in front of it; of a driver that was handed in none can.
    pub(crate) fn behind(self, pace: Pace) -> Self {
        match self {
            Self::Driver(driver) => match driver.for_other() {
                Ok(driver) => Self::Adapter(AdapterSource::before(driver, pace)),
                Err(driver) => Self::Driver(*driver),
            },
            Self::Adapter(adapter) => Self::Adapter(adapter),
        }
    }

    /// Opens it; if it is an adapter, with the card that is made for units of such a length.
    pub(crate) fn open<F>(
        self,
        path: PathId,
        regions: &Regions,
        card: impl FnOnce(u32, Pace) -> Adapter<'static, F>,
    ) -> io::Result<Path<E>>
    where
        F: Firmware<Command = E::Command, Report = E::Report> + Send + 'static,
        Adapter<'static, F>: Send,
    {
        match self {
            Self::Driver(driver) => driver.open(path, regions),
            Self::Adapter(adapter) => adapter.open(path, regions, card),
        }
    }
}

impl<E: Engine + 'static> fmt::Display for PathSource<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(driver) => driver.fmt(f),
            #[cfg(feature = "nic")]
            Self::Adapter(adapter) => adapter.fmt(f),
        }
    }
}
