//! TCP Fast Open (RFC 7413): data in the opening of a client that the server knows.
//!
//! A server knows a client by a cookie that it gave to its address: a keyed hash, so that
//! nothing is kept. The key is another one each hour, and what the one before made is good
//! for an hour more. A client keeps the cookies of few servers ([`KnownServers`]).
//!
//! Whatever speaks against it leads to a handshake like any: an unknown cookie, too many
//! that were opened so and are not proved; and a client's second try has no cookie and no
//! data.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;

use landfall_placement::{Instant, Spans};

use super::config::{Mapping, TcpConfig};
use super::listen::{OwnNumbers, Secret, Terms};
use super::segment::{Room, Segment};
use super::state::ConnectionState as State;
use super::tcb::Tcb;
use super::{Ends, OwnOffer};
use crate::queue::{Hold, Queues};
use crate::wire::FastOpenCookie;
use crate::wire::tcp::Flags;

/// How long one key makes cookies, in nanoseconds: an hour (section 5.2: they change).
const KEY_NANOS: u64 = 3_600_000_000_000;
/// A client keeps the cookies of this many servers; a new one takes the place of the oldest.
const MOST_SERVERS: usize = 64;

impl Secret {
    /// The cookie of this client, and the one that it may have of the hour before.
    fn fast_open_cookies(&self, now: Instant, ends: Ends) -> [FastOpenCookie; 2] {
        let hour = now.as_nanos() / KEY_NANOS;
        [hour, hour.wrapping_sub(1)].map(|hour| {
            let mut hasher = self.hasher("Fast Open");
            (hour, ends.local.ip(), ends.remote.ip()).hash(&mut hasher);
            FastOpenCookie::new(&hasher.finish().to_be_bytes()).unwrap_or_default()
        })
    }

    /// The cookie for a client.
    pub(crate) fn fast_open_cookie(&self, now: Instant, ends: Ends) -> FastOpenCookie {
        self.fast_open_cookies(now, ends)[0]
    }

    /// Did we give it to this client, in this hour or the one before?
    pub(crate) fn knows(&self, now: Instant, ends: Ends, cookie: &FastOpenCookie) -> bool {
        self.fast_open_cookies(now, ends).contains(cookie)
    }
}

/// What a client knows of a server that it has talked to (section 4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownServer {
    pub(crate) cookie: FastOpenCookie,
    /// The largest segment that it wants.
    pub(crate) mss: u16,
}

/// The servers that a client knows, oldest first.
#[derive(Debug, Default)]
pub(crate) struct KnownServers(Vec<(IpAddr, KnownServer)>);

impl KnownServers {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn find(&self, server: IpAddr) -> Option<KnownServer> {
        self.0.iter().find(|(known, _)| *known == server).map(|(_, known)| *known)
    }

    /// What an opening taught of a server: nothing, where it failed.
    pub(crate) fn note(&mut self, server: IpAddr, learned: Option<KnownServer>) {
        self.0.retain(|(known, _)| *known != server);
        if let Some(learned) = learned {
            if self.0.len() >= MOST_SERVERS {
                self.0.remove(0);
            }
            self.0.push((server, learned));
        }
    }
}

/// What Fast Open does to the opening of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FastOpen {
    /// We ask a server: with its cookie, or for one.
    Client {
        known: Option<KnownServer>,
        /// Bytes that left with the opening.
        sent: u32,
    },
    /// A client that we know asked: what it sent counts, and answers leave before it has
    /// proved that it hears us.
    Server {
        /// The user has heard of the connection.
        is_told: bool,
    },
}

/// The first data of a connection, in its opening.
pub(super) struct FirstData {
    pub(super) payload: u32,
    pub(super) hold: Hold,
    pub(super) flags: Flags,
    pub(super) cookie: Option<FastOpenCookie>,
}

impl Tcb {
    /// Our opening is to carry data, to a server that we know; else it asks for a cookie.
    pub(crate) fn open_fast(&mut self, known: Option<KnownServer>) {
        self.fast_open = Some(Box::new(FastOpen::Client { known, sent: 0 }));
    }

