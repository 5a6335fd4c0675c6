//! Byte streams of the family: over queue pairs and over STP.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use sockets_compat::{Address, QpStream, StpStream};

use super::{Stream, write_both};

of_socket!(QpStream, |stream| match stream.local_addr() {
    Ok(Address::Qp(local)) => Some(local),
    _ => None,
});
of_socket!(StpStream, |_| None);
