//! [`Runs`]: a node that runs an engine, behind adapters or without: a test drives either.

use landfall_placement::{Engine, Instant, Refusals};
use landfall_simnet::{EngineNode, Memory, Node};

use super::{NicNode, Offloaded};
use crate::firmware::Firmware;

/// A node that runs this engine.
pub trait Runs<E: Engine>: Node + Sized {
    /// Hands each event to a function at once.
    #[must_use]
    fn with_handler(
        self,
        handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
    ) -> Self;
    /// The engine, to be used.
    fn engine_mut(&mut self) -> &mut E;
    /// The engine.
    fn engine(&self) -> &E;
    /// The memory, to be changed.
    fn memory_mut(&mut self) -> &mut Memory;
    /// The memory.
    fn memory(&self) -> &Memory;
    /// What the node itself refused.
    fn refused(&self) -> Refusals;
}

/// Both have these calls of their own.
macro_rules! by_its_own_calls {
    () => {
        fn with_handler(
            self,
            handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
        ) -> Self {
            self.on_event(handler)
        }

        fn engine_mut(&mut self) -> &mut E {
            Self::engine_mut(self)
        }

        fn engine(&self) -> &E {
            Self::engine(self)
        }

        fn memory_mut(&mut self) -> &mut Memory {
            Self::memory_mut(self)
        }

        fn memory(&self) -> &Memory {
            Self::memory(self)
        }

        fn refused(&self) -> Refusals {
            *Self::refusals(self)
        }
    };
}

impl<E: Engine + 'static> Runs<E> for EngineNode<E> {
    by_its_own_calls!();
}

impl<F, E> Runs<E> for NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    by_its_own_calls!();
}
