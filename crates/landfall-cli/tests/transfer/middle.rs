//! Somebody on the way who does not know the code: takes the sender's connection, opens one
//! to the receiver, hands on every transfer of STP, and changes what it likes. What it puts
//! in is well-formed for STP; only seals that it cannot make tell it from what was sent.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Builder, Memory, Transport};
use landfall_transport::udp::UdpConfig;

/// The port of STP at which receivers listen.
const SERVICE: u16 = 8182;
/// Longer than any transfer.
const ROOM: usize = (1 << 20) + 64;
/// Nothing of a test takes so long.
const LIMIT: Duration = Duration::from_secs(240);

/// A transfer that goes by: its bytes, and the four beside it.
pub(crate) struct Passing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) label: u32,
    /// The how many-th this is of all transfers in its direction.
    pub(crate) nth: usize,
}

impl Passing {
    pub(crate) fn is_piece(&self) -> bool {
        self.label >> 31 == 1
    }

    /// Announcements, answers, and the last word.
    pub(crate) fn is_bundle(&self) -> bool {
        self.label >> 30 == 0 && !self.is_greeting()
    }

    /// After the greeting, which is two transfers either way.
    pub(crate) fn is_greeting(&self) -> bool {
        self.nth < 2
    }
}

pub(crate) fn endpoint(at: SocketAddr) -> Endpoint {
    let path = Transport::udp_with(UdpConfig::new(at, 65_536));
    Endpoint::from(Builder::default().path(path).bind().expect("an endpoint"))
}

/// Stands between a sender and the receiver at this address; gives where the sender is to
/// send to. What goes by is handed on as the two functions leave it.
pub(crate) fn stand_before(
    receiver: &str,
    to_receiver: impl FnMut(&mut Passing) + Send + 'static,
    to_sender: impl FnMut(&mut Passing) + Send + 'static,
) -> String {
    let there: SocketAddr = receiver.parse().unwrap();
    // The port is a part of what is proven.
    let here = SocketAddr::from(([127, 0, 0, 2], there.port()));
    let (towards, back) = (endpoint(here), endpoint(SocketAddr::from(([127, 0, 0, 1], 0))));
    let listener = towards.listen(SERVICE).unwrap();
    thread::spawn(move || {
        let sender = listener.accept().unwrap();
        let receiver = back.connect(there, SERVICE).unwrap();
        let (from_sender, from_receiver) = (sender.clone(), receiver.clone());
        let there = thread::spawn(move || hand_on(&from_sender, &receiver, to_receiver));
        hand_on(&from_receiver, &sender, to_sender);
        let _ = there.join();
        // Both stay until no one says anything more.
        drop((towards, back));
    });
    here.to_string()
}

fn hand_on(from: &Connection, to: &Connection, mut change: impl FnMut(&mut Passing)) {
    for nth in 0.. {
        let Ok(Ok(message)) = from.receive(Memory::zeroed(ROOM)).wait_for(LIMIT) else { break };
        let label = message.opaque();
        let mut passing = Passing { bytes: message.to_vec(), label, nth };
        change(&mut passing);
        let sending = to.send(passing.bytes).opaque(passing.label);
        if !matches!(sending.wait_for(LIMIT), Ok(Ok(_))) {
            break;
        }
    }
    from.abort();
    to.abort();
}
