//! [`Over`]: what an endpoint or node is reached over: a way, or a simulated adapter.

use std::fmt;
#[cfg(feature = "nic")]
use std::io;

use landfall_placement::Engine;
#[cfg(feature = "nic")]
use landfall_placement::PathId;
#[cfg(feature = "nic")]
use landfall_transport::memory::Regions;
#[cfg(feature = "nic")]
use nic_firmware_model::driver::Pace;
#[cfg(feature = "nic")]
use nic_firmware_model::firmware::Firmware;
#[cfg(feature = "nic")]
use nic_firmware_model::machine::Adapter;
#[cfg(feature = "nic")]
use nic_firmware_model::node::Offloaded;

use super::Way;
#[cfg(feature = "nic")]
use super::lane::Lane;
#[cfg(feature = "nic")]
use super::plug::Plug;

/// See the module.
pub(crate) enum Over<E> {
    Way(Way<E>),
    #[cfg(feature = "nic")]
    Nic(Plug),
}

impl<E: Engine + 'static> Over<E> {
    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        match self {
            Self::Way(way) => way.is_shared(),
            #[cfg(feature = "nic")]
            Self::Nic(plug) => plug.is_shared(),
        }
    }
}

#[cfg(feature = "nic")]
impl<E: Offloaded + 'static> Over<E> {
    /// What configuration says that it shall be.
    pub(crate) fn configured(self) -> io::Result<Self> {
        let Some(chosen) = crate::nic::chosen()? else { return Ok(self) };
        Ok(match self {
            Self::Way(way) if chosen.alone => match Plug::of_units(&way, chosen.pace) {
                Some(plug) => Self::Nic(plug),
                None => Self::Way(way),
            },
            Self::Way(_) => self.behind(chosen.pace),
            Self::Nic(_) => self,
        })
    }

    /// An adapter stands in front of it; of a driver that was handed in none can.
    pub(crate) fn behind(self, pace: Pace) -> Self {
        match self {
            Self::Way(way) => match way.for_other() {
                Ok(way) => Self::Nic(Plug::before(way, pace)),
                Err(way) => Self::Way(way),
            },
            Self::Nic(plug) => Self::Nic(plug),
        }
    }

    /// Opens it; if it is an adapter, with the card that is made for units of such a length.
    pub(crate) fn open<F>(
        self,
        path: PathId,
        regions: &Regions,
        card: impl FnOnce(u32, Pace) -> Adapter<'static, F>,
    ) -> io::Result<Lane<E>>
    where
        F: Firmware<Command = E::Command, Report = E::Report> + Send + 'static,
        Adapter<'static, F>: Send,
    {
        match self {
            Self::Way(way) => way.open(path, regions),
            Self::Nic(plug) => plug.open(path, regions, card),
        }
    }
}

impl<E: Engine + 'static> fmt::Display for Over<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Way(way) => way.fmt(f),
            #[cfg(feature = "nic")]
            Self::Nic(plug) => plug.fmt(f),
        }
    }
}
