//! The worm-hole switch as a node of the simulator: packets pass word by word, are cut
//! where several want one way and joined where they lie behind one another, and go to all
//! members of a group at once.
//!
//! The switch itself is [`clan_dsm::native::switch::Switch`]; here is what moves its units. A link
//! of the simulator should queue a unit or two and no more, for who waits must wait in
//! front of the switch, and be told so by the credit of its link.

use clan_dsm::native::switch::{Attachment, PortId as Route, Switch};
use clan_dsm::native::wire::Trailer;
use landfall_placement::Instant;
use landfall_simnet::{Frame, LinkState, Node, Outbox, PortId};

/// A switch with native links.
#[derive(Debug)]
pub struct SwitchNode {
    switch: Switch,
    /// A unit that is being sent; empty between calls.
    unit: Vec<u8>,
    /// The longest unit that left each port.
    longest: Vec<usize>,
}

impl SwitchNode {
    /// A node for this switch.
    #[must_use]
    pub const fn new(switch: Switch) -> Self {
        Self { switch, unit: Vec::new(), longest: Vec::new() }
    }

    /// The switch.
    #[must_use]
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The switch, to be told of hosts and groups.
    pub const fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// The longest unit that left a port, in bytes.
    #[must_use]
    pub fn longest(&self, port: PortId) -> usize {
        self.longest.get(usize::from(port.0)).copied().unwrap_or(0)
    }

    /// Sends what may leave. One unit for each port in its turn, as what leaves one makes
    /// room for what waits for others.
    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.longest.resize(usize::from(out.ports()), 0);
        let mut moves = true;
        while moves {
            moves = false;
            for port in 0..out.ports() {
                if !out.has_room(PortId(port)) {
                    out.call_when_room(PortId(port));
                    continue;
                }
                self.unit.clear();
                if self.switch.poll_unit(now, Route(port as u8), &mut self.unit) {
                    let longest = &mut self.longest[usize::from(port)];
                    *longest = self.unit.len().max(*longest);
                    out.send(PortId(port), Frame::raw(core::mem::take(&mut self.unit)));
                    moves = true;
                }
            }
        }
    }
}

impl Node for SwitchNode {
    fn handle_frame(&mut self, now: Instant, port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        // The switch counts what it refuses, and ends the link.
        let _ = self.switch.handle_unit(now, Route(port.0 as u8), &frame.bytes);
        self.drain(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let line = match state {
            LinkState::Up { mtu } => Attachment::Up { unit: mtu, trailer: Trailer::None },
            LinkState::Down => Attachment::Down,
        };
        if self.switch.handle_line(now, Route(port.0 as u8), line).is_err() {
            out.fail("the switch has no such port, or the link carries no packet");
        }
        self.drain(now, out);
    }

    fn handle_room(&mut self, now: Instant, _port: PortId, out: &mut Outbox<'_>) {
        self.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.switch.handle_timeout(now);
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.switch.poll_timeout().map(|timeout| timeout.at)
    }
}
