//! A bulk transfer with a BLAKE3 check: `bulk [MEGABYTES [TRANSFER_KB [PORT]]]`.
//!
//! Without a role both ends run in this process, over UDP on loopback. On two
//! machines: `bulk receive 0.0.0.0:8181` there, and `bulk send THERE:8181
//! [MEGABYTES [TRANSFER_KB]]` here.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Context as _;
use landfall::stp::{Connection, Endpoint, Listener, Transport};

/// The port of STP, which has nothing to do with UDP's.
const PORT: u16 = 7;
/// This many Transfers are under way at a time.
const AHEAD: usize = 4;
/// Instead of a number: the hash of all others.
const LAST: u32 = u32::MAX;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| -> anyhow::Result<u64> {
        arguments.get(at).map_or(Ok(usual), |text| text.parse().context("a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("receive") => {
            let address = arguments.get(1).context("receive ADDRESS:PORT")?.parse()?;
            let endpoint = Endpoint::bind(Transport::udp(address))?;
            let listener = endpoint.listen(PORT)?;
            receive(endpoint, listener).await
        }
        Some("send") => {
            let to: SocketAddr = arguments.get(1).context("send ADDRESS:PORT")?.parse()?;
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let endpoint = Endpoint::bind(Transport::udp(any.parse()?))?;
            send(endpoint, to, number(2, 1024)? << 20, number(3, 1024)? << 10).await
        }
        _ => {
            let address = SocketAddr::new([127, 0, 0, 1].into(), number(2, 0)?.try_into()?);
            let receiver = Endpoint::bind(Transport::udp(address))?;
            let sender = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
            let Some(landfall::stp::Peer::Socket(to)) = receiver.local() else {
                anyhow::bail!("UDP has an address");
            };
            let listener = receiver.listen(PORT)?;
            let receiving = tokio::spawn(receive(receiver, listener));
            send(sender, to, number(0, 1024)? << 20, number(1, 1024)? << 10).await?;
            receiving.await?
        }
    }
}

/// Sends Transfers out of lent memory, which comes back to be filled again. Where a packet gets
/// lost one Transfer may overtake another: each has a number.
async fn send(endpoint: Endpoint, to: SocketAddr, bytes: u64, each: u64) -> anyhow::Result<()> {
    let connection = endpoint.connect(to, PORT).await?;
    let (start, mut hasher) = (Instant::now(), blake3::Hasher::new());
    let (mut begun, mut under_way) = (0, VecDeque::new());
    while begun < bytes || !under_way.is_empty() {
        if begun < bytes && under_way.len() < AHEAD {
            let mut memory = endpoint.memory(each.min(bytes - begun) as usize)?;
            fill(&mut memory, begun);
            hasher.update(blake3::hash(&memory).as_bytes());
            let number = u32::try_from(begun / each).context("fewer Transfers")?;
            begun += memory.len() as u64;
            under_way.push_back(connection.send(memory).opaque(number).start());
        } else if let Some(oldest) = under_way.pop_front() {
            oldest.await?;
        }
    }
    // The last Transfer is the hash of the hashes of all others.
    let hash = hasher.finalize();
    connection.send(hash.as_bytes().to_vec()).opaque(LAST).await?;
    connection.close().await?;
    let seconds = start.elapsed().as_secs_f64();
    println!("sent      {begun} bytes in {seconds:.2} s, {:.2} GB/s", begun as f64 / seconds / 1e9);
    println!("          BLAKE3 {hash}");
    endpoint.close().await;
    Ok(())
}

/// Bytes that tell where they belong.
fn fill(memory: &mut [u8], from: u64) {
    for (word, at) in memory.as_chunks_mut::<8>().0.iter_mut().zip(from..) {
        *word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    }
}

async fn receive(endpoint: Endpoint, listener: Listener) -> anyhow::Result<()> {
    println!("listening {}", endpoint.local().context("an address")?);
    let connection: Connection = listener.accept().await?;
    let (start, mut hashes, mut received) = (Instant::now(), BTreeMap::new(), 0);
    let theirs = loop {
        // Its length is known before its memory is chosen.
        let offer = connection.offer().await?;
        let memory = endpoint.memory(offer.len() as usize)?;
        let message = offer.accept(memory).await?;
        if message.opaque() == LAST {
            break message.to_vec();
        }
        // Read where the kernel put it.
        hashes.insert(message.opaque(), blake3::hash(&message));
        received += message.len() as u64;
    };
    let seconds = start.elapsed().as_secs_f64();
    let mut hasher = blake3::Hasher::new();
    hashes.values().for_each(|hash| _ = hasher.update(hash.as_bytes()));
    let hash = hasher.finalize();
    let rate = received as f64 / seconds / 1e9;
    println!("received  {received} bytes in {seconds:.2} s, {rate:.2} GB/s");
    println!("          BLAKE3 {hash}");
    anyhow::ensure!(hash.as_bytes()[..] == theirs[..], "the hashes differ");
    let stats = endpoint.stats();
    let copied: u64 = stats.paths.iter().map(|path| path.counters.bytes_copied).sum();
    println!(
        "          the hashes are equal; {:.2} % of the bytes were copied in user space; {} of \
         1000 notifications were saved",
        copied as f64 / received as f64 * 100.0,
        stats.engine.interrupts_saved_per_mille()
    );
    connection.closed().await?;
    endpoint.close().await;
    Ok(())
}
