//! [`Segment`]: what a TCP header says; [`Draft`]: what one is to say.

use landfall_placement::Ecn;

use crate::queue::Hold;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::Options;

/// A segment that came, without its payload, which stays where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// How many bytes of payload it has.
    pub(crate) payload: u32,
    /// Where it was joined from several: the payload of each but the last.
    pub(crate) coalesced: Option<u16>,
    pub(crate) ecn: Ecn,
}

impl Segment {
    /// How many positions it takes: SYN and FIN take one each.
    pub(crate) fn len(&self) -> u32 {
        let flags =
            u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        self.payload + flags
    }

    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }
}

/// A segment to send: the adapter puts it into a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// How many bytes of payload its spans have.
    pub(crate) payload: u32,
    /// The device cuts it into pieces of so many bytes.
    pub(crate) cut: Option<u16>,
    /// It is one message and stays one segment: where it is longer than the
    /// link carries, it leaves in IP fragments.
    pub(crate) is_message: bool,
    /// The requests whose memory it reads: to be handed to
    /// [`SendQueue::release`](crate::queue::SendQueue::release) when it was sent.
    pub(crate) hold: Hold,
    pub(crate) ecn: Ecn,
}

/// How large a segment may be at the moment, as the path and the way to the
/// other side allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The bytes that IP may carry in one packet without fragments: TCP header,
    /// options and payload.
    pub(crate) packet: u32,
    /// The same where the device cuts; at least `packet`.
    pub(crate) super_packet: u32,
    /// Into how many pieces it cuts at most.
    pub(crate) pieces: u16,
}
