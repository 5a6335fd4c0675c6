//! Two endpoints without threads in one `poll(2)` loop, beside a descriptor of the program's
//! own: `reactor [MEGABYTES]`.
//!
//! Nothing here is an async runtime: futures are looked at after each turn.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use landfall::stp::{Endpoint, EndpointDriver, Memory, Transport};
use rustix::event::{PollFd, PollFlags, poll};

const PORT: u16 = 7;

type Error = Box<dyn std::error::Error>;

fn bind() -> Result<(Endpoint, EndpointDriver), Error> {
    let transport = Transport::udp("127.0.0.1:0".parse()?);
    Ok(Endpoint::builder().path(transport).bind_without_thread()?)
}

fn main() -> Result<(), Error> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let ((sender, sending), (receiver, receiving)) = (bind()?, bind()?);
    let listener = receiver.listen(PORT)?;
    let to = receiver.local().ok_or("UDP has an address")?;
    let mut memory = sender.memory(megabytes << 20)?;
    for (word, at) in memory.as_chunks_mut::<8>().0.iter_mut().zip(0u64..) {
        *word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    }
    let wanted = blake3::hash(&memory);

    let mut transfer = pin!(async {
        let connection = sender.connect(to, PORT).await?;
        let taking = listener.accept().await?.receive(Memory::zeroed(megabytes << 20)).start();
        connection.send(memory).await?;
        let message = taking.await?;
        connection.close().await?;
        Ok::<_, landfall::stp::Error>(message)
    });
    // Another part of the program, which has a descriptor, too.
    let (mut other, mut own) = UnixStream::pair()?;
    let speaker = std::thread::spawn(move || own.write_all(b"hello from elsewhere\n"));

    let (start, mut polls, mut turns) = (Instant::now(), 0u64, 0u64);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_listening = true;
    let message = loop {
        if let Poll::Ready(message) = transfer.as_mut().poll(&mut context) {
            break message?;
        }
        let wanted = if is_listening { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(&sending, PollFlags::IN),
            PollFd::new(&receiving, PollFlags::IN),
            PollFd::new(&other, wanted),
        ];
        polls += 1;
        poll(&mut fds, None)?;
        let ready = fds.map(|fd| !fd.revents().is_empty());
        for driver in
            [&sending, &receiving].into_iter().zip(ready).filter_map(|(d, r)| r.then_some(d))
        {
            turns += 1;
            driver.turn();
        }
        if ready[2] && is_listening {
            let mut text = [0; 64];
            let count = other.read(&mut text)?;
            print!("{}", String::from_utf8_lossy(&text[..count]));
            is_listening = count > 0;
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    speaker.join().expect("it does not panic")?;
    if blake3::hash(&message) != wanted {
        return Err("what came is not what was sent".into());
    }
    let rate = message.len() as f64 / seconds / 1e9;
    println!(
        "{megabytes} MiB in {seconds:.3} s, {rate:.2} GB/s on one thread: {polls} polls, {turns} calls"
    );
    Ok(())
}
