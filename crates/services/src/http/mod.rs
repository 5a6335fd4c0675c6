//! The files of a directory by HTTP/1.1, for any client.
//!
//! ```no_run
//! use std::sync::Arc;
//! use landfall_services::http::{self, Site, Stats};
//! use landfall_services::server::{Limits, Unobserved, stopper};
//!
//! # async fn serve() -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let site = Site::open("/srv/files".as_ref())?;
//! let (stopper, stop) = stopper();
//! let stats = Arc::new(Stats::default());
//! http::run(listener, site, None, Limits::default(), Arc::new(Unobserved), stats, stop).await;
//! # drop(stopper);
//! # Ok(())
//! # }
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | this | connections, and the end of each |
//! | `target` | from the target of a request to names below the directory |
//! | `site` | opens what a request names, and nothing outside of the directory |
//! | `response` | which answer: conditions, ranges, redirects, errors |
//! | `range` | one range of bytes |
//! | `body` | what is sent behind a head, read from the file piece by piece |
//! | `listing` | the page of a directory without an index |
//! | `media_type` | what a file is, by its name |

mod body;
mod listing;
mod media_type;
mod range;
mod response;
mod site;
mod target;

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::listener::Listener;
use crate::progress::Progressing;
use crate::server::{self, Limits, Observer, Stop};
pub use site::Site;

/// What is counted beside what an observer hears.
#[derive(Debug, Default)]
pub struct Stats {
    /// Answers by the first digit of their status: `[0]` is 2xx.
    responses: [AtomicU64; 4],
    bad_requests: AtomicU64,
    timeouts: AtomicU64,
    failed_handshakes: AtomicU64,
}

impl Stats {
    fn answered(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(2).min(3);
        self.responses[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Answers with a status of 2xx, 3xx, 4xx and 5xx.
    #[must_use]
    pub fn responses(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|class: usize| self.responses[class].load(Ordering::Relaxed))
    }

    /// Connections that ended with something that is no request of HTTP.
    #[must_use]
    pub fn bad_requests(&self) -> u64 {
        self.bad_requests.load(Ordering::Relaxed)
    }

    /// Connections that were given up: no request in time, or nobody read the response.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Connections whose handshake of TLS failed.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.failed_handshakes.load(Ordering::Relaxed)
    }
}

/// Serves until it is told to stop; then idle connections are closed, responses that have begun
/// are ended within [`Limits::drain`]. False: some had not ended by then, and were cut off. On a
/// runtime of tokio with time; with `tls` it is HTTPS and nothing else.
pub async fn run<L: Listener>(
    listener: L,
    site: Site,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    observer: Arc<dyn Observer>,
    stats: Arc<Stats>,
    stop: Stop,
) -> bool {
    let acceptor = tls.map(|config| {
        let mut config = ServerConfig::clone(&config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let (site, bounds, moved) = (Arc::new(site), limits.clone(), Arc::clone(&observer));
    let handler = move |stream: L::Connection, stop: Stop| {
        let stream = Progressing::new(stream, bounds.idle, Arc::clone(&moved));
        let (site, stats, limits) = (Arc::clone(&site), Arc::clone(&stats), bounds.clone());
        let acceptor = acceptor.clone();
        async move {
            let Some(acceptor) = acceptor else {
                return converse(stream, site, &stats, &limits, stop).await;
            };
            match timeout(limits.head, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, site, &stats, &limits, stop).await,
                failed => {
                    stats.failed_handshakes.fetch_add(1, Ordering::Relaxed);
                    match failed {
                        Ok(Err(why)) => format!("the handshake of TLS failed: {why}"),
                        _ => "the handshake of TLS took too long".to_owned(),
                    }
                }
            }
        }
    };
    server::run(listener, &limits, observer, stop, handler).await
}

/// Answers the requests of a connection; says how it ended.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    site: Arc<Site>,
    stats: &Arc<Stats>,
    limits: &Limits,
    mut stop: Stop,
) -> String {
    let counted = Arc::clone(stats);
    let service = service_fn(move |request| {
        let (site, stats) = (Arc::clone(&site), Arc::clone(&counted));
        async move {
            let response = response::answer(site, request).await;
            stats.answered(response.status().as_u16());
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    // A client that has sent all still hears the answer: `nc` says so before it listens.
    builder.half_close(true);
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
    // Hyper insists on 8 KiB at least.
    builder.max_headers(limits.head_fields).max_buf_size(limits.head_bytes.max(8 << 10));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match ended {
        Ok(()) => "finished".to_owned(),
        Err(error) => describe(&error, stats),
    }
}

fn describe(error: &hyper::Error, stats: &Stats) -> String {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_late = io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
    if error.is_timeout() || is_late {
        stats.timeouts.fetch_add(1, Ordering::Relaxed);
    } else if error.is_parse() {
        stats.bad_requests.fetch_add(1, Ordering::Relaxed);
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
