//! What the kernel offers for the same: connected sockets, and a server of one thread
//! that waits for all of them by `epoll` (tokio on the calling thread).

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use landfall_testbed::rivals::Endpoints;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use super::Seen;
use super::clients::{self, Clients, MESSAGE, ServerThread};
use crate::papers::clan::Scale;
use crate::workload::side::{both, joined, place_thread};

/// Which sockets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Unix,
    Tcp,
}

/// The server's end of a connection.
enum Served {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Connects this many: the clients' ends, and the server's.
fn connect(kind: Kind, at: &Endpoints, endpoints: usize) -> Result<(Vec<Socket>, Vec<Served>)> {
    let pairs = match kind {
        Kind::Unix => (0..endpoints).map(|_| unix()).collect::<Result<Vec<_>>>()?,
        Kind::Tcp => {
            let listener = TcpListener::bind((at.receive.address, 0))?;
            (0..endpoints).map(|_| tcp(&listener)).collect::<Result<_>>()?
        }
    };
    let (clients, served): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok((clients.into_iter().map(Socket::from).collect(), served))
}

fn unix() -> Result<(OwnedFd, Served)> {
    let (client, served) = UnixStream::pair().context("a pair of Unix sockets")?;
    client.set_nonblocking(true)?;
    served.set_nonblocking(true)?;
    Ok((client.into(), Served::Unix(served)))
}

fn tcp(listener: &TcpListener) -> Result<(OwnedFd, Served)> {
    let client = TcpStream::connect(listener.local_addr()?).context("connect to the server")?;
    let (served, from) = listener.accept()?;
    ensure!(from == client.local_addr()?, "{from} is not the one that was expected");
    // So that thousands of them leave no names behind that nobody can use for a minute.
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    for stream in [&client, &served] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((client.into(), Served::Tcp(served)))
}

/// Serves so many connections, and lets them ask.
pub(super) fn run(kind: Kind, at: &Endpoints, scale: Scale, endpoints: usize) -> Result<Seen> {
    let (sockets, served) = connect(kind, at, endpoints)?;
    let (tell, hear) = channel();
    let (seen, ()) = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let tell = tell;
            place_thread(&at.receive)?;
            // Nobody waits for it any more: then all clients are gone.
            let _ = tell.send(ServerThread::this()?);
            serve(served)
        });
        let asking = scope.spawn(|| {
            let (sockets, hear) = (sockets, hear);
            place_thread(&at.send)?;
            let server = hear.recv_timeout(scale.limit).map_err(|_| anyhow!("no server"))?;
            let replies = vec![Partial::default(); endpoints];
            clients::ask(Sockets { sockets, replies }, endpoints, scale, &server)
        });
        both(joined(asking.join()), joined(serving.join()))
    })?;
    Ok(seen)
}

/// Until all clients have hung up.
fn serve(connections: Vec<Served>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut serving = JoinSet::new();
        for connection in connections {
            match connection {
                Served::Unix(socket) => {
                    serving.spawn(echo(tokio::net::UnixStream::from_std(socket)?))
                }
                Served::Tcp(socket) => {
                    serving.spawn(echo(tokio::net::TcpStream::from_std(socket)?))
                }
            };
        }
        while serving.join_next().await.is_some() {}
        Ok(())
    })
}

/// Until the client is gone.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut message = [0; MESSAGE];
    while stream.read_exact(&mut message).await.is_ok() {
        if stream.write_all(&message).await.is_err() {
            break;
        }
    }
}

/// What came of a reply so far.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    bytes: [u8; MESSAGE],
    len: usize,
}

struct Sockets {
    sockets: Vec<Socket>,
    replies: Vec<Partial>,
}

impl Clients for Sockets {
    fn send(&mut self, endpoint: usize, request: &[u8; MESSAGE]) -> Result<bool> {
        match self.sockets[endpoint].send(request) {
            Ok(len) => {
                // A buffer that holds nothing else has room for so little.
                ensure!(len == MESSAGE, "a socket took {len} of {MESSAGE} bytes");
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn reply(&mut self, endpoint: usize) -> Result<Option<[u8; MESSAGE]>> {
        let Partial { bytes, len } = &mut self.replies[endpoint];
        match (&self.sockets[endpoint]).read(&mut bytes[*len..]) {
            Ok(0) => Err(anyhow!("the server hung up")),
            Ok(more) => {
                *len = (*len + more) % MESSAGE;
                Ok((*len == 0).then_some(*bytes))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn turn(&mut self) {}
}
