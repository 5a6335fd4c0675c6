//! HTTPS over queue pairs: an axum server on one adapter, a client of hyper on another.
//!
//! ```sh
//! cargo run --release -p sockets-compat --example https_over_qp
//! ```
//!
//! The two adapters are joined within this process; with a link to a network, the other side may
//! be any client or server of HTTPS over TCP.

use std::sync::Arc;

use anyhow::ensure;
use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use landfall::qpip::{Adapter, ChannelConfig};
use sockets_compat::hyper::Connector;
use sockets_compat::tls::rustls::pki_types::PrivateKeyDer;
use sockets_compat::tls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use sockets_compat::tls::{TlsConnector, TlsListener};
use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{QpHost, QpOptions};

/// So long is the body that goes there and comes back.
const LEN: usize = 3 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (server_config, client_config) = certificates("web.example")?;
    let (here, there) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
    let here = QpHost::new(here.address("10.0.0.1/24").open()?, QpOptions::default())?;
    let there = QpHost::new(there.address("10.0.0.2/24").open()?, QpOptions::default())?;

    let app = Router::new()
        .route("/hello", get(async || "hello, nobody else reads this"))
        .route("/echo", post(async |body: Bytes| body))
        .layer(axum::extract::DefaultBodyLimit::max(2 * LEN));
    let listener = QpListener::from_std(there.listen("qp://10.0.0.2:443")?)?;
    let address = listener.local_addr()?;
    let listener = TlsListener::new(listener, server_config);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let connector = Connector::new(move |_| {
        let (here, address) = (here.clone(), address.clone());
        async move { QpStream::connect(&here, address).await }
    });
    let connector = TlsConnector::new(connector, client_config);
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);

    let answer = client.get("https://web.example/hello".parse()?).await?;
    let text = answer.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&text));
    let body: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let request = axum::http::Request::post("https://web.example/echo");
    let request = request.body(Full::from(body.clone()))?;
    let back = client.request(request).await?.into_body().collect().await?.to_bytes();
    ensure!(back == body, "what came back is something else");
    println!("{} bytes went there and came back", back.len());
    let wrong = client.get("https://other.example/hello".parse()?).await;
    ensure!(wrong.is_err(), "the certificate is for another name");
    println!("other.example is refused: its certificate is for another name");
    server.abort();
    Ok(())
}

/// A certificate that the server made for itself, and a client that trusts it.
fn certificates(name: &str) -> anyhow::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let certificate = made.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::builder().with_no_client_auth();
    let client = ClientConfig::builder();
    Ok((
        Arc::new(server.with_single_cert(vec![certificate], key)?),
        Arc::new(client.with_root_certificates(roots).with_no_client_auth()),
    ))
}
