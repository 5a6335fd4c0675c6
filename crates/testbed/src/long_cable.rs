//! A long cable: what crosses it arrives later, and some of it never. (The kernel's own
//! `netem` is not everywhere.)
//!
//! Two short cables end in a namespace between; four threads there hand frames on, after their
//! time. Whatever crosses is delayed alike: kernel TCP, UDP sockets, packet sockets.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::error::{Error, Tried};
use crate::namespace::Namespace;
use crate::offload::Offload;
use crate::sys;
use crate::veth::{VethConfig, VethEnd, VethPair};

/// What a long cable is like, in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// How long a frame is on its way.
    pub delay: Duration,
    /// How many of a million never arrive, each by itself.
    pub lost_per_million: u32,
    /// How many bytes a second it carries, where that is bounded. What waits for its turn for
    /// longer than a round trip is lost.
    pub bytes_per_second: Option<u64>,
    /// The numbers that decide about them begin here.
    pub seed: u64,
}

/// The most frames that are on their way in one direction; more are lost.
const MOST_UNDER_WAY: usize = 1 << 15;
/// How long a thread waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// A cable of a bounded rate has room for what waits for as long as this there and back.
const LEAST_QUEUE: Duration = Duration::from_millis(1);
const LONGEST_FRAME: usize = 1 << 16;

/// A cable with a delay, which goes when this is dropped.
#[derive(Debug)]
pub struct LongCable {
    pair: VethPair,
    is_over: Arc<AtomicBool>,
    relays: Vec<JoinHandle<()>>,
    /// The two short ones. Dropped after the threads have ended.
    _cables: [VethPair; 2],
}

impl LongCable {
    /// Makes two namespaces and a long cable between them.
    ///
    /// # Errors
    /// As for [`VethPair::new`].
    pub fn new(config: VethConfig, path: Path) -> Result<Self, Error> {
        let (near, between, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let cables = [
            VethPair::between(&near, &between, config)?,
            VethPair::between(&between, &far, config)?,
        ];
        let [first, second] = &cables;
        let (a, b) = (first.a.clone(), second.b.clone());
        for end in [&a, &b] {
            // What leaves has its checksum, and is a frame as long as the cable takes.
            end.set_offload(Offload::TransmitChecksum, false)?;
            end.set_offload(Offload::TcpSegmentation, false)?;
            end.set_offload(Offload::UdpSegmentation, false)?;
        }
        for end in [&first.b, &second.a] {
            // Nobody lives between: no address there answers.
            let flush = || Command::new("ip").args(["addr", "flush", "dev", &end.name]).status();
            let status = end.namespace.enter(flush)?.tried("run ip")?;
            if !status.success() {
                return Err(Error::Unsupported("ip addr flush".into()));
            }
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let mut relays = relay(&first.b, &second.a, path, &is_over)?;
        let back = Path { seed: path.seed ^ 1, ..path };
        relays.extend(relay(&second.a, &first.b, back, &is_over)?);
        Ok(Self { pair: VethPair { a, b }, is_over, relays, _cables: cables })
    }

    /// Both ends, as of a short one.
    #[must_use]
    pub const fn pair(&self) -> &VethPair {
        &self.pair
    }
}

impl Drop for LongCable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for relay in self.relays.drain(..) {
            // It has nothing to say: what it could not hand on is lost.
            let _ = relay.join();
        }
    }
}

/// A frame on its way.
struct UnderWay {
    due: Instant,
    frame: Vec<u8>,
}

/// Two threads that hand on what comes in at one end to the other.
fn relay(
    from: &VethEnd,
    to: &VethEnd,
    path: Path,
    is_over: &Arc<AtomicBool>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let open = |end: &VethEnd, hears| {
        let socket = end.namespace.enter(|| sys::packet_socket(end.index, hears))?;
        Ok::<_, Error>(Socket::from(socket.tried("make a packet socket")?))
    };
    let (entry, exit) = (open(from, true)?, open(to, false)?);
    entry.set_read_timeout(Some(LOOK)).tried("set a time-out")?;
    let (sender, receiver) = sync_channel(MOST_UNDER_WAY);
    let (first, second) = (is_over.clone(), is_over.clone());
    Ok(vec![
        thread::spawn(move || take_in(&entry, &sender, path, &first)),
        thread::spawn(move || let_out(&exit, &receiver, &second)),
    ])
}

