//! TCP of the kernel: plain, and with TLS 1.3 by rustls or OpenSSL in records of 16 KiB, the longest
//! that TLS has. A thread at each end; the kernel cuts and joins segments as it likes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use crate::certificate::configs;

/// What is written and read in a call.
const CHUNK: usize = 256 << 10;

/// Sends this many bytes without TLS.
pub(crate) fn plain(bytes: u64) -> Result<u64> {
    carry(bytes, Ok, Ok)
}

/// Sends this many bytes with TLS by rustls. It reads no further ahead than a record or so, and has a
/// bound of what is written in a call: no more than a chunk.
pub(crate) fn rustls(bytes: u64) -> Result<u64> {
    let (server, client) = configs()?;
    let (server, client) = (Arc::new(server), Arc::new(client));
    carry(
        bytes,
        |socket| {
            let mut connection = ClientConnection::new(client, "localhost".try_into()?)?;
            connection.set_buffer_limit(Some(CHUNK));
            Ok(StreamOwned::new(connection, socket))
        },
        |socket| Ok(StreamOwned::new(ServerConnection::new(server)?, socket)),
    )
}

/// Sends this many bytes with TLS by OpenSSL, the one of the system, which reads ahead.
#[cfg(feature = "openssl")]
pub(crate) fn openssl(bytes: u64) -> Result<u64> {
    use openssl::pkey::PKey;
    use openssl::ssl::{SslAcceptor, SslConnector, SslContextBuilder, SslMethod, SslVersion};
    use openssl::x509::X509;

    let configure = |builder: &mut SslContextBuilder| -> Result<()> {
        builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        builder.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
        builder.set_read_ahead(true);
        Ok(())
    };
    let (certificate, key) = crate::certificate::made()?;
    let certificate = X509::from_der(&certificate)?;
    let mut server = SslAcceptor::mozilla_modern_v5(SslMethod::tls())?;
    configure(&mut server)?;
    server.set_certificate(&certificate)?;
    let key = PKey::private_key_from_pkcs8(&key)?;
    server.set_private_key(&key)?;
    let mut client = SslConnector::builder(SslMethod::tls())?;
    configure(&mut client)?;
    client.cert_store_mut().add_cert(certificate)?;
    let (server, client) = (server.build(), client.build());
    carry(
        bytes,
        move |socket| Ok(client.connect("localhost", socket)?),
        move |socket| Ok(server.accept(socket)?),
    )
}

/// Sends this many bytes over a socket, through what the two ends make of theirs.
fn carry<S: Write, R: Read>(
    bytes: u64,
    sender: impl FnOnce(TcpStream) -> Result<S>,
    receiver: impl FnOnce(TcpStream) -> Result<R> + Send,
) -> Result<u64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let (socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            let (mut stream, mut place, mut came) = (receiver(socket)?, vec![0; CHUNK], 0);
            while came < bytes {
                let len = stream.read(&mut place)?;
                anyhow::ensure!(len > 0, "it ended after {came} bytes");
                came += len as u64;
            }
            Ok(came)
        });
        let socket = TcpStream::connect(to)?;
        socket.set_nodelay(true)?;
        let (mut stream, chunk, mut left) = (sender(socket)?, vec![1; CHUNK], bytes);
        while left > 0 {
            let len = left.min(CHUNK as u64);
            stream.write_all(&chunk[..len as usize])?;
            left -= len;
        }
        stream.flush()?;
        receiving.join().ok().context("the receiver panicked")?
    })
}
