//! One stream of s2n-quic, with segmentation by the kernel (GSO, GRO), and an MTU that is given.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use s2n_quic::client::Connect;
use s2n_quic::provider::io::tokio as io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as tls;
use s2n_quic::{Client, Server};

use crate::certificate::made;

const CHUNK: usize = 1 << 20;
/// Far beyond what is under way on loopback.
const WINDOW: u64 = 64 << 20;

/// Sends this many bytes over one stream.
pub(crate) fn run(mtu: u16, bytes: u64) -> Result<u64> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (certificate, key) = made()?;
        let server = tls::Server::builder().with_certificate(certificate.clone(), key);
        let server = server.and_then(tls::server::Builder::build).map_err(unsized_error)?;
        let client = tls::Client::builder().with_certificate(certificate);
        let client = client.and_then(tls::client::Builder::build).map_err(unsized_error)?;
        let mut receiver = Server::builder()
            .with_tls(server)?
            .with_io(on(mtu)?)?
            .with_limits(limits()?)?
            .start()?;
        let to = receiver.local_addr()?;
        let sender = Client::builder()
            .with_tls(client)?
            .with_io(on(mtu)?)?
            .with_limits(limits()?)?
            .start()?;
        let receiving = tokio::spawn(async move {
            let mut connection = receiver.accept().await.context("somebody calls")?;
            let stream = connection.accept_receive_stream().await?;
            let (mut stream, mut came) = (stream.context("it has a stream")?, 0);
            while let Some(part) = stream.receive().await? {
                came += part.len() as u64;
            }
            anyhow::Ok(came)
        });
        let mut connection = sender.connect(Connect::new(to).with_server_name("localhost")).await?;
        let mut stream = connection.open_send_stream().await?;
        let chunk = bytes::Bytes::from(vec![1; CHUNK]);
        for _ in 0..bytes.div_ceil(CHUNK as u64) {
            stream.send(chunk.clone()).await?;
        }
        stream.finish()?;
        receiving.await?
    })
}

fn unsized_error(error: Box<dyn Error + Send + Sync>) -> anyhow::Error {
    anyhow::Error::from_boxed(error)
}

fn on(mtu: u16) -> Result<io::Provider> {
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let builder = io::Provider::builder().with_receive_address(at)?;
    Ok(builder.with_base_mtu(mtu)?.with_initial_mtu(mtu)?.with_max_mtu(mtu)?.build()?)
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_data_window(WINDOW)?
        .with_unidirectional_data_window(WINDOW)?
        .with_max_send_buffer_size(WINDOW as u32)?)
}
