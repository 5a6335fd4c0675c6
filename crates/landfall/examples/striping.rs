//! One Transfer over two UDP paths, of which one is dropped in the middle:
//! `striping [MEGABYTES]`.

use std::time::Instant;

use landfall::stp::{Config, Endpoint, Memory, Transport};

const PORT: u16 = 7;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let (sender, receiver) = (bind()?, bind()?);
    let listener = receiver.listen(PORT)?;
    let paths = receiver.paths();
    let to = |at: usize| receiver.local_of(paths[at]).ok_or("UDP has an address");
    let connection = sender.connect(to(0)?, PORT).await?;
    connection.add_link(sender.paths()[1], to(1)?)?;
    let receiving = listener.accept().await?;

    let mut memory = sender.memory(megabytes << 20)?;
    for (word, at) in memory.as_chunks_mut::<8>().0.iter_mut().zip(0u64..) {
        *word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    }
    let wanted = blake3::hash(&memory);
    let start = Instant::now();
    let taking = receiving.receive(Memory::try_zeroed(megabytes << 20)?).start();
    let sending = connection.send(memory).start();

    // Half of it has come: the second path is gone, without a word.
    while receiver.stats().engine.bytes_received < (megabytes as u64) << 19 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let [first, second] = [0, 1].map(|at| receiver.stats().paths[at].counters.units_received);
    println!(
        "half of {megabytes} MiB came: {first} packets over one path, {second} over the other"
    );
    sender.set_path_up(sender.paths()[1], false)?;
    println!("the second path is dropped");

    let message = taking.await?;
    sending.await?;
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(blake3::hash(&message), wanted, "every byte, once, at its place");
    println!("all of it came after {seconds:.2} s, BLAKE3 {wanted} at both ends");
    let stats = receiver.stats();
    println!(
        "{} Blocks moved to the other link, {} were asked for again",
        stats.engine.blocks_moved, stats.engine.blocks_asked_again
    );
    for link in receiving.links() {
        println!(
            "path {} to {}: {}",
            link.path.0,
            link.peer,
            if link.is_up { "up" } else { "down" }
        );
    }
    connection.close().await?;
    Ok(())
}

/// Two paths, on a network that is ours alone.
fn bind() -> Result<Endpoint, Error> {
    let path = || Ok::<_, Error>(Transport::udp("127.0.0.1:0".parse()?));
    Ok(Endpoint::builder().path(path()?).path(path()?).config(Config::default()).bind()?)
}