fn take_in(mut entry: &Socket, under_way: &SyncSender<UnderWay>, path: Path, is_over: &AtomicBool) {
    let (mut state, mut free_at) = (path.seed, Instant::now());
    let mut room = vec![0; LONGEST_FRAME];
    while !is_over.load(Ordering::Relaxed) {
        // Nothing came, or the interface is down for a moment.
        let Ok(len) = entry.read(&mut room) else { continue };
        let is_lost = next_number(&mut state) % 1_000_000 < u64::from(path.lost_per_million);
        let now = Instant::now();
        let mut leaves = now;
        if let Some(rate) = path.bytes_per_second {
            leaves = free_at.max(now) + Duration::from_secs(1).mul_f64(len as f64 / rate as f64);
        }
        if len > 0 && !is_lost && leaves <= now + 2 * path.delay.max(LEAST_QUEUE) {
            free_at = leaves;
            let frame = room[..len].to_vec();
            // A full cable loses what comes.
            let _ = under_way.try_send(UnderWay { due: leaves + path.delay, frame });
        }
    }
}

/// The next of a row of numbers without a pattern (SplitMix64).
fn next_number(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn let_out(mut exit: &Socket, under_way: &Receiver<UnderWay>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match under_way.recv_timeout(LOOK) {
            Ok(UnderWay { due, frame }) => {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                // One that cannot leave is lost.
                let _ = exit.write_all(&frame);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require_namespaces;
    use std::net::{SocketAddr, UdpSocket};

    const PLAIN: Path =
        Path { delay: Duration::ZERO, lost_per_million: 0, bytes_per_second: None, seed: 1 };

    /// A frame waits for those in front of it, and what would wait for too long is lost.
    #[test]
    fn a_bounded_rate_delays_and_then_loses() {
        require_namespaces!();
        let delay = Duration::from_millis(50);
        let path = Path { delay, bytes_per_second: Some(100_000), ..PLAIN };
        let config = VethConfig { static_neighbours: true, ..VethConfig::default() };
        let cable = LongCable::new(config, path).unwrap();
        let [(here, _), (there, to)] = ends(&cable);
        let start = Instant::now();
        for _ in 0..100 {
            here.send_to(&[0; 1000], to).unwrap();
        }
        there.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut came = 0;
        let mut last = start;
        while there.recv_from(&mut [0; 2000]).is_ok() {
            (came, last) = (came + 1, Instant::now());
        }
        // A tenth of a second's worth waits; more where sending took its time.
        assert!((9..100).contains(&came), "{came} of 100");
        assert!(last - start >= delay + Duration::from_millis(10) * (came - 1));
    }

    fn ends(cable: &LongCable) -> [(UdpSocket, SocketAddr); 2] {
        cable.pair().ends().map(|end| {
            let socket = end.namespace.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let port = socket.local_addr().unwrap().port();
            (socket, SocketAddr::new(end.ipv4.into(), port))
        })
    }

    #[test]
    fn what_crosses_it_is_late_and_in_order() {
        require_namespaces!();
        let path = Path { delay: Duration::from_millis(30), ..PLAIN };
        let cable = LongCable::new(VethConfig::default(), path).unwrap();
        let [(here, _), (there, to)] = ends(&cable);
        let start = Instant::now();
        for n in 0..20u8 {
            here.send_to(&[n; 1400], to).unwrap();
        }
        let mut room = [0; 2000];
        for n in 0..20u8 {
            let (len, from) = there.recv_from(&mut room).unwrap();
            assert_eq!((len, room[0]), (1400, n));
            there.send_to(&[n], from).unwrap();
        }
        for n in 0..20u8 {
            here.recv_from(&mut room).unwrap();
            assert_eq!(room[0], n);
        }
        // Both ways, and first somebody asked who is there.
        assert!(start.elapsed() >= Duration::from_millis(60));
    }

    #[test]
    fn some_of_it_never_arrives() {
        require_namespaces!();
        let path = Path { lost_per_million: 300_000, ..PLAIN };
        let config = VethConfig { static_neighbours: true, ..VethConfig::default() };
        let cable = LongCable::new(config, path).unwrap();
        let [(here, _), (there, to)] = ends(&cable);
        let mut came = 0;
        let mut hear = |patience| {
            there.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
            while there.recv_from(&mut [0; 200]).is_ok() {
                came += 1;
            }
        };
        // Few at a time: more than a socket holds would be lost at the ends.
        for _ in 0..20 {
            for _ in 0..50 {
                here.send_to(&[0; 100], to).unwrap();
            }
            hear(50);
        }
        hear(2_000);
        assert!((300..=850).contains(&came), "{came} of 1000");
    }
}
