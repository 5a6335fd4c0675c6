//! A client of DHCP for IPv4 (RFC 2131): asks for an address, renews it, and gives it up when
//! its time is over or a server says so.
//!
//! Whether somebody else has the address is found out by others: the client says which to look
//! at ([`DhcpStep::Check`]), and is told.

use alloc::string::String;
use core::net::Ipv4Addr;

use landfall_placement::{Duration, Instant, Random};

use crate::wire::dhcp::{Kind, Reply, Request};
use crate::wire::{Mac, is_host};

/// The first pause between two questions; it doubles up to the longest (section 4.1).
const FIRST_PAUSE: u64 = 4_000;
const LONGEST_PAUSE: u64 = 64_000;
/// As much earlier or later a question leaves.
const SPREAD: u64 = 1_000;
/// How often an address is asked for that was offered, before others are looked for.
const REQUESTS: u32 = 4;
/// After an address was another's, or refused, nothing is asked for so long (section 3.1, 5).
const HOLD_OFF: Duration = Duration::from_secs(10);
/// Between two questions for more time, at least (section 4.4.5).
const RENEWAL_PAUSE: Duration = Duration::from_secs(60);

/// What a server gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// How many of its bits all on this link share.
    pub prefix_len: u8,
    /// Who forwards to everybody else.
    pub router: Option<Ipv4Addr>,
    /// How many bytes of IP the link carries.
    pub mtu: Option<u16>,
    /// Who gave it.
    pub server: Ipv4Addr,
    /// When it is renewed with that server, when with any, and when it is over; nothing where it
    /// is for ever.
    pub times: Option<[Instant; 3]>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpStep {
    /// Say this: to this server, or to all.
    Send(Question, Option<Ipv4Addr>),
    /// Find out whether somebody else has this address.
    Check(Ipv4Addr),
    /// This holds from now on.
    Use(Lease),
    /// This address must not be used any more.
    Drop(Ipv4Addr),
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// What it is.
    pub kind: Kind,
    /// Which question it is.
    pub xid: u32,
    /// For how many seconds it is being asked.
    pub seconds: u16,
    /// The address that is used.
    pub has: Option<Ipv4Addr>,
    /// The one that is wanted.
    pub wants: Option<Ipv4Addr>,
    /// Of this server alone.
    pub server: Option<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is asked for yet.
    Init,
    Selecting,
    Requesting {
        address: Ipv4Addr,
        server: Ipv4Addr,
    },
    /// It is given, and being looked at.
    Checking(Lease),
    Bound,
    Renewing,
    Rebinding,
}

/// The client of an interface.
#[derive(Debug)]
pub struct Dhcp {
    station: Mac,
    host_name: String,
    state: State,
    /// What is used.
    lease: Option<Lease>,
    xid: u32,
    since: Instant,
    /// When the last request left: from then on the time of a lease counts (section 4.4.1).
    asked: Instant,
    tries: u32,
    due: Option<Instant>,
    next: alloc::collections::VecDeque<DhcpStep>,
}

impl Dhcp {
    /// The client of a station, that calls itself so; it starts with
    /// [`restart`](Self::restart).
    #[must_use]
    pub const fn new(station: Mac, host_name: String) -> Self {
        Self {
            station,
            host_name,
            state: State::Init,
            lease: None,
            xid: 0,
            since: Instant::ZERO,
            asked: Instant::ZERO,
            tries: 0,
            due: None,
            next: alloc::collections::VecDeque::new(),
        }
    }

    /// What was given, and is used.
    #[must_use]
    pub const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The link came up, and may be another one: begins anew.
    pub fn restart(&mut self, now: Instant, random: &mut Random) {
        self.give_up();
        self.begin(now + Duration::from_millis(random.below(SPREAD)));
    }

    fn begin(&mut self, at: Instant) {
        (self.state, self.tries, self.due) = (State::Init, 0, Some(at));
    }

