//! The carrier of another host as it should not be: it has the key, takes each connection, and
//! then says whatever it likes.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockets_compat::{StpHost, StpOptions, StpStream, StpStreamListener};

use crate::hosts::CARRIERS;

const MAGIC: &[u8; 8] = b"LFcarry1";
/// The name of a connection, as carriers tell it to each other: address and port of both ends.
const NAME: usize = 36;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Liar {
    _host: StpHost,
    listener: StpStreamListener,
    key: [u8; 32],
}

impl Liar {
    /// To be called on its host.
    pub(crate) fn new(address: IpAddr, secret: &[u8]) -> Self {
        let host = StpHost::bind_udp(SocketAddr::new(address, CARRIERS), StpOptions::default());
        let host = host.expect("the port is free");
        let listener = host.listen_streams(118).expect("nobody listens there");
        let key = blake3::derive_key("landfall 2026-11 between the carriers of two hosts", secret);
        Self { _host: host, listener, key }
    }

    /// Takes the next connection that is offered, says so much of it, and hears whether the
    /// other carrier has had enough.
    pub(crate) fn says(&self, nonsense: &[u8]) {
        let (mut stream, _) = self.listener.accept().expect("the other carrier calls");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        self.greets(&mut stream);
        // It may have gone before all of it was said.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        if let Err(why) = stream.read_to_end(&mut said) {
            assert_ne!(why.kind(), std::io::ErrorKind::WouldBlock, "it goes on: {said:?}");
        }
    }

    fn greets(&self, stream: &mut StpStream) {
        let mut hello = [0; 40];
        stream.read_exact(&mut hello).expect("it says what it is");
        let (magic, chance) = hello.split_at(MAGIC.len());
        assert_eq!(magic, MAGIC);
        let ours = [7; 32];
        let mut proof = blake3::Hasher::new_keyed(&self.key);
        proof.update(MAGIC).update(&[1]).update(chance).update(&ours);
        stream.write_all(&[&ours[..], proof.finalize().as_bytes()].concat()).expect("it listens");
        stream.read_exact(&mut [0; NAME + 32]).expect("it offers a connection");
        stream.write_all(&[1]).expect("it is told that it is welcome");
    }
}

/// Something that carriers say: what it is, and a number.
pub(crate) fn frame(kind: u8, number: u64) -> Vec<u8> {
    [&[kind][..], &number.to_be_bytes()].concat()
}
