//! `--metrics`: what a server counts, for Prometheus to fetch over HTTP.
//!
//! A thread answers requests; what it answers with is gathered by the serving loop, when it
//! comes by ([`Exporter::answer`]). So nobody but the loop has a handle of what is served.

mod socket;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::metrics::Metrics;
pub use socket::MetricsAddress;
use socket::{Client, MetricsListener, SocketName};

/// A request that is longer, or takes longer, is none.
const LONGEST_REQUEST: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Answers at `/metrics`.
#[derive(Debug)]
pub struct Exporter {
    local: MetricsAddress,
    exchange: Arc<Exchange>,
    /// Taken away with this.
    _name: Option<SocketName>,
}

/// Where a scrape waits for the serving loop.
#[derive(Debug, Default)]
struct Exchange {
    state: Mutex<Scrape>,
    answered: Condvar,
}

#[derive(Debug, Default)]
enum Scrape {
    #[default]
    NotAsked,
    Asked,
    Answered(String),
}

impl Exporter {
    /// Listens, and answers from a thread of its own for as long as the program runs.
    pub fn listen(address: MetricsAddress) -> Result<Self> {
        let listener = MetricsListener::bind(&address)
            .with_context(|| format!("cannot listen at {address} for --metrics"))?;
        let local = listener.address(address)?;
        let name = SocketName::of(&local);
        let exchange = Arc::new(Exchange::default());
        let asked = Arc::clone(&exchange);
        thread::Builder::new().name("landfall-metrics".into()).spawn(move || {
            loop {
                // Who asks and leaves, or says nothing, is no concern of others. Without descriptors
                // nobody can be answered for a moment.
                match listener.accept() {
                    Ok(mut client) => _ = respond(&mut *client, &asked),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
        Ok(Self { local, exchange, _name: name })
    }

    /// Where it listens, as a line for people.
    pub fn describe(&self) -> String {
        format!("metrics at {}", self.local)
    }

    /// Gathers what somebody waits for, if somebody does.
    pub fn answer(&self, gather: impl FnOnce(&mut Metrics)) {
        let mut state = self.exchange.lock();
        if !matches!(*state, Scrape::Asked) {
            return;
        }
        let mut metrics = Metrics::new();
        gather(&mut metrics);
        *state = Scrape::Answered(metrics.to_string());
        self.exchange.answered.notify_one();
    }
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Scrape> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits until the loop has come by. None: it does not come.
    fn ask(&self) -> Option<String> {
        let mut state = self.lock();
        *state = Scrape::Asked;
        let wait = |state: &mut Scrape| matches!(state, Scrape::Asked);
        let waited = self.answered.wait_timeout_while(state, PATIENCE, wait);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *state) {
            Scrape::Answered(text) => Some(text),
            Scrape::NotAsked | Scrape::Asked => None,
        }
    }
}

/// Answers one request of HTTP/1, and closes.
fn respond(stream: &mut dyn Client, exchange: &Exchange) -> io::Result<()> {
    stream.writes_within(PATIENCE)?;
    let request = head_of_request(stream)?;
    let wants_metrics = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) = match wants_metrics.then(|| exchange.ask()) {
        None => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        Some(None) => ("503 Service Unavailable", "the server did not say in time\n".to_owned()),
        Some(Some(text)) => ("200 OK", text),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// What a client says until its first empty line.
fn head_of_request(stream: &mut dyn Client) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.reads_within(left)?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => request.extend_from_slice(&part[..len]),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::str::FromStr;

    use super::*;

    fn exporter() -> Exporter {
        Exporter::listen("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Says this, and gives what is answered, while a loop comes by every now and then.
    fn fetch(exporter: &Exporter, said: &[u8], comes_by: bool) -> String {
        let mut stream: Box<dyn Client + Send> = match &exporter.local {
            MetricsAddress::Tcp(address) => Box::new(TcpStream::connect(address).unwrap()),
            MetricsAddress::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
        };
        stream.write_all(said).unwrap();
        let reading = thread::spawn(move || {
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        });
        while !reading.is_finished() {
            if comes_by {
                exporter.answer(|metrics| metrics.gauge("landfall_test", "A test", &[], 7));
            }
            thread::sleep(Duration::from_millis(1));
        }
        reading.join().unwrap().unwrap_or_default()
    }

    #[test]
    fn a_scrape_gets_what_the_loop_gathers() {
        let exporter = exporter();
        for _ in 0..2 {
            let text = fetch(&exporter, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", true);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.ends_with("# TYPE landfall_test gauge\nlandfall_test 7\n"), "{text}");
        }
        assert!(exporter.describe().contains("/metrics"));
    }

    #[test]
    fn other_questions_and_a_loop_that_stands_still_are_answered_too() {
        let exporter = exporter();
        let text = fetch(&exporter, b"GET /secret HTTP/1.1\r\n\r\n", true);
        assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
        let text = fetch(&exporter, b"GET / HTTP/1.1\r\n\r\n", false);
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        // Neither nonsense nor a flood ends it.
        assert_eq!(fetch(&exporter, &vec![b'x'; 3 * LONGEST_REQUEST], true), "");
        let text = fetch(&exporter, b"GET /metrics HTTP/1.1\r\n\r\n", true);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }

    #[test]
    fn a_socket_at_a_path_answers_and_goes_with_its_exporter() {
        let path = std::env::temp_dir().join(format!("landfall-metrics-{}", std::process::id()));
        let at = || MetricsAddress::from_str(&format!("unix:{}", path.display())).unwrap();
        let _ = fs::remove_file(&path);
        // What a killed one has left is no hindrance; anything else is.
        drop(UnixListener::bind(&path).unwrap());
        let exporter = Exporter::listen(at()).unwrap();
        let text = fetch(&exporter, b"GET /metrics HTTP/1.1\r\n\r\n", true);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        let refused = Exporter::listen(at()).unwrap_err().to_string();
        assert!(refused.contains("cannot listen at unix:"), "{refused}");
        drop(exporter);
        assert!(!path.exists(), "it is taken away");
        fs::write(&path, "precious").unwrap();
        assert!(Exporter::listen(at()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        assert!(MetricsAddress::from_str("unix:").is_err());
        assert!(MetricsAddress::from_str("nonsense").unwrap_err().contains("'nonsense'"));
    }
}
