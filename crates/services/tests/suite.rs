//! The servers over queue pairs that are joined within this process, and over a kernel's TCP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfall::qpip::{Adapter, ChannelConfig};
use landfall_services::http::{self, Site, Stats};
use landfall_services::server::{Limits, Stopper, Unobserved, stopper};
use landfall_services::tls;
use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{QpHost, QpOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long for whatever a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"GET /Cargo.toml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const CONTENT: &str = include_str!("../Cargo.toml");

fn site() -> Site {
    Site::open(env!("CARGO_MANIFEST_DIR").as_ref()).unwrap()
}

async fn until_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<String> {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("an end")?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_over_queue_pairs() {
    let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default()).unwrap();
    let host = |adapter| QpHost::new(adapter, QpOptions::default()).unwrap();
    let client = host(one.address("10.0.0.1/24").open().unwrap());
    let server = host(two.address("10.0.0.2/24").open().unwrap());
    let listener = QpListener::from_std(server.listen("qp://10.0.0.2:80").unwrap()).unwrap();
    let ((stopper, stop), stats) = (stopper(), Arc::new(Stats::default()));
    let counted = Arc::clone(&stats);
    let limits = Limits::default();
    let serving = http::run(listener, site(), None, limits, Arc::new(Unobserved), counted, stop);
    let serving = tokio::spawn(serving);
    let mut stream = QpStream::connect(&client, "qp://10.0.0.2:80").await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let text = until_end(&mut stream).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(CONTENT), "{text}");
    stopper.stop();
    assert!(timeout(PATIENCE, serving).await.unwrap().unwrap(), "it drained");
    assert_eq!(stats.responses(), [1, 0, 0, 0]);
}

async fn over_kernel(limits: Limits) -> (TcpStream, Stopper, JoinHandle<bool>, Arc<Stats>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let ((stopper, stop), stats) = (stopper(), Arc::new(Stats::default()));
    let counted = Arc::clone(&stats);
    let serving = http::run(listener, site(), None, limits, Arc::new(Unobserved), counted, stop);
    (TcpStream::connect(at).await.unwrap(), stopper, tokio::spawn(serving), stats)
}

#[tokio::test]
async fn who_sends_no_request_is_given_up() {
    let limits = Limits { head: Duration::from_millis(50), ..Limits::default() };
    let (mut stream, _stopper, _serving, stats) = over_kernel(limits).await;
    stream.write_all(b"GET / HTTP/1.1\r\nX-").await.unwrap();
    let text = until_end(&mut stream).await.unwrap_or_default();
    assert!(!text.contains("200"), "{text}");
    assert_eq!(stats.timeouts(), 1);
}

#[tokio::test]
async fn an_idle_connection_ends_when_the_server_does() {
    let (mut stream, stopper, serving, stats) = over_kernel(Limits::default()).await;
    stream.write_all(b"HEAD /Cargo.toml HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stopper.stop();
    until_end(&mut stream).await.unwrap();
    assert!(timeout(PATIENCE, serving).await.unwrap().unwrap());
    assert_eq!((stats.timeouts(), stats.bad_requests()), (0, 0));
}

#[test]
fn certificates_that_cannot_be_used_are_refused_with_advice() {
    let folder = std::env::temp_dir().join(format!("services-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let none = folder.join("none.pem");
    std::fs::write(&none, "no certificate").unwrap();
    let why = tls::from_files(&none, &none).unwrap_err().to_string();
    assert!(why.contains("BEGIN CERTIFICATE"), "{why}");
    let why = tls::trusting(&none).unwrap_err().to_string();
    assert!(why.contains("BEGIN CERTIFICATE"), "{why}");
    let missing = folder.join("missing.pem");
    let why = tls::from_files(&missing, &none).unwrap_err().to_string();
    assert!(why.contains("missing.pem"), "{why}");
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(tls::self_signed(["10.0.0.1".to_owned()]).is_ok());
}
