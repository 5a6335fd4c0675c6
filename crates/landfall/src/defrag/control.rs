//! What goes on beside the data: control frames of admission, and answers to whom
//! pieces were lost.

use std::io;

use landfall_placement::{Instant, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Interface};
use landfall_transport::scatter::{Config, Descriptor, Outgoing, Posted, Socket};
use spec_defrag::admission::frame::{ETHERTYPE, FRAME_LEN};

use super::error::OpenError;

/// A socket for control frames, and for sending a frame now and then.
#[derive(Debug)]
pub(super) struct Control {
    socket: Socket,
    posted: Posted,
}

/// So many frames are looked at in a turn.
const BURST: u16 = 8;

impl Control {
    pub(super) fn open(interface: &Interface, regions: &Regions) -> Result<Self, OpenError> {
        let config = Config {
            socket_buffer: 256 << 10,
            ..Config::new(interface.clone(), Filter::ethertypes([ETHERTYPE]))
        };
        let socket = Socket::open(&config, regions)?;
        let posted = Posted::new(regions, BURST.into())?;
        Ok(Self { socket, posted })
    }

    pub(super) const fn station(&self) -> [u8; 6] {
        self.socket.station()
    }

    pub(super) fn interest(&self) -> Interest {
        Interest { writable: false, ..self.socket.interest() }
    }

    /// The frames that came, one after another. Gives how many.
    pub(super) fn receive(&mut self, mut heard: impl FnMut(&[u8])) -> io::Result<usize> {
        // A control frame fits in a head slot; of a longer frame the rest is padding.
        let one = Descriptor { head_len: FRAME_LEN as u16, place: Span::default() };
        let list = (0..BURST).map(|_| one);
        self.posted.post(list).map_err(io::Error::other)?;
        let came = self.socket.receive(&mut self.posted)?;
        for slot in 0..came {
            heard(self.posted.head(slot as u16));
        }
        Ok(came)
    }

    /// Sends a frame, unless there is no room: then it is lost, as on a wire.
    pub(super) fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<()> {
        let frame = Outgoing { head: frame, payload: Span::default() };
        self.socket.send(now, &[frame]).map(drop)
    }
}
