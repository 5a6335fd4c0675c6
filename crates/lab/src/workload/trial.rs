//! One megabyte over loopback: does batching work here?

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Memory, PathStats, Transport};
use landfall_transport::udp::UdpConfig;

use super::Pattern;

const LEN: usize = 1 << 20;
const PORT: u16 = 1;

/// What a trial showed.
#[derive(Debug)]
pub struct Trial {
    /// The sender's path.
    pub sender: PathStats,
    /// The receiver's.
    pub receiver: PathStats,
    /// The memory that was registered, filled and taken back.
    pub memory: Memory,
    /// Its address before it was registered.
    pub was_at: usize,
}

/// Does this memory hold what the trial sends?
pub fn is_as_sent(memory: &[u8]) -> bool {
    memory.len() == LEN && Pattern(0).first_difference(memory).is_none()
}

/// Sends a megabyte over UDP, in packets for an MTU of 1500, to an endpoint of this process.
pub fn over_udp(limit: Duration) -> Result<Trial> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bind = || Endpoint::bind(Transport::udp_with(UdpConfig::new(any, 1500)));
    let (near, far) = (bind()?, bind()?);
    let started = Instant::now();
    let listener = far.listen(PORT)?;
    let to = far.local().context("UDP has an address")?;
    let connection = near.connect(to, PORT)?;
    let accepted = listener.accept_within(limit)?.context("the connection was not accepted")?;
    let mut memory = Memory::zeroed(LEN);
    Pattern(0).fill(&mut memory);
    let empty = Memory::zeroed(LEN);
    let was_at = empty.as_ptr() as usize;
    let region = far.register(empty)?;
    let receive = accepted.receive_into(&region.whole()).start();
    let send = connection.send(memory).start();
    let left = || limit.saturating_sub(started.elapsed());
    let late = || format!("a megabyte did not come within {limit:?}");
    receive.wait_for(left()).ok().with_context(late)??;
    send.wait_for(left()).ok().with_context(late)??;
    let memory = far.take_back(region)?;
    ensure!(is_as_sent(&memory), "what came is not what was sent");
    let path = |endpoint: &Endpoint| endpoint.stats().paths.into_iter().next();
    let (sender, receiver) = path(&near).zip(path(&far)).context("each has a path")?;
    Ok(Trial { sender, receiver, memory, was_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_crosses_and_is_right() {
        let trial = over_udp(Duration::from_secs(30)).unwrap();
        assert!(trial.receiver.counters.payload_bytes >= LEN as u64);
        assert!(trial.sender.counters.units_sent >= LEN as u64 / 1500);
    }
}
