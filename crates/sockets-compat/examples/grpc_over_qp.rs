//! gRPC by tonic, over queue pairs: a server on one adapter, a client on another.
//!
//! ```sh
//! cargo run --release -p sockets-compat --example grpc_over_qp
//! ```
//!
//! The two adapters are joined within this process; with a link to a network, the other
//! side may be any gRPC over TCP. The message and its codec are written by hand, so that
//! no compiler of protocol buffers is needed: `message Text { string text = 1; }`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::ensure;
use axum::http;
use bytes::{Buf, BufMut};
use landfall::qpip::{Adapter, ChannelConfig};
use sockets_compat::hyper::Connector;
use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{QpHost, QpOptions};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::{Request, Response, Status};

/// `message Text { string text = 1; }`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(String);

/// Field 1, with a length in front.
const FIELD: u8 = 1 << 3 | 2;

#[derive(Clone, Copy, Debug, Default)]
struct TextCodec;

impl Codec for TextCodec {
    type Encode = Text;
    type Decode = Text;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for TextCodec {
    type Item = Text;
    type Error = Status;

    fn encode(&mut self, Text(text): Text, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_u8(FIELD);
        let mut len = text.len();
        while len >= 0x80 {
            into.put_u8(len as u8 | 0x80);
            len >>= 7;
        }
        into.put_u8(len as u8);
        into.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for TextCodec {
    type Item = Text;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Text>, Status> {
        let wrong = || Status::internal("that is no Text");
        if !from.has_remaining() {
            return Ok(Some(Text(String::new())));
        }
        if from.get_u8() != FIELD {
            return Err(wrong());
        }
        let (mut len, mut shift) = (0usize, 0);
        loop {
            let byte = from.try_get_u8().map_err(|_| wrong())?;
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            match byte {
                0..0x80 => break,
                _ if shift > 28 => return Err(wrong()),
                _ => {}
            }
        }
        if len != from.remaining() {
            return Err(wrong());
        }
        let bytes = from.copy_to_bytes(len).to_vec();
        String::from_utf8(bytes).map(Text).map(Some).map_err(|_| wrong())
    }
}

/// `service Mirror { rpc Reverse(Text) returns (Text); }`
#[derive(Clone, Debug)]
struct Mirror;

impl NamedService for Mirror {
    const NAME: &'static str = "landfall.Mirror";
}

impl UnaryService<Text> for Mirror {
    type Response = Text;
    type Future = Ready<Result<Response<Text>, Status>>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        let Text(text) = request.into_inner();
        ready(match text.as_str() {
            "" => Err(Status::invalid_argument("nothing has no other end")),
            text => Ok(Response::new(Text(text.chars().rev().collect()))),
        })
    }
}

impl tower_service::Service<http::Request<Body>> for Mirror {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            let mut grpc = tonic::server::Grpc::new(TextCodec);
            Ok(match request.uri().path() {
                "/landfall.Mirror/Reverse" => grpc.unary(Self, request).await,
                _ => Status::unimplemented("Mirror has Reverse only").into_http(),
            })
        })
    }
}

/// Two hosts that are joined within this process.
fn hosts() -> anyhow::Result<(QpHost, QpHost)> {
    let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
    let client = QpHost::new(one.address("10.0.0.1/24").open()?, QpOptions::default())?;
    let server = QpHost::new(two.address("10.0.0.2/24").open()?, QpOptions::default())?;
    Ok((client, server))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    const SERVER: &str = "qp://10.0.0.2:50051";
    let (client, server) = hosts()?;
    let listener = QpListener::from_std(server.listen(SERVER)?)?;
    let app = tonic::service::Routes::new(Mirror).into_axum_router();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });

    let connector = Connector::new(move |_| {
        let client = client.clone();
        async move { QpStream::connect(&client, SERVER).await }
    });
    let channel = tonic::transport::Endpoint::from_static("http://mirror");
    let channel = channel.connect_with_connector(connector).await?;
    let mut grpc = tonic::client::Grpc::new(channel);

    let long = "abc".repeat(100_000);
    for text in ["every byte has its place", long.as_str()] {
        let answer = reverse(&mut grpc, text).await?;
        ensure!(answer.chars().rev().eq(text.chars()), "that is not its mirror image");
        println!("{} characters came back: {:.24}", answer.len(), answer);
    }
    let refused = reverse(&mut grpc, "").await.expect_err("nothing has no other end");
    println!("{:?}: {}", refused.code(), refused.message());
    serving.abort();
    Ok(())
}

async fn reverse(
    grpc: &mut tonic::client::Grpc<tonic::transport::Channel>,
    text: &str,
) -> Result<String, Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static("/landfall.Mirror/Reverse");
    let answer = grpc.unary(Request::new(Text(text.into())), path, TextCodec).await?;
    Ok(answer.into_inner().0)
}
