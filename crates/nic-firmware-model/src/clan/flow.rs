//! What the adapter tells the other end of its link by itself: how far it may send, and,
//! whatever that is, to stop while the FIFO is nearly full.

use clan_dsm::native::wire::Symbol;
use landfall_placement::Serial32;

/// Words that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owed {
    credit: Option<Serial32>,
    /// The FIFO is nearly full.
    is_full: bool,
    /// The host lets the other end wait, for reasons of its own.
    host_holds: bool,
    /// The other end was told to wait, by whomever.
    is_held: bool,
}

impl Owed {
    /// The other end may send up to there.
    pub(super) const fn credit(&mut self, edge: Serial32) {
        self.credit = Some(edge);
    }

    /// Of so many places of the FIFO so many are taken. The other end waits from three
    /// quarters on, and goes on at one: in between what is on its way finds room.
    pub(super) const fn fill(&mut self, taken: u32, places: u32) {
        if taken.saturating_mul(4) >= places.saturating_mul(3) {
            self.is_full = true;
        } else if taken.saturating_mul(4) <= places {
            self.is_full = false;
        }
    }

    /// A unit of the host leaves; it may tell the other end to wait, or to go on.
    pub(super) fn host_says(&mut self, head: &[u8]) {
        let Some(symbol) = head.first_chunk().copied().and_then(Symbol::from_bytes) else { return };
        match symbol {
            Symbol::Xoff => (self.host_holds, self.is_held) = (true, true),
            // While the FIFO is full, the other end is told anew.
            Symbol::Xon => (self.host_holds, self.is_held) = (false, false),
            // A link that begins anew has forgotten what it was told.
            Symbol::Begin { .. } => {
                (self.credit, self.host_holds, self.is_held) = (None, false, false);
            }
            Symbol::Ready { .. } | Symbol::Credit(_) | Symbol::Fault(_) => {}
        }
    }

    /// The next word.
    pub(super) fn poll(&mut self) -> Option<Symbol> {
        let holds = self.is_full || self.host_holds;
        if core::mem::replace(&mut self.is_held, holds) != holds {
            return Some(if holds { Symbol::Xoff } else { Symbol::Xon });
        }
        self.credit.take().map(Symbol::Credit)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn words(owed: &mut Owed) -> Vec<Symbol> {
        core::iter::from_fn(|| owed.poll()).collect()
    }

    #[test]
    fn the_other_end_waits_while_the_fifo_is_nearly_full() {
        let mut owed = Owed::default();
        let mut said = Vec::new();
        for taken in [1, 5, 6, 8, 5, 3, 2, 0, 7] {
            owed.fill(taken, 8);
            said.push(words(&mut owed));
        }
        let (on, off) = (vec![Symbol::Xon], vec![Symbol::Xoff]);
        let none = Vec::new;
        assert_eq!(said, [none(), none(), off.clone(), none(), none(), none(), on, none(), off,]);
    }

    #[test]
    fn it_waits_for_host_and_adapter_both() {
        let mut owed = Owed::default();
        owed.host_says(&Symbol::Xoff.to_bytes());
        owed.fill(8, 8);
        assert_eq!(words(&mut owed), [], "it was told already");
        owed.host_says(&Symbol::Xon.to_bytes());
        assert_eq!(words(&mut owed), [Symbol::Xoff], "the host spoke for itself");
        owed.fill(0, 8);
        owed.credit(Serial32(9));
        assert_eq!(words(&mut owed), [Symbol::Xon, Symbol::Credit(Serial32(9))]);
        owed.host_says(b"a unit of another kind");
        owed.host_says(b"short");
        assert_eq!(words(&mut owed), []);
    }
}