    /// A connection that was asked for by a client that we know. The data that came with
    /// the opening is handed in next ([`data_of_opening`](Self::data_of_opening)).
    pub(crate) fn accept_fast(
        now: Instant,
        config: &TcpConfig,
        secret: &Secret,
        ends: Ends,
        segment: &Segment,
        mapping: Mapping,
        own: OwnOffer,
    ) -> Self {
        let numbers = OwnNumbers {
            first: secret.first_number(now, ends.local, ends.remote),
            clock_offset: secret.clock_offset(ends.local, ends.remote),
        };
        let terms = Terms::agree(config, numbers, ends.remote, segment);
        let mut tcb = Self::new(now, config, ends, mapping, terms, own);
        tcb.state = State::SynReceived;
        tcb.note_opening(segment);
        tcb.fast_open = Some(Box::new(FastOpen::Server { is_told: false }));
        tcb
    }

    /// The data of their opening, as a segment of its own that acknowledges nothing. Its end
    /// is heard when it comes again.
    pub(crate) fn data_of_opening(&self, segment: &Segment) -> Segment {
        let flags = segment.flags.without(Flags::SYN | Flags::FIN | Flags::ECE | Flags::CWR);
        Segment {
            seq: segment.seq.wrapping_add(1),
            ack: self.terms.local_first,
            flags: flags | Flags::ACK,
            has_ae: false,
            // That of an opening is not shifted (RFC 7323, 2.2).
            window: segment.window >> self.terms.remote_scale,
            ..*segment
        }
    }

    /// Was it opened by a client that we knew, and has not proved yet that it hears us?
    pub(crate) fn is_fast_server(&self) -> bool {
        self.state == State::SynReceived
            && matches!(self.fast_open.as_deref(), Some(FastOpen::Server { .. }))
    }

    /// Has neither the user nor the other side heard of it?
    pub(crate) fn is_untold(&self) -> bool {
        let is_first = self.opening.tries == 0 && !self.opening.is_due;
        let untold = FastOpen::Server { is_told: false };
        is_first && self.is_fast_server() && self.fast_open.as_deref() == Some(&untold)
    }

    /// Does a segment belong to this opening: acknowledges it, or is a part of it?
    pub(super) fn belongs_to_opening(&self, segment: &Segment) -> bool {
        let upto = self.sender.position_of(segment.ack);
        let first = i64::from(!self.is_fast_server());
        (first..=self.sender.flight.next() as i64).contains(&upto)
    }

    /// The data of the opening came: it is answered. Returns whether the user hears of the
    /// connection.
    pub(super) fn note_first_data(&mut self) -> bool {
        let Some(FastOpen::Server { is_told }) = self.fast_open.as_deref_mut() else {
            return false; // It was opened as usual.
        };
        let is_first = !core::mem::replace(is_told, true);
        self.opening.is_due |= is_first;
        is_first
    }

    /// The handshake is over. Returns whether the user hears of the connection now.
    pub(super) fn finish_fast_server(&mut self, now: Instant) -> bool {
        let Some(FastOpen::Server { is_told }) = self.fast_open.as_deref().copied() else {
            return true; // It was opened as usual.
        };
        self.fast_open = None;
        if self.opening.tries <= 1 {
            self.sender.sample(now, now.since(self.opening.sent_at));
        }
        !is_told
    }

