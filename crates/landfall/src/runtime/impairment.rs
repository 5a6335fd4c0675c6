//! [`Impairment`]: faults on purpose around a driver.

use std::io;

use landfall_placement::Engine;
#[cfg(feature = "faults")]
use landfall_placement::Seed;
use landfall_transport::Driver;
#[cfg(feature = "faults")]
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::Regions;

use super::AnyDriver;

/// What is done to the units of a path on purpose, for tests: nothing, or
/// [`Faults`](landfall_transport::fault::Faults).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairment {
    #[cfg(feature = "faults")]
    faults: Option<(Faults, Seed)>,
}

impl Impairment {
    #[cfg(feature = "faults")]
    pub(crate) const fn new(faults: Faults, seed: Seed) -> Self {
        Self { faults: Some((faults, seed)) }
    }

    /// Makes a driver one of its engine's, with what impairs its path around it.
    pub(crate) fn around<E: Engine, D: Driver + Send + 'static>(
        &self,
        driver: D,
        regions: &Regions,
    ) -> io::Result<Box<dyn AnyDriver<E>>> {
        #[cfg(feature = "faults")]
        if let Some((faults, seed)) = self.faults {
            let faulty = Faulty::new(driver, faults, seed, regions).map_err(io::Error::other)?;
            return Ok(Box::new(faulty));
        }
        let _ = regions;
        Ok(Box::new(driver))
    }
}
