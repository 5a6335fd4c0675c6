//! TLS above queue pairs: what crosses, who is refused, who holds nobody up; and the kernel's
//! TCP with rustls at the other end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use landfall::qpip::{Adapter, ChannelConfig};
use landfall_testbed::require_namespaces;
use rcgen::{CertifiedKey, KeyPair};
use sockets_compat::tls::TlsListener;
use sockets_compat::tls::rustls::pki_types::{PrivateKeyDer, ServerName};
use sockets_compat::tls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use sockets_compat::tls::tokio_rustls::TlsConnector;
use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{QpHost, QpOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::qp_kernel::{Neighbours, bytes};
use crate::support::tasks::run;
use crate::support::within;

const NAME: &str = "here.example";
const SERVER: &str = "qp://10.0.0.2:443";

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> =
        rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server.with_single_cert(vec![cert.der().clone()], key).unwrap()), Arc::new(client))
}

/// Two hosts that are joined within this process, and a listener at the second.
fn hosts() -> (QpHost, QpHost, QpListener) {
    let pair = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default()).unwrap();
    let host = |adapter: landfall::qpip::Builder, address| {
        QpHost::new(adapter.address(address).open().unwrap(), QpOptions::default()).unwrap()
    };
    let (client, server) = (host(pair.0, "10.0.0.1/24"), host(pair.1, "10.0.0.2/24"));
    let listener = QpListener::from_std(server.listen(SERVER).unwrap()).unwrap();
    (client, server, listener)
}

#[test]
fn bytes_cross_and_callers_that_say_nothing_hold_nobody_up() {
    let (server, client) = configs();
    run(async {
        let (here, _there, listener) = hosts();
        let mut listener = TlsListener::new(listener, server);
        // One says nothing, one talks no TLS, one expects another name.
        let silent = QpStream::connect(&here, SERVER).await.unwrap();
        let mut other = QpStream::connect(&here, SERVER).await.unwrap();
        other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let connector = TlsConnector::from(client);
        let stream = QpStream::connect(&here, SERVER).await.unwrap();
        let mistaken = connector.connect("there.example".try_into().unwrap(), stream);
        let calling = async {
            let refused = mistaken.await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidData);
            let stream = QpStream::connect(&here, SERVER).await.unwrap();
            connector.connect(NAME.try_into().unwrap(), stream).await.unwrap()
        };
        let (accepted, mut calling) = tokio::join!(listener.accept(), calling);
        let (mut accepted, from) = accepted.unwrap();
        assert_eq!(from.socket().unwrap().ip().to_string(), "10.0.0.1");

        let all = bytes(700_000);
        let writing = async {
            calling.write_all(&all).await.unwrap();
            calling.shutdown().await.unwrap();
            let mut back = Vec::new();
            calling.read_to_end(&mut back).await.unwrap();
            back
        };
        let echo = async {
            let mut came = Vec::new();
            accepted.read_to_end(&mut came).await.unwrap();
            accepted.write_all(&came).await.unwrap();
            accepted.shutdown().await.unwrap();
        };
        let (back, ()) = tokio::join!(writing, echo);
        assert!(back == all);
        drop((silent, other));
    });
}

#[test]
fn handshakes_that_nobody_finishes_are_bounded() {
    let (server, client) = configs();
    run(async {
        let (here, _there, listener) = hosts();
        let mut listener = TlsListener::new(listener, server);
        let ended = AtomicUsize::new(0);
        let accepting = async { listener.accept().await.unwrap() };
        let calling = async {
            // More than there is room for; all of them end, and the next one is let in.
            let mut silent = Vec::new();
            for _ in 0..300 {
                silent.push(QpStream::connect(&here, SERVER).await.unwrap());
            }
            for mut stream in silent {
                stream.shutdown().await.unwrap();
                let _ = stream.read(&mut [0]).await;
                ended.fetch_add(1, Ordering::Relaxed);
            }
            let stream = QpStream::connect(&here, SERVER).await.unwrap();
            TlsConnector::from(client).connect(NAME.try_into().unwrap(), stream).await.unwrap()
        };
        let _both = tokio::join!(accepting, calling);
        assert_eq!(ended.load(Ordering::Relaxed), 300);
    });
}

/// Both ways: rustls over the kernel's TCP calls, and is called.
#[test]
fn the_kernels_tcp_with_rustls_is_at_the_other_end() {
    require_namespaces!();
    within(|| {
        let (server, client) = configs();
        let name = || ServerName::try_from(NAME).unwrap();
        let all = bytes(300_000);
        let serve = |mut tls: StreamOwned<ServerConnection, Box<dyn Both>>| {
            let mut came = vec![0; 300_000];
            tls.read_exact(&mut came).unwrap();
            tls.write_all(&came).unwrap();
            tls.flush().unwrap();
        };
        let call = |mut tls: StreamOwned<ClientConnection, Box<dyn Both>>| {
            tls.write_all(&all).unwrap();
            let mut back = vec![0; 300_000];
            tls.read_exact(&mut back).unwrap();
            assert!(back == all);
        };
        let pair = |caller: Box<dyn Both>, called: Box<dyn Both>| {
            let server = ServerConnection::new(Arc::clone(&server)).unwrap();
            let client = ClientConnection::new(Arc::clone(&client), name()).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| serve(StreamOwned::new(server, called)));
                call(StreamOwned::new(client, caller));
            });
        };
        let neighbours = Neighbours::new();
        let (ours, theirs) = neighbours.called();
        pair(Box::new(theirs), Box::new(ours));
        let (ours, theirs): (_, TcpStream) = neighbours.calls();
        pair(Box::new(ours), Box::new(theirs));
    });
}

trait Both: Read + Write + Send {}

impl<T: Read + Write + Send> Both for T {}
