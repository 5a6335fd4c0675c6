//! Transfers of 1 MiB over UDP, through the public API.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use anyhow::{Context, Result};
use landfall::stp::blocking::{Connection, Endpoint, Listener};
use landfall::stp::{Memory, Message, Operation, Peer, Sent, Transport};
use landfall_transport::udp::UdpConfig;

const PORT: u16 = 7;
const MESSAGE: usize = 1 << 20;
/// Transfers under way at a time.
const UNDER_WAY: usize = 16;

/// Sends this many bytes from one endpoint to another.
pub(crate) fn run(encrypts: bool, mtu: u32, bytes: u64) -> Result<u64> {
    let count = bytes.div_ceil(MESSAGE as u64);
    let (receiver, sender) = (bind(encrypts, mtu)?, bind(encrypts, mtu)?);
    let listener = receiver.listen(PORT)?;
    let to = receiver.local().context("it has an address")?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, &listener, count));
        send(&sender, to, count)?;
        receiving.join().ok().context("the receiver panicked")?
    })?;
    Ok(count * MESSAGE as u64)
}

fn bind(encrypts: bool, mtu: u32) -> Result<Endpoint> {
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let udp = UdpConfig { same_host: false, ..UdpConfig::new(at, mtu) };
    let builder = Endpoint::builder().path(Transport::udp_with(udp));
    let builder = if encrypts {
        builder.preshared_key([7; 32]).encrypt_loopback()
    } else {
        builder.plaintext()
    };
    Ok(builder.bind()?.into())
}

fn send(endpoint: &Endpoint, to: Peer, count: u64) -> Result<()> {
    let connection = endpoint.connect(to, PORT)?;
    let mut free = (0..UNDER_WAY)
        .map(|nth| {
            let mut memory = endpoint.memory(MESSAGE)?;
            memory.fill(nth as u8 + 1);
            Ok(memory)
        })
        .collect::<Result<Vec<Memory>>>()?;
    let mut under_way: VecDeque<Operation<Sent>> = VecDeque::new();
    for _ in 0..count {
        if free.is_empty() {
            let oldest = under_way.pop_front().context("something is under way")?;
            free.extend(oldest.wait()?.memory);
        }
        let memory = free.pop().context("the memory comes back")?;
        under_way.push_back(connection.send(memory).start());
    }
    under_way.into_iter().try_for_each(|sent| sent.wait().map(drop))?;
    connection.close()?;
    Ok(())
}

fn receive(endpoint: &Endpoint, listener: &Listener, count: u64) -> Result<()> {
    let connection: Connection = listener.accept()?;
    let mut posted: VecDeque<Operation<Message>> = (0..2 * UNDER_WAY as u64)
        .map(|_| Ok(connection.receive(endpoint.memory(MESSAGE)?).start()))
        .collect::<Result<_>>()?;
    for _ in 0..count {
        let message = posted.pop_front().context("something is posted")?.wait()?;
        anyhow::ensure!(message.len() == MESSAGE, "{} bytes came", message.len());
        posted.push_back(connection.receive(message.into_memory()).start());
    }
    // What nothing comes for any more ends with the connection.
    drop(posted);
    Ok(())
}
