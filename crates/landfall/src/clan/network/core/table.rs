//! [`Names`]: what belongs to the names that the engine gives, found by a look at
//! one place.

use clan_dsm::{
    BarrierId, DmaId, EndpointId, LinkId, OperationId, ReadId, TripwireId, WindowId, WriteId,
};

/// A name of the engine: a slot, and when it was given.
pub(crate) trait Name: Copy + Eq {
    fn slot(self) -> usize;
}

macro_rules! names {
    ($($name:ty),+) => {$(
        impl Name for $name {
            fn slot(self) -> usize {
                self.index() as usize
            }
        }
    )+};
}

names!(BarrierId, DmaId, EndpointId, LinkId, OperationId, ReadId, TripwireId, WindowId, WriteId);

/// See the module. It is as long as the largest slot that was used, and slots are
/// bounded by the engine's configuration.
#[derive(Debug)]
pub(crate) struct Names<N, T>(Vec<Option<(N, T)>>);

impl<N, T> Default for Names<N, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Name, T> Names<N, T> {
    /// The engine gives a slot anew only when it was done with what had it.
    pub(crate) fn insert(&mut self, name: N, item: T) {
        let slot = name.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some((name, item));
    }

    pub(crate) fn get_mut(&mut self, name: N) -> Option<&mut T> {
        match self.0.get_mut(name.slot())? {
            Some((known, item)) if *known == name => Some(item),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, name: N) -> Option<T> {
        let place = self.0.get_mut(name.slot())?;
        if place.as_ref().is_some_and(|(known, _)| *known == name) {
            place.take().map(|(_, item)| item)
        } else {
            None
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten().map(|(_, item)| item)
    }

    /// All of them, which leaves none.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.0).into_iter().flatten().map(|(_, item)| item).collect()
    }
}
