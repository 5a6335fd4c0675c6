//! A native link below the adapter: a wire that neither loses nor reorders (section 2.2 of
//! the paper), in place of frames and networks.
//!
//! What is written, asked and answered waits where it does for a network; here each thing
//! leaves as a packet of its own, and counts as arrived once it has left. What comes is
//! checked word by word in effect, as packets are cut and joined on their way. Where the
//! link is damaged it begins anew, under another name.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `arrive` | where packets belong, and what happens once they are there |
//! | `send` | what goes into the next packet |
//! | `mirror` | what an adapter knows that takes packets off this host |
//!
//! # With an adapter
//!
//! Where the configuration says so, packets that an adapter took are heard of by
//! [`handle_report`](Nic::handle_report), and the adapter is told by
//! [`poll_command`](Nic::poll_command) what it may take.

mod arrive;
mod mirror;
mod send;

use alloc::collections::VecDeque;

use landfall_placement::{Instant, PathId, PathState, Serial32, Timeout, assumed};

use super::Nic;
use crate::address::{Address, ApertureId, HostId, LinkId, TripwireId, WORD};
use crate::config::NativeConfig;
use crate::cookie::Cookie;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::native::{MOST_INDIVISIBLE, NativeLink, Settings, State};
use crate::offload::{Command, Report, group_key};

use arrive::Arriving;
use mirror::Mirror;
use send::InFlight;

pub(crate) use send::MOST_COPIED;

/// What a path must carry: every command.
const LEAST_UNIT: u32 = Address::LEN as u32 + MOST_INDIVISIBLE * WORD;

/// An aperture that was revoked, until nothing writes there any more.
#[derive(Clone, Copy, Debug)]
struct RevokedAperture {
    aperture: ApertureId,
    /// Up to which placement drivers may write there.
    placement: Serial32,
    /// After which fence the adapter does not.
    fence: Option<Serial32>,
}

/// The native link of a host.
#[derive(Debug)]
pub(super) struct Native {
    config: NativeConfig,
    /// The longest unit of the path; zero while it is down.
    unit: u32,
    session: u32,
    link: NativeLink,
    /// What the user knows it by, while it is up.
    up: Option<LinkId>,
    /// How often it has been up.
    times_up: u32,
    arriving: Arriving,
    in_flight: InFlight,
    releasing: VecDeque<RevokedAperture>,
    pub(super) mirror: Option<Mirror>,
}

impl Native {
    /// A link that is down; it names its beginnings from `session` on.
    pub(super) fn new(config: NativeConfig, host: HostId, session: u32) -> Self {
        let settings = Settings { host: Some(host), room: config.room, patience: config.patience };
        Self {
            unit: 0,
            session,
            link: NativeLink::new(settings),
            up: None,
            times_up: 0,
            arriving: Arriving::default(),
            in_flight: InFlight::default(),
            releasing: VecDeque::new(),
            mirror: config.adapter.then(Mirror::default),
            config,
        }
    }

    /// The most words of a packet that is copied.
    pub(super) const fn pio_burst(&self) -> u32 {
        self.config.pio_burst
    }

