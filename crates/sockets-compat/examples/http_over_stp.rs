//! An axum server and a client of hyper, over the Scheduled Transfer Protocol.
//!
//! ```sh
//! cargo run --release -p sockets-compat --example http_over_stp
//! ```
//!
//! Both are as they would be over TCP; only the listener and the connector are ours.

use anyhow::ensure;
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sockets_compat::hyper::Connector;
use sockets_compat::tokio::{StpStream, StpStreamListener};

/// So long is the body that goes there and comes back.
const LEN: usize = 3 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let app = Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}")))
        .route("/echo", post(async |body: Bytes| body))
        .layer(axum::extract::DefaultBodyLimit::max(2 * LEN));
    let listener = StpStreamListener::bind("stp://127.0.0.1:80/udp/0")?;
    let there = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let connector = Connector::new(move |_| StpStream::connect(there.clone()));
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);

    for name in ["stp", "qpip", "clan"] {
        let answer = client.get(format!("http://web/hello/{name}").parse()?).await?;
        let text = answer.into_body().collect().await?.to_bytes();
        println!("{}", String::from_utf8_lossy(&text));
    }
    let body: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let request = axum::http::Request::post("http://web/echo").body(Full::from(body.clone()))?;
    let back = client.request(request).await?.into_body().collect().await?.to_bytes();
    ensure!(back == body, "what came back is something else");
    println!("{} bytes went there and came back", back.len());
    server.abort();
    Ok(())
}
