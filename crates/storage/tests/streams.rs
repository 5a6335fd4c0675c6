//! The same over whatever carries bytes.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;

use landfall::qpip::{Adapter, ChannelConfig};
use landfall_storage::client::{Client, ConnectError, Options, Pending};
use landfall_storage::device::MemoryDevice;
use landfall_storage::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use landfall_storage::rustls::{ClientConfig, RootCertStore, ServerConfig};
use landfall_storage::server::{Offer, Server};
use landfall_storage::sockets_compat::{QpHost, QpOptions, StpHost, StpOptions, StpStream};

use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::support::{Folder, LIMIT, has, pattern, succeed};

fn exercise(client: &Client) {
    let writes: Vec<_> =
        (0..32u64).map(|nth| client.write(nth * 65_536, pattern(nth, 65_536))).collect();
    for write in writes {
        write.wait().unwrap();
    }
    client.flush().wait().unwrap();
    let reads: Vec<_> = (0..32u64).map(|nth| client.read(nth * 65_536, vec![0; 65_536])).collect();
    for (nth, read) in (0..).zip(reads) {
        assert!(read.wait().unwrap() == pattern(nth, 65_536), "{nth}");
    }
}

fn server() -> Server {
    Server::builder().offer(Offer::new("disk", MemoryDevice::new(4 << 20))).start().unwrap()
}

#[test]
fn over_a_unix_socket() {
    let (folder, server) = (Folder::new(), server());
    let path = folder.file("socket");
    server.listen_unix(&path).unwrap();
    exercise(&Client::connect_unix(&path, &Options::export("disk")).unwrap());
    drop(server);
    assert!(!path.exists(), "it is cleaned up");
}

#[test]
fn over_queue_pairs() {
    let server = server();
    let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default()).unwrap();
    let open = |adapter| QpHost::new(adapter, QpOptions::default()).unwrap();
    let near = open(one.address("10.0.0.1/24").open().unwrap());
    let far = open(two.address("10.0.0.2/24").open().unwrap());
    server.streams().listen_qp(&far, "qp://10.0.0.2:10809").unwrap();
    let stream = Arc::new(near.connect("qp://10.0.0.2:10809").unwrap());
    exercise(&Client::connect(stream, &Options::export("disk")).unwrap());
}

#[test]
fn over_stp() {
    let server = server();
    let host = StpHost::bind_udp("127.0.0.1:0".parse().unwrap(), StpOptions::default()).unwrap();
    let address = server.streams().listen_stp(&host, 0).unwrap();
    let stream = Arc::new(StpStream::connect(address).unwrap());
    exercise(&Client::connect(stream, &Options::export("disk")).unwrap());
}

/// A certificate as text.
fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let bits = (0..3).fold(0, |bits, at| {
                bits << 8 | u32::from(three.get(at).copied().unwrap_or_default())
            });
            for at in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
                text.push(if at <= three.len() { digit.into() } else { '=' });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// A certificate for `localhost` that is its own root, and its key.
fn identity() -> (CertificateDer<'static>, PrivateKeyDer<'static>, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let pem = pem(made.cert.der());
    (made.cert.der().clone(), key, pem)
}

fn trusting(certificate: &CertificateDer<'static>) -> Options {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    Options { tls: Some((Arc::new(config), name)), ..Options::export("disk") }
}

fn secure_server(
    required: bool,
) -> (Server, std::net::SocketAddr, CertificateDer<'static>, String) {
    let (certificate, key, pem) = identity();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.clone()], key).unwrap();
    let offer = Offer::new("disk", MemoryDevice::new(4 << 20)).tls_only(!required);
    let server = Server::builder().offer(offer).tls(Arc::new(config), required).start().unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    (server, address, certificate, pem)
}

#[test]
fn over_tls_and_not_without() {
    for required in [true, false] {
        let (_server, address, certificate, _) = secure_server(required);
        exercise(&Client::connect_tcp(address, &trusting(&certificate)).unwrap());
        let open = Client::connect_tcp(address, &Options::export("disk"));
        let error = open.map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::Negotiation(_)), "{error}");
        // Another certificate of that name.
        let (stranger, _, _) = identity();
        let error = Client::connect_tcp(address, &trusting(&stranger)).map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::Io(_)), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

/// A server that answers reads does not read meanwhile, and a client that sends writes has all
/// of them to send: replies have to be taken off though somebody waits for room to send.
#[test]
fn over_tls_reads_and_writes_pass_each_other_through_little_room() {
    const LEN: usize = 256 << 10;
    let (server, _, certificate, _) = secure_server(true);
    let (near, far) = UnixStream::pair().unwrap();
    for end in [&near, &far] {
        set_socket_send_buffer_size(end, 4096).unwrap();
    }
    server.streams().admit(Arc::new(far), "a pair");
    let client = Client::connect(Arc::new(near), &trusting(&certificate)).unwrap();
    let (done, heard) = mpsc::channel();
    let using = client.clone();
    thread::spawn(move || {
        let mut under_way = Vec::new();
        for nth in 0..64_u64 {
            under_way.push(using.read((nth % 8) * LEN as u64, vec![1; LEN]));
            under_way.push(using.write((8 + nth % 8) * LEN as u64, pattern(nth, LEN)));
        }
        let failed = under_way.into_iter().map(Pending::wait).filter(Result::is_err).count();
        done.send(failed).unwrap();
    });
    let failed = heard.recv_timeout(LIMIT);
    if failed.is_err() {
        client.end("it hangs");
    }
    assert_eq!(failed, Ok(0), "each side waits for the other");
    for nth in 56..64 {
        let read = client.read((8 + nth % 8) * LEN as u64, vec![0; LEN]).wait().unwrap();
        assert!(read == pattern(nth, LEN), "{nth}");
    }
}

#[test]
fn a_server_without_tls_is_not_used_by_a_client_that_wants_it() {
    let server = server();
    let address = server.listen("127.0.0.1:0").unwrap();
    let (certificate, _, _) = identity();
    let error = Client::connect_tcp(address, &trusting(&certificate)).map(drop).unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[test]
fn nbdinfo_comes_in_by_tls() {
    if !has("nbdinfo") {
        return landfall_testkit::skip::skip("nbdinfo_comes_in_by_tls", "needs nbdinfo");
    }
    let (_server, address, _, pem) = secure_server(true);
    let folder = Folder::new();
    std::fs::write(folder.file("ca-cert.pem"), pem).unwrap();
    let certificates = folder.file("");
    let port = address.port();
    let uri = format!(
        "nbds://localhost:{port}/disk?tls-certificates={}",
        certificates.to_str().unwrap().trim_end_matches('/')
    );
    let told = succeed("nbdinfo", &[&uri]);
    assert!(told.contains("with TLS"), "{told}");
}

#[test]
fn two_exports_of_one_name_are_refused() {
    let twice = Server::builder()
        .offer(Offer::new("disk", MemoryDevice::new(1)))
        .offer(Offer::new("disk", MemoryDevice::new(2)));
    assert_eq!(twice.start().map(drop).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