    pub(super) fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        if path != self.config.path {
            return;
        }
        let unit = match state {
            PathState::Up(limits) if u32::from(limits.head) >= LEAST_UNIT => limits.unit,
            _ => 0,
        };
        let was_up = self.unit > 0;
        self.unit = if unit >= LEAST_UNIT { unit } else { 0 };
        if self.unit == 0 {
            self.link.handle_down();
        } else if !was_up {
            self.begin(now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Timeout> {
        self.link.poll_timeout().filter(|_| self.unit > 0)
    }

    /// Whether the other end is to stop, whatever its credit (Xoff), or may go on (Xon).
    pub(super) fn hold(&mut self, hold: bool) {
        self.link.hold(hold);
    }

    /// Ends the link; it begins anew.
    pub(super) fn close(&mut self, link: LinkId) -> Result<(), Error> {
        if self.up != Some(link) {
            return Err(Error::Unknown);
        }
        self.link.close();
        Ok(())
    }

    /// Begins the link, if there is a path. What came before and is not in its place yet
    /// still takes room.
    fn begin(&mut self, now: Instant) {
        if self.unit > 0 {
            self.session = self.session.wrapping_add(1);
            self.link.handle_up(now, self.session);
            self.anew();
        }
    }

    /// The link counts from zero.
    fn anew(&mut self) {
        self.link.handle_occupied(self.arriving.cost());
        self.arriving.session = self.arriving.session.wrapping_add(1);
        if let Some(mirror) = &mut self.mirror {
            // What it gave and lost is not waited for.
            mirror.fence();
        }
    }
}

impl Nic {
    /// Brings what depends on the state of the native link up to date.
    #[inline(never)]
    pub(super) fn settle_native(&mut self, now: Instant) {
        let Some(native) = assumed(self.native.as_mut(), "there is a native link") else { return };
        if native.link.take_restarted() {
            self.native_down(Ended::Restarted);
            self.native.iter_mut().for_each(|native| native.anew());
        }
        let Some(native) = assumed(self.native.as_mut(), "there is a native link") else { return };
        match native.link.state() {
            State::Down(why) => {
                self.native_down(why);
                self.native.iter_mut().for_each(|native| native.begin(now));
            }
            State::Up if native.up.is_none() => self.native_up(now),
            State::Up | State::Starting => {}
        }
        let waits = self.has_payload();
        self.release();
        let Some(native) = assumed(self.native.as_mut(), "there is a native link") else { return };
        native.link.handle_waiting(now, waits);
        if let Some(mirror) = &mut native.mirror {
            mirror.line_is(native.arriving.session, native.link.window());
        }
    }

    fn native_up(&mut self, now: Instant) {
        let Some(native) = assumed(self.native.as_mut(), "there is a native link") else { return };
        let link = LinkId::new(0, native.times_up);
        let peer = native.link.peer().flatten();
        match peer {
            Some(host) => self.link_up(now, link, host),
            None if self.new_link_state(link) => {
                self.events.push(Event::SwitchUp { link });
            }
            None => {}
        }
        // Else there is no room to tell of its end one day.
        if let (Some(native), true) = (&mut self.native, self.lines.get(link).is_some()) {
            native.times_up = native.times_up.wrapping_add(1);
            native.up = Some(link);
            self.links.native = Some((link, peer));
        }
    }

    /// What was under way over the link is lost.
    fn native_down(&mut self, why: Ended) {
        let up = self.native.as_mut().and_then(|native| native.up.take());
        if let Some(link) = up {
            self.links.native = None;
            self.link_down(link, why);
            self.link_gone(link);
        }
    }

    /// An aperture was revoked: its memory is given back when nothing writes there.
    pub(super) fn release_later(&mut self, aperture: ApertureId) {
        self.slot_changed(aperture);
        if let Some(native) = &mut self.native {
            let fence = native.mirror.as_mut().map(|mirror| {
                mirror.groups_changed();
                mirror.fence()
            });
            let placement = native.arriving.next();
            native.releasing.push_back(RevokedAperture { aperture, placement, fence });
            self.release();
        }
    }

    /// Returns back memory that nothing writes to any more.
    fn release(&mut self) {
        if let Some(native) = &mut self.native {
            while let Some(releasing) = native.releasing.front() {
                let is_settled = native.arriving.has_settled(releasing.placement);
                let mirror = native.mirror.as_ref();
                let heard = |fence| mirror.is_none_or(|mirror| mirror.has_heard(fence));
                if !is_settled || !releasing.fence.is_none_or(heard) {
                    return;
                }
                self.events.push_promised(Event::Released { aperture: releasing.aperture });
                native.releasing.pop_front();
            }
        }
    }

    // ---- The adapter ---------------------------------------------------------

    fn mirror(&mut self) -> Option<&mut Mirror> {
        self.native.as_mut()?.mirror.as_mut()
    }

    /// An aperture came, went, or has one key more.
    pub(super) fn slot_changed(&mut self, aperture: ApertureId) {
        if let Some(mirror) = self.mirror() {
            mirror.slot_changed(aperture.index as u16);
        }
    }

    /// A group was joined or left.
    pub(super) fn group_changed(&mut self, group: &Cookie) {
        if let Some(mirror) = self.mirror() {
            mirror.group_changed(group_key(group.host().number(), group.slot()));
        }
    }

    /// A tripwire was armed or disarmed.
    pub(super) fn wire_changed(&mut self, tripwire: TripwireId) {
        if let Some(mirror) = self.mirror() {
            mirror.wire_changed(tripwire.index);
        }
    }

    /// The next thing that the adapter of a native link must be told, before anything that
    /// is sent later.
    pub fn poll_command(&mut self) -> Option<Command> {
        let Self { native, memory, tripwires, .. } = self;
        native.as_mut()?.mirror.as_mut()?.poll(memory, tripwires)
    }

    /// The adapter of a native link says something.
    pub fn handle_report(&mut self, now: Instant, report: &Report) {
        // Without an adapter there is nobody to say anything.
        let Some(mirror) = self.mirror() else { return };
        match *report {
            Report::Landed(landed) => self.landed_there(&landed),
            Report::Unwatched { number } => mirror.unwatched(number),
            Report::Fence { number } => mirror.fenced(number),
        }
        self.settle(now);
    }

    /// The adapter was started anew, and knows nothing. What it had taken and not
    /// reported is lost, so the link begins anew, too.
    pub fn adapter_lost(&mut self, now: Instant) {
        let Self { native, memory, .. } = self;
        if let Some(native) = native
            && let Some(mirror) = &mut native.mirror
        {
            mirror.lost(memory);
            native.link.close();
            self.settle(now);
        }
    }
}