    fn give_up(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.next.push_back(DhcpStep::Drop(lease.address));
        }
    }

    /// The message as it is written.
    #[must_use]
    pub fn message(&self, said: &Question) -> Request<'_> {
        let Question { kind, xid, seconds, has, wants, server } = *said;
        let (station, host_name) = (self.station, self.host_name.as_str());
        Request { kind, xid, seconds, station, has, wants, server, host_name }
    }

    /// A server says something.
    pub fn handle_reply(&mut self, now: Instant, random: &mut Random, reply: &Reply) {
        // That answers somebody else, or an earlier question.
        if reply.xid != self.xid || reply.station != self.station {
            return;
        }
        match (self.state, reply.kind) {
            (State::Selecting, Kind::Offer) => {
                // An offer names its server, and an address of a host.
                let Some(server) = reply.server.filter(|_| is_host(reply.yours.into())) else {
                    return;
                };
                self.state = State::Requesting { address: reply.yours, server };
                (self.tries, self.due) = (0, None);
                self.ask_again(now, random);
            }
            (
                State::Requesting { .. } | State::Renewing | State::Rebinding,
                Kind::Ack | Kind::Nak,
            ) => self.handle_verdict(now, random, reply),
            // Late, or of another server.
            _ => {}
        }
    }

    fn handle_verdict(&mut self, now: Instant, random: &mut Random, reply: &Reply) {
        let known = self.lease.as_ref().map(|lease| lease.server);
        let asked = match self.state {
            State::Requesting { server, .. } => Some(server),
            State::Renewing => known,
            _ => None,
        };
        // Only who was asked decides; all were asked where nobody is named.
        if asked.is_some() && reply.server.is_some() && reply.server != asked {
            return;
        }
        if reply.kind == Kind::Nak {
            self.give_up();
            return self.begin(now + Duration::from_millis(random.below(SPREAD)));
        }
        // Without a time it is no lease.
        let Some(lease) = self.lease_of(reply, asked.or(known)) else { return };
        if self.lease.is_some_and(|known| known.address == lease.address) {
            self.bind(lease);
        } else {
            self.give_up();
            (self.state, self.due) = (State::Checking(lease), None);
            self.next.push_back(DhcpStep::Check(lease.address));
        }
    }

    fn lease_of(&self, reply: &Reply, server: Option<Ipv4Addr>) -> Option<Lease> {
        let seconds = reply.lease.filter(|seconds| *seconds > 0)?;
        let address = Some(reply.yours).filter(|yours| is_host((*yours).into()))?;
        let at = |seconds: u32| self.asked + Duration::from_secs(seconds.into());
        let times = (seconds != u32::MAX).then(|| {
            // Half, and seven eighths, unless the server says what makes sense.
            let rebinding = reply.rebinding.filter(|rebinding| *rebinding < seconds);
            let rebinding = rebinding.unwrap_or(seconds - seconds / 8);
            let renewal = reply.renewal.filter(|renewal| *renewal <= rebinding);
            let renewal = renewal.unwrap_or(seconds / 2).min(rebinding);
            [at(renewal), at(rebinding), at(seconds)]
        });
        Some(Lease {
            address,
            prefix_len: reply.prefix_len.unwrap_or(if address.octets()[0] < 128 { 8 } else { 24 }),
            router: reply.router.filter(|router| is_host((*router).into())),
            mtu: reply.mtu,
            server: reply.server.or(server)?,
            times,
        })
    }

    fn bind(&mut self, lease: Lease) {
        (self.lease, self.state) = (Some(lease), State::Bound);
        self.due = lease.times.map(|[renewal, ..]| renewal);
        self.next.push_back(DhcpStep::Use(lease));
    }

    /// Nobody else has the address that was to be looked at, or somebody has. False where none
    /// was.
    pub fn handle_checked(&mut self, now: Instant, address: Ipv4Addr, is_free: bool) -> bool {
        match self.state {
            State::Checking(lease) if lease.address == address => {
                if is_free {
                    self.bind(lease);
                } else {
                    self.decline(now, &lease);
                }
                true
            }
            _ => false,
        }
    }

    /// Another station insists that the address is its own.
    pub fn handle_lost(&mut self, now: Instant, address: Ipv4Addr) {
        if let Some(lease) = self.lease.filter(|lease| lease.address == address) {
            self.give_up();
            self.decline(now, &lease);
        }
    }

    fn decline(&mut self, now: Instant, lease: &Lease) {
        let (wants, server) = (Some(lease.address), Some(lease.server));
        let (kind, xid) = (Kind::Decline, self.xid);
        let said = Question { kind, xid, seconds: 0, has: None, wants, server };
        self.next.push_back(DhcpStep::Send(said, None));
        self.begin(now + HOLD_OFF);
    }

    /// What is to be done next.
    pub fn poll_step(&mut self, now: Instant, random: &mut Random) -> Option<DhcpStep> {
        if self.next.is_empty() && self.due.is_some_and(|due| due <= now) {
            self.time_out(now, random);
        }
        self.next.pop_front()
    }

    fn time_out(&mut self, now: Instant, random: &mut Random) {
        match self.state {
            State::Init => {
                (self.state, self.since) = (State::Selecting, now);
                self.xid = random.next_u32();
                self.ask_again(now, random);
            }
            State::Requesting { .. } if self.tries >= REQUESTS => self.begin(now),
            State::Selecting | State::Requesting { .. } => self.ask_again(now, random),
            State::Bound | State::Renewing | State::Rebinding => self.renew(now, random),
            State::Checking(_) => self.due = None,
        }
    }

    fn ask_again(&mut self, now: Instant, random: &mut Random) {
        let seconds = u16::try_from(now.since(self.since).as_secs()).unwrap_or(u16::MAX);
        let (kind, wants, server) = match self.state {
            State::Requesting { address, server } => (Kind::Request, Some(address), Some(server)),
            _ => (Kind::Discover, None, None),
        };
        let said = Question { kind, xid: self.xid, seconds, has: None, wants, server };
        self.next.push_back(DhcpStep::Send(said, None));
        self.asked = now;
        let pause = (FIRST_PAUSE << self.tries.min(4)).min(LONGEST_PAUSE);
        let pause = pause - SPREAD + random.below(2 * SPREAD + 1);
        self.tries = self.tries.saturating_add(1);
        self.due = Some(now + Duration::from_millis(pause));
    }

    /// More time is asked for: of the server, then of any, until there is none left.
    fn renew(&mut self, now: Instant, random: &mut Random) {
        let times = self.lease.and_then(|lease| Some((lease, lease.times?)));
        let Some((lease, [_, rebinding, end])) = times else {
            self.due = None;
            return;
        };
        if now >= end {
            self.give_up();
            return self.begin(now);
        }
        let is_for_all = now >= rebinding;
        if self.state == State::Bound {
            (self.xid, self.since) = (random.next_u32(), now);
        }
        self.state = if is_for_all { State::Rebinding } else { State::Renewing };
        let seconds = u16::try_from(now.since(self.since).as_secs()).unwrap_or(u16::MAX);
        let (kind, has) = (Kind::Request, Some(lease.address));
        let said = Question { kind, xid: self.xid, seconds, has, wants: None, server: None };
        let to = (!is_for_all).then_some(lease.server);
        self.next.push_back(DhcpStep::Send(said, to));
        self.asked = now;
        let limit = if is_for_all { end } else { rebinding };
        let pause = (limit.since(now) / 2).max(RENEWAL_PAUSE);
        self.due = Some((now + pause).min(limit));
    }

    /// What was to be sent to a server could not leave yet: its station is not known.
    pub fn retry_at(&mut self, at: Instant) {
        self.due = self.due.map(|due| due.min(at));
    }

    /// When to call [`Dhcp::poll_step`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.next.is_empty() { self.due } else { Some(Instant::ZERO) }
    }
}

#[cfg(test)]
mod tests;
