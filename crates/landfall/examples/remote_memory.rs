//! Memory of another endpoint: Put, Get and FetchOp, by threads that drive the
//! endpoint while they wait: `remote_memory [ROUNDS]`.

use std::time::Instant;

use landfall::stp::blocking::{Endpoint, Listener};
use landfall::stp::{Memory, RemoteRights, Transport, Wait};

const PORT: u16 = 7;
/// What both sides call the region.
const NAME: u32 = 1;
const LEN: usize = 4096;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let server = bind()?;
    let to = server.local().ok_or("UDP has an address")?;
    let listener = server.listen(PORT)?;
    let serving = std::thread::spawn(move || serve(&server, &listener));
    let client = bind()?;
    let connection = client.connect(to, PORT)?;
    let remote = connection.request_region(NAME, LEN as u64, RemoteRights::ALL).wait()?;
    println!("a region of {} bytes is there", remote.len());

    // Registered once, used for each Put: nothing is copied.
    let word = client.register(Memory::from_bytes(&7u64.to_le_bytes()))?;
    let start = Instant::now();
    for _ in 0..rounds {
        remote.put(0, &word).wait()?;
    }
    let each = start.elapsed().as_secs_f64() / rounds as f64 * 1e6;
    println!("{rounds} Puts of 8 bytes, each acknowledged: {each:.1} µs each");

    let start = Instant::now();
    for n in 0..rounds {
        assert_eq!(remote.fetch_add(8, 1).wait()?, n, "each takes effect once");
    }
    let each = start.elapsed().as_secs_f64() / rounds as f64 * 1e6;
    println!("{rounds} FetchOps: {each:.1} µs each");

    let all = remote.get(0, Memory::zeroed(LEN)).wait()?;
    let (words, _) = all.as_chunks::<8>();
    let [put, counted] = [words[0], words[1]].map(u64::from_le_bytes);
    println!("a Get sees {put} and {counted}");
    assert_eq!((put, counted), (7, rounds));

    remote.put(16, "the last").with_notice().wait()?;
    connection.close()?;
    serving.join().map_err(|_| "the server panicked")??;
    Ok(())
}

fn bind() -> Result<Endpoint, Error> {
    let path = Transport::udp("127.0.0.1:0".parse()?);
    Ok(Endpoint::from(Endpoint::builder().path(path).wait(Wait::BALANCED).bind()?))
}

/// Exposes a region until somebody writes to it and says so.
fn serve(endpoint: &Endpoint, listener: &Listener) -> Result<(), Error> {
    let connection = listener.accept()?;
    let region = endpoint.register(Memory::zeroed(LEN))?;
    let request = connection.region_request()?;
    assert_eq!(request.name(), NAME);
    let exposed = request.expose(&region.whole(), RemoteRights::ALL)?;
    let notice = connection.wait(exposed.written()).ok_or("the connection ended")?;
    println!("the server was told of {} bytes at {}", notice.len, notice.at);
    connection.wait(exposed.revoke());
    // The memory is the server's again, with what was written to it.
    let memory = endpoint.take_back(region)?;
    println!("and finds {:?} there", str::from_utf8(&memory[16..24])?);
    connection.closed()?;
    Ok(())
}
