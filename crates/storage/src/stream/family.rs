//! Byte streams of the family: over queue pairs and over STP.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use sockets_compat::{Address, QpOptions, QpStream, StpStream};

use super::{Stream, write_both};

/// Bytes of room for data of block devices, each way: two of the largest blocks that clients
/// usually ask for. With less, a block waits in the middle for its reader.
const ROOM: usize = 2 << 20;

/// What queue pairs for block devices should be like.
///
/// ```
/// let options = landfall_storage::stream::queue_pair_options();
/// assert_eq!(options.receive_buffer, 2 << 20);
/// ```
#[must_use]
pub fn queue_pair_options() -> QpOptions {
    let mut options = QpOptions::default();
    (options.receive_buffer, options.send_buffer) = (ROOM, ROOM);
    options
}

of_socket!(
    QpStream,
    |stream| match stream.local_addr() {
        Ok(Address::Qp(local)) => Some(local),
        _ => None,
    },
    {
        fn send_memory(&self, len: usize) -> io::Result<Option<sockets_compat::SendMemory>> {
            self.send_memory(len).map(Some)
        }

        fn read_landed(
            &self,
            most: usize,
            take: &mut dyn FnMut(sockets_compat::Landed<'_>),
        ) -> io::Result<Option<usize>> {
            loop {
                match self.read_landed(most, &mut *take) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return other.map(Some),
                }
            }
        }
    }
);
of_socket!(StpStream, |_| None);
