//! Datagrams: every queue pair's sender may send to another's queue pair, and to a speculative
//! receiver beside it.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use landfall_placement::{Duration, Instant};
use landfall_simnet::{Frame, Node, Outbox, PortId};
use spec_defrag::model::{Rig, Setup};

/// The port that datagrams go to.
pub(crate) const PORT: u16 = 9;

/// The address of a host's queue pairs, or of its speculative receiver.
pub(crate) fn ip(host: u8, speculates: bool) -> IpAddr {
    Ipv4Addr::new(10, 0, u8::from(speculates), host + 1).into()
}

/// Its station.
pub(crate) const fn station(host: u8, speculates: bool) -> [u8; 6] {
    [2, 0, 0, 0, speculates as u8, host + 1]
}

/// What came out of a speculative receiver: frames.
pub(crate) type Joined = Rc<RefCell<Vec<Vec<u8>>>>;

/// A node that joins fragments by guess, beside a naive reassembler that says what must come.
pub(crate) struct Speculative {
    rig: Rig,
    joined: Joined,
    /// Where frames lie that the driver posted nothing for.
    lies: bool,
    station: [u8; 6],
}

impl Speculative {
    pub(crate) fn new(host: u8, lies: bool) -> (Self, Joined) {
        let joined = Joined::default();
        let rig = Rig::new(Setup::PLAIN, false);
        let station = station(host, true);
        (Self { rig, joined: joined.clone(), lies, station }, joined)
    }

    fn pass(&mut self, now: Instant) {
        let behind = now.since(self.rig.now());
        if behind > Duration::ZERO {
            self.rig.wait(behind);
        }
    }

    fn tell(&self, out: &mut Outbox<'_>) {
        if let Some(wrong) = self.rig.failures().first() {
            out.fail(format!("the speculative receiver: {wrong}"));
        }
    }
}

impl Node for Speculative {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self.pass(now);
        if frame.bytes.get(..6) == Some(&self.station) {
            let joined = self.rig.receive(&[frame.bytes], self.lies);
            self.joined.borrow_mut().extend(joined.into_iter().map(|joined| joined.frame));
        }
        self.tell(out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.pass(now);
        self.tell(out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rig.receiver.poll_timeout().map(|timeout| timeout.at)
    }
}

/// The payload of a UDP datagram in an Ethernet frame; nothing where a checksum is wrong, as
/// the stack above would find it, or where it is for another address.
pub(crate) fn payload(frame: &[u8], to: IpAddr) -> Option<&[u8]> {
    let ip = frame.get(14..)?;
    if frame.get(12..14) != Some(&[8, 0]) || ip.first() != Some(&0x45) || ip.get(9) != Some(&17) {
        return None;
    }
    let IpAddr::V4(to) = to else { return None };
    if ip.get(16..20) != Some(&to.octets()) {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let udp = ip.get(20..total)?;
    let mut sum = landfall_placement::InternetSum::new();
    sum.add(ip.get(12..20)?);
    sum.add_word(17);
    sum.add_word(udp.len() as u16);
    sum.add(udp);
    (sum.sum() == 0xffff).then(|| udp.get(8..)).flatten()
}