    /// What our opening carries (section 4.2.1), the first time that it leaves: as much as is
    /// posted, and no more than one segment of them and of the path holds. Parts of messages
    /// don't.
    pub(super) fn first_data(
        &mut self,
        room: &Room,
        options: usize,
        queues: &mut Queues,
        from: &mut Spans,
    ) -> FirstData {
        let mut first =
            FirstData { payload: 0, hold: Hold::default(), flags: Flags::NONE, cookie: None };
        let Some(FastOpen::Client { known, sent }) = self.fast_open.as_deref_mut() else {
            return first; // Nobody has chosen it.
        };
        if self.opening.tries > 1 {
            return first; // The first one may have been dropped for what it said.
        }
        first.cookie = Some(known.map_or(FastOpenCookie::REQUEST, |known| known.cookie));
        let Some(known) = *known else { return first }; // It asks for a cookie.
        let options = options + (2 + known.cookie.len()).next_multiple_of(4);
        let longest = room.packet.saturating_sub(20).min(u32::from(known.mss));
        let longest = u64::from(longest).saturating_sub(options as u64);
        let start = self.sender.flight.next();
        let is_stream = matches!(self.mapping, Mapping::Stream);
        let end = if is_stream { Some(queues.send.end()) } else { queues.send.message_end(start) };
        let end = end.unwrap_or(start);
        let end = if is_stream { end.min(start + longest) } else { end };
        if end <= start || end - start > longest {
            return first;
        }
        let (reached, hold) = queues.send.gather(start, end, from);
        let is_end = if is_stream {
            reached == queues.send.end()
        } else {
            queues.send.is_message_end(reached)
        };
        first.flags = if is_end { Flags::PSH } else { Flags::NONE };
        (first.payload, first.hold) = ((reached - start) as u32, hold);
        *sent = first.payload;
        first
    }

    /// How many bytes left with our opening.
    pub(super) fn first_data_sent(&self) -> u32 {
        match self.fast_open.as_deref() {
            Some(FastOpen::Client { sent, .. }) => *sent,
            _ => 0,
        }
    }

    /// They answered our opening, with a cookie or without, and acknowledge so much of it:
    /// what they leave out leaves again.
    pub(super) fn first_data_answered(&mut self, segment: &Segment) {
        // Nobody has chosen it.
        let Some(FastOpen::Client { known, .. }) = self.fast_open.as_deref_mut() else { return };
        let was_repeated = self.opening.tries > 1;
        let given = segment.options.fast_open.filter(|cookie| !cookie.is_empty());
        let cookie = given.or(known.map(|known| known.cookie)).filter(|_| !was_repeated);
        let mss = self.terms.remote_mss;
        *known = cookie.map(|cookie| KnownServer { cookie, mss });
    }

    /// What our opening taught of the server, where it was one of these.
    pub(crate) fn take_known_server(&mut self) -> Option<Option<KnownServer>> {
        let learned = match self.fast_open.as_deref()? {
            FastOpen::Client { known, .. } => *known,
            FastOpen::Server { .. } => return None,
        };
        self.fast_open = None;
        Some(learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::{Duration, Random};

    fn ends(client: u8) -> Ends {
        Ends { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, client], 1_234).into() }
    }

    #[test]
    fn a_cookie_is_good_for_its_client_for_two_hours_at_most() {
        let secret = |seed| Secret::new(&mut Random::from_number(seed));
        let (ours, hour) = (secret(1), Duration::from_secs(3_600));
        let now = Instant::from_millis(10_000);
        let cookie = ours.fast_open_cookie(now, ends(2));
        assert_eq!(cookie.len(), 8);
        assert!(ours.knows(now, ends(2), &cookie) && ours.knows(now + hour, ends(2), &cookie));
        assert!(!ours.knows(now + hour * 2, ends(2), &cookie), "the key is another one");
        assert!(!ours.knows(now, ends(3), &cookie), "another client");
        assert!(!secret(2).knows(now, ends(2), &cookie), "another server");
        assert!(!ours.knows(now, ends(2), &FastOpenCookie::REQUEST));
        let mut other_port = ends(2);
        other_port.remote.set_port(9);
        assert!(ours.knows(now, other_port, &cookie), "it is for an address");
    }

    #[test]
    fn few_servers_are_known_and_the_oldest_makes_room() {
        let mut known = KnownServers::new();
        let server = |n: usize| IpAddr::from([10, 0, 1, n as u8]);
        let cookie = |n: usize| FastOpenCookie::new(&[n as u8; 4]).unwrap();
        for n in 0..=MOST_SERVERS {
            known.note(server(n), Some(KnownServer { cookie: cookie(n), mss: 1_000 }));
        }
        assert_eq!(known.find(server(0)), None);
        assert_eq!(known.find(server(1)).map(|known| known.cookie), Some(cookie(1)));
        known.note(server(1), None);
        assert_eq!(known.find(server(1)), None, "it failed");
    }
}
