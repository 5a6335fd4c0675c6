//! Queue pairs as sockets, with the kernel's own sockets at the other end: over TAP, in a
//! network namespace.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use landfall::qpip::{Adapter, Link, TapConfig};
use landfall_testbed::{Namespace, require_namespaces};
use sockets_compat::{QpHost, QpListener, QpOptions, QpStream};

use crate::support::{PATIENCE, within};

const HERE: &str = "10.9.0.2";
const KERNEL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));
const PORT: u16 = 7_000;

/// A host of queue pairs, and the kernel at the other end of its TAP interface.
pub(crate) struct Neighbours {
    host: QpHost,
    kernel: Namespace,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        let kernel = Namespace::new().unwrap();
        let config = TapConfig { kernel_address: Some((KERNEL, 24)), ..TapConfig::new("tap0") };
        let adapter = Adapter::builder().link(Link::tap_with(config)).address("10.9.0.2/24");
        let adapter = kernel.enter(|| adapter.open()).unwrap().unwrap();
        Self { host: QpHost::new(adapter, QpOptions::default()).unwrap(), kernel }
    }

    /// What the kernel there opens.
    fn by_kernel<T: Send>(&self, open: impl FnOnce() -> io::Result<T> + Send) -> T {
        self.kernel.enter(open).unwrap().unwrap()
    }

    fn listen(&self) -> QpListener {
        self.host.listen(format!("qp://{HERE}:{PORT}")).unwrap()
    }

    /// The kernel calls.
    pub(crate) fn called(&self) -> (QpStream, TcpStream) {
        let listener = self.listen();
        let address = SocketAddr::new(HERE.parse().unwrap(), PORT);
        let theirs = self.by_kernel(|| TcpStream::connect_timeout(&address, PATIENCE));
        patient(&theirs);
        let (ours, from) = listener.accept().unwrap();
        assert_eq!(from.socket(), Some(theirs.local_addr().unwrap()));
        (ours, theirs)
    }

    /// The kernel is called.
    pub(crate) fn calls(&self) -> (QpStream, TcpStream) {
        let listener = self.by_kernel(|| TcpListener::bind((KERNEL, 0)));
        let address = listener.local_addr().unwrap();
        let ours = self.host.connect(format!("qp://{address}")).unwrap();
        let (theirs, from) = listener.accept().unwrap();
        patient(&theirs);
        assert_eq!(ours.local_addr().unwrap().socket(), Some(from));
        assert_eq!(ours.peer_addr().unwrap().socket(), Some(address));
        (ours, theirs)
    }

    /// Both, one after the other.
    fn both(&self, test: impl Fn(QpStream, TcpStream)) {
        for (ours, theirs) in [self.called(), self.calls()] {
            ours.set_read_timeout(Some(PATIENCE)).unwrap();
            ours.set_write_timeout(Some(PATIENCE)).unwrap();
            test(ours, theirs);
        }
    }
}

fn patient(socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// Bytes that are told from each other, wherever they come to lie.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn reads_all(mut from: impl Read, all: &[u8]) {
    let mut came = Vec::new();
    from.read_to_end(&mut came).unwrap();
    assert!(came == all, "{} of {} bytes", came.len(), all.len());
}

#[test]
fn bytes_go_both_ways_at_once_and_end_where_they_are_ended() {
    require_namespaces!();
    within(|| {
        Neighbours::new().both(|ours, theirs| {
            let all = bytes(700_000);
            thread::scope(|scope| {
                scope.spawn(|| {
                    (&theirs).write_all(&all).unwrap();
                    theirs.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(|| {
                    (&ours).write_all(&all).unwrap();
                    ours.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(|| reads_all(&theirs, &all));
                reads_all(&ours, &all);
            });
        });
    });
}

#[test]
fn a_kernel_that_resets_is_heard_of() {
    require_namespaces!();
    within(|| {
        Neighbours::new().both(|mut ours, theirs| {
            ours.write_all(b"nobody will read that").unwrap();
            assert_eq!(theirs.peek(&mut [0; 4]).unwrap(), 4);
            // With bytes that nobody read.
            drop(theirs);
            let error = ours.read(&mut [0; 16]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        });
    });
}

#[test]
fn a_socket_that_goes_ends_the_kernels_reading() {
    require_namespaces!();
    within(|| {
        Neighbours::new().both(|mut ours, mut theirs| {
            ours.write_all(b"the last word").unwrap();
            drop(ours);
            let mut came = String::new();
            theirs.read_to_string(&mut came).unwrap();
            assert_eq!(came, "the last word");
        });
    });
}

#[test]
fn a_kernel_where_nobody_listens_refuses() {
    require_namespaces!();
    within(|| {
        let neighbours = Neighbours::new();
        let refused = neighbours.host.connect(format!("qp://{KERNEL}:1")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    });
}

#[test]
fn datagrams_are_exchanged_with_a_kernel_whole_and_in_fragments() {
    require_namespaces!();
    within(|| {
        let neighbours = Neighbours::new();
        let theirs = neighbours.by_kernel(|| UdpSocket::bind((KERNEL, 0)));
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = theirs.local_addr().unwrap();
        let ours = neighbours.host.datagram(format!("qp://{HERE}:0")).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.connect(format!("qp://{address}")).unwrap();
        let mut room = vec![0; 65_536];
        for len in [1, 1_000, 1_472, 1_473, 60_000] {
            let all = bytes(len);
            assert_eq!(ours.send(&all).unwrap(), len);
            let (came, from) = theirs.recv_from(&mut room).unwrap();
            assert!(room[..came] == all[..], "{came} of {len} bytes");
            assert_eq!(ours.local_addr().unwrap().socket(), Some(from));
            assert_eq!(theirs.send_to(&all, from).unwrap(), len);
            let came = ours.recv(&mut room).unwrap();
            assert!(room[..came] == all[..], "{came} of {len} bytes");
        }
    });
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_serves_a_kernel() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    require_namespaces!();
    within(|| {
        let neighbours = Neighbours::new();
        let listener = sockets_compat::tokio::QpListener::from_std(neighbours.listen()).unwrap();
        let address = SocketAddr::new(HERE.parse().unwrap(), PORT);
        let theirs = neighbours.by_kernel(|| TcpStream::connect_timeout(&address, PATIENCE));
        patient(&theirs);
        let all = bytes(300_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                (&theirs).write_all(&all).unwrap();
                theirs.shutdown(Shutdown::Write).unwrap();
            });
            let echoed = scope.spawn(|| {
                let mut came = Vec::new();
                (&theirs).read_to_end(&mut came).map(|_| came)
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (mut ours, _) = listener.accept().await.unwrap();
                let mut some = vec![0; 10_000];
                loop {
                    let len = ours.read(&mut some).await.unwrap();
                    if len == 0 {
                        break;
                    }
                    ours.write_all(&some[..len]).await.unwrap();
                }
                ours.shutdown().await.unwrap();
            });
            assert!(echoed.join().unwrap().unwrap() == all);
        });
    });
}
