//! Pages over a wire with an MTU of 1500, as ordinary UDP datagrams: either end may be
//! this program or any socket. Needs `CAP_NET_RAW`.
//!
//! ```sh
//! defrag_pages receive eth0 7000                       # says how pages came
//! defrag_pages send eth0 10.0.0.1:7001 10.0.0.2:7000 52:54:00:12:34:56 1000
//! ```
//!
//! `send` takes the own address, the receiver's, its station address (`ip neigh` knows
//! it; of a host behind a router it is the router's), and how many pages.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall::defrag::{Datagrams, Memory, PageReceiver, Receiver, Sender, Station};

const PAGE: usize = 4096;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["receive", interface, port] => receive(interface, port.parse()?),
        ["send", interface, from, to, mac, count] => {
            send(interface, from.parse()?, to.parse()?, station(mac)?, count.parse()?)
        }
        _ => bail!("receive INTERFACE PORT, or send INTERFACE FROM TO MAC COUNT"),
    }
}

fn receive(interface: &str, port: u16) -> Result<()> {
    let receiver = Receiver::builder(interface).gate().open()?;
    println!("{}", receiver.chosen());
    let mut pages = PageReceiver::new(receiver, port);
    let (mut count, mut bytes) = (0u64, 0);
    loop {
        if let Some(page) = pages.receive(Duration::from_secs(1))? {
            count += 1;
            bytes += page.len();
            // The page's memory goes back here.
            continue;
        }
        if count > 0 {
            let stats = pages.receiver().stats()?;
            println!(
                "{count} pages, {bytes} bytes; joined without a copy: {:.1} %",
                100.0 * stats.uncopied_rate()
            );
            (count, bytes) = (0, 0);
        }
    }
}

fn send(
    interface: &str,
    from: SocketAddr,
    to: SocketAddr,
    mac: [u8; 6],
    count: usize,
) -> Result<()> {
    let mut sender = Sender::builder(interface).open()?;
    let own = Station { mac: sender.station(), address: from };
    let other = Station { mac, address: to };
    let mut datagrams =
        Datagrams::new(own, other, [0; 32]).context("one address is IPv4, the other IPv6")?;
    let memory = sender.register(Memory::from_bytes(&[7; 64 * PAGE]))?;
    let parts: Vec<_> = (0..64u64)
        .map(|page| memory.part(page * PAGE as u64, PAGE as u32))
        .collect::<Result<_, _>>()?;
    let mut left = count;
    while left > 0 {
        let some = left.min(parts.len());
        sender.send_datagrams(&mut datagrams, &parts[..some])?;
        left -= some;
    }
    println!("{:?}", sender.stats());
    Ok(())
}

fn station(text: &str) -> Result<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<_> = bytes.collect::<Result<_, _>>()?;
    bytes.try_into().ok().context("a station address has six bytes, as 52:54:00:12:34:56")
}
