//! One stream of quinn, which does not look for a longer MTU: that is given.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};

use crate::certificate::configs;

const CHUNK: usize = 1 << 20;
/// Far beyond what is under way on loopback.
const WINDOW: u32 = 64 << 20;

/// Sends this many bytes over one stream.
pub(crate) fn run(mtu: u16, bytes: u64) -> Result<u64> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (server, client) = configured(mtu)?;
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let receiver = Endpoint::server(server, at)?;
        let to = receiver.local_addr()?;
        let mut sender = Endpoint::client(at)?;
        sender.set_default_client_config(client);
        let receiving = tokio::spawn(async move {
            let connection = receiver.accept().await.context("somebody calls")?.await?;
            let mut stream = connection.accept_uni().await?;
            let mut came = 0;
            let mut place = vec![0; CHUNK];
            while let Some(len) = stream.read(&mut place).await? {
                came += len as u64;
            }
            connection.close(VarInt::from_u32(0), b"");
            receiver.wait_idle().await;
            anyhow::Ok(came)
        });
        let connection = sender.connect(to, "localhost")?.await?;
        let mut stream = connection.open_uni().await?;
        let chunk = vec![1; CHUNK];
        for _ in 0..bytes.div_ceil(CHUNK as u64) {
            stream.write_all(&chunk).await?;
        }
        stream.finish()?;
        connection.closed().await;
        receiving.await?
    })
}

fn configured(mtu: u16) -> Result<(ServerConfig, ClientConfig)> {
    let (server, client) = configs()?;
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(mtu)
        .min_mtu(mtu)
        .mtu_discovery_config(None)
        .send_window(WINDOW.into())
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into());
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    client.transport_config(transport);
    Ok((server, client))
}
